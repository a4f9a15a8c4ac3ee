"""The first station: data sets, their splits, and the loaders that feed the loop."""

from course.data.collate import PaddedBatch, by_length, pad_collate
from course.data.contract import BatchReport, Breach, ContractError, check_batch
from course.data.coverage import Coverage, count_draws
from course.data.datasets import Data, DataNotFoundError, find_fashion_mnist, load
from course.data.files import FileFault, ImageFileError, ImageFiles, ImageScan, scan_images
from course.data.lines import LineFile
from course.data.loading import Augmented, InMemoryLoader, make_loader
from course.data.noisy import KeyedNoise, NoisyInputs
from course.data.retakes import Takes, takes
from course.data.sampling import ResumableBatchSampler, WeightedBatchSampler, class_weights
from course.data.split_check import SplitFinding, SplitReport, check_split
from course.data.splits import group_split, random_split, stratified_split, time_split
from course.data.stages import StageTimes, time_stages
from course.data.throughput import (
    LoaderSpeed,
    StepSpeed,
    Waiting,
    is_waiting,
    measure_loader,
    measure_step,
)
from course.data.workers import GuardedLoader, WorkerDiedError, workers_explained

__all__ = [
    "Augmented",
    "BatchReport",
    "Breach",
    "ContractError",
    "Coverage",
    "Data",
    "DataNotFoundError",
    "FileFault",
    "GuardedLoader",
    "ImageFileError",
    "ImageFiles",
    "ImageScan",
    "InMemoryLoader",
    "KeyedNoise",
    "LineFile",
    "LoaderSpeed",
    "NoisyInputs",
    "PaddedBatch",
    "ResumableBatchSampler",
    "SplitFinding",
    "SplitReport",
    "StageTimes",
    "StepSpeed",
    "Takes",
    "Waiting",
    "WeightedBatchSampler",
    "WorkerDiedError",
    "by_length",
    "check_batch",
    "check_split",
    "class_weights",
    "count_draws",
    "find_fashion_mnist",
    "group_split",
    "is_waiting",
    "load",
    "make_loader",
    "measure_loader",
    "measure_step",
    "pad_collate",
    "random_split",
    "scan_images",
    "stratified_split",
    "takes",
    "time_split",
    "time_stages",
    "workers_explained",
]
