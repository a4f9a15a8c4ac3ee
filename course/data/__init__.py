"""The road's first station: data sets, their split, and the loaders that feed them."""

from course.data.datasets import Data, DataNotFoundError, find_fashion_mnist, load

__all__ = ["Data", "DataNotFoundError", "find_fashion_mnist", "load"]
