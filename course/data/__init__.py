"""The road's first station: data sets, their split, and the loaders that feed them."""

from course.data.contract import BatchReport, Breach, ContractError, check_batch
from course.data.datasets import Data, DataNotFoundError, find_fashion_mnist, load
from course.data.loading import Augmented, InMemoryLoader, make_loader
from course.data.sampling import ResumableBatchSampler

__all__ = [
    "Augmented",
    "BatchReport",
    "Breach",
    "ContractError",
    "Data",
    "DataNotFoundError",
    "InMemoryLoader",
    "ResumableBatchSampler",
    "check_batch",
    "find_fashion_mnist",
    "load",
    "make_loader",
]
