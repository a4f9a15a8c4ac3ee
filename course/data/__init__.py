"""The road's first station: data sets, their split, and the loaders that feed them."""

from course.data.datasets import Data, DataNotFoundError, find_fashion_mnist, load
from course.data.loading import Augmented, InMemoryLoader, make_loader
from course.data.sampling import ResumableBatchSampler

__all__ = [
    "Augmented",
    "Data",
    "DataNotFoundError",
    "InMemoryLoader",
    "ResumableBatchSampler",
    "find_fashion_mnist",
    "load",
    "make_loader",
]
