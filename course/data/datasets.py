"""The course's data sets, split and normalised: digits, Fashion-MNIST, spirals, moons.

Raw examples are split first; then both parts are normalised with the mean and standard deviation of
the training part alone (ledger F100, T24). Nothing is downloaded unless you ask for it.
"""

from __future__ import annotations

import gzip
import hashlib
import math
import os
import struct
from dataclasses import dataclass, replace
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import DataLoader, TensorDataset

from course.data.splits import by_class

NAMES = ("digits", "fashion-mnist", "spirals", "moons")
DEBIAN_FASHION_MNIST = Path("/usr/share/datasets/fashion-mnist")


class DataNotFoundError(FileNotFoundError):
    """The files of a data set are in none of the known places."""


@dataclass(frozen=True, kw_only=True)
class Data:
    """A data set after the split: normalised inputs and class indices, on the CPU until moved."""

    name: str
    train_inputs: Tensor
    """[N, C, H, W] for images, [N, F] for points; float32, normalised."""
    train_targets: Tensor
    """[N] class indices, long."""
    val_inputs: Tensor
    val_targets: Tensor
    num_classes: int
    mean: Tensor
    """Mean of the training part before normalisation, one number per channel or feature."""
    std: Tensor
    """Standard deviation of the training part, likewise."""
    seed: int
    """Seed of the split (and of the points, if they are generated)."""

    @property
    def train_dataset(self) -> TensorDataset:
        """Training examples as (input, target) pairs."""
        return TensorDataset(self.train_inputs, self.train_targets)

    @property
    def val_dataset(self) -> TensorDataset:
        """Validation examples as (input, target) pairs."""
        return TensorDataset(self.val_inputs, self.val_targets)

    def loaders(self, batch_size: int = 64, *, seed: int = 0) -> tuple[DataLoader, DataLoader]:
        """A shuffled training loader with its own generator, and a validation loader in order.

        Args:
            batch_size: Examples per batch, in both loaders.
            seed: Seed of the shuffle; because the loader has its own generator, other random draws
                do not change the order.
        """
        if batch_size < 1:
            raise ValueError(
                f"batch_size = {batch_size}: a batch needs at least 1 example. Try 64."
            )
        generator = torch.Generator().manual_seed(seed)
        shuffled = DataLoader(
            self.train_dataset, batch_size=batch_size, shuffle=True, generator=generator
        )
        return shuffled, DataLoader(self.val_dataset, batch_size=batch_size)

    def to(self, device: torch.device | str) -> Data:
        """The same data with inputs and targets on `device`, and thus the loaders' batches too."""
        parts = ("train_inputs", "train_targets", "val_inputs", "val_targets")
        return replace(self, **{part: getattr(self, part).to(device) for part in parts})

    @property
    def identity(self) -> str:
        """Hash of every example of both parts, in order: runs with the same hash are comparable."""
        digest = hashlib.sha256()
        for tensor in (self.train_inputs, self.train_targets, self.val_inputs, self.val_targets):
            digest.update(f"{tuple(tensor.shape)}{tensor.dtype}".encode())
            digest.update(tensor.cpu().contiguous().numpy().tobytes())
        return digest.hexdigest()[:16]

    def __repr__(self) -> str:
        shape = " × ".join(str(size) for size in self.train_inputs.shape[1:])
        return (
            f"{self.name}: {len(self.train_targets):,} training and {len(self.val_targets):,} "
            f"validation examples of shape {shape}, {self.num_classes} classes"
        )


def load(
    name: str,
    *,
    val_share: float = 0.2,
    seed: int = 0,
    num_examples: int | None = None,
    noise: float = 0.1,
    download: bool = False,
) -> Data:
    """Load a data set, split it stratified by class, and normalise it by its training part.

    Args:
        name: `digits` (1,797 images of 8 × 8, comes with scikit-learn), `fashion-mnist` (60,000
            images of 28 × 28), `spirals` (three classes of points) or `moons` (two).
        val_share: Share of the examples kept for validation, in (0, 1).
        seed: Seed of the split, and of the points of `spirals` and `moons`.
        num_examples: Use only this many examples (drawn before the split); for points, generate
            this many.
        noise: Standard deviation of the points around their curve; nothing is added to images.
        download: Let torchvision download Fashion-MNIST if it is not found.

    Returns:
        Data with normalised inputs (float32) and targets (long).

    Raises:
        ValueError: The name is unknown, or the numbers leave a part without examples.
        DataNotFoundError: Fashion-MNIST is not on this machine; the message says how to get it.

    Source: Lecture 3, "Data"; ledger C16, F99, F100, T04, X25.
    """
    if name not in NAMES:
        raise ValueError(
            f"'{name}' is not a data set of the course. Choose from: {', '.join(NAMES)}."
        )
    if not 0 < val_share < 1:
        raise ValueError(
            f"val_share = {val_share}: expected the share kept for validation, between 0 and 1. "
            "Try 0.2."
        )
    if num_examples is not None and num_examples < 1:
        raise ValueError(f"num_examples = {num_examples}: at least 1 is needed; None takes all.")
    generator = torch.Generator().manual_seed(seed)
    if name == "digits":
        inputs, targets = _digits()
    elif name == "fashion-mnist":
        inputs, targets = _fashion_mnist(download)
    elif name == "spirals":
        inputs, targets = _spirals(num_examples or 600, noise, generator)
    else:
        inputs, targets = _moons(num_examples or 600, noise, generator)
    if num_examples is not None and num_examples < len(targets):
        chosen = torch.randperm(len(targets), generator=generator)[:num_examples]
        inputs, targets = inputs[chosen], targets[chosen]

    train, val = _split(targets, val_share, generator)
    mean, std = _mean_and_std(inputs[train])
    inputs = (inputs - mean) / std
    return Data(
        name=name,
        train_inputs=inputs[train],
        train_targets=targets[train],
        val_inputs=inputs[val],
        val_targets=targets[val],
        num_classes=int(targets.max()) + 1,
        mean=mean.flatten(),
        std=std.flatten(),
        seed=seed,
    )


def _split(targets: Tensor, val_share: float, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Indices of the training part, shuffled, and of the validation part, in order."""
    train, val = by_class(targets, val_share, generator)
    if not len(train) or not len(val):
        raise ValueError(
            f"{len(targets)} examples with val_share = {val_share} leave {len(train)} for "
            f"training and {len(val)} for validation. Take more examples or another share."
        )
    return train[torch.randperm(len(train), generator=generator)], val.sort().values


def _mean_and_std(inputs: Tensor) -> tuple[Tensor, Tensor]:
    """One mean and standard deviation a channel [1, C, 1, 1] or a feature [1, F]."""
    dims = (0, 2, 3) if inputs.ndim == 4 else (0,)
    std = inputs.std(dims, keepdim=True, correction=0)
    return inputs.mean(dims, keepdim=True), std.clamp_min(1e-6)


def raw_images(name: str) -> tuple[Tensor, Tensor]:
    """All images of `digits` or `fashion-mnist` as bytes [N, H, W], and labels [N], both uint8.

    Raises:
        ValueError: The name is a different one.
        DataNotFoundError: Fashion-MNIST is not on this machine.

    Source: Lecture 2, "Dtypes"; ledger F14.
    """
    if name == "digits":
        inputs, targets = _digits()
        return (255 * inputs[:, 0]).round().to(torch.uint8), targets.to(torch.uint8)
    if name == "fashion-mnist":
        return _fashion_mnist_bytes(download=False)
    raise ValueError(f"'{name}' has no images. Choose from: digits, fashion-mnist.")


def _digits() -> tuple[Tensor, Tensor]:
    rows = torch.tensor(_digits_rows(), dtype=torch.float32)
    images = rows[:, :-1].reshape(-1, 1, 8, 8) / 16  # pixels are 0 to 16
    return images, rows[:, -1].long()


DIGITS_FILE = "datasets/data/digits.csv.gz"
"""Where scikit-learn keeps them: 64 pixels and the digit a line."""


@cache
def _digits_rows() -> NDArray[np.float64]:
    """scikit-learn's file, read without importing scikit-learn, which takes 30 times as long; once,
    since to read the text takes longer than what many an exercise does with it."""
    file = Path(find_spec("sklearn").origin).parent / DIGITS_FILE
    if file.exists():
        rows = np.loadtxt(file, delimiter=",")
        rows.flags.writeable = False  # who reads them next is given the same ones
        return rows
    from sklearn.datasets import load_digits

    digits = load_digits()
    return np.column_stack([digits.data, digits.target])


def _spirals(num: int, noise: float, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Three arms of points that wind 1.5 turns around the origin."""
    targets = torch.arange(num) % 3
    radius = 0.05 + 0.95 * torch.rand(num, generator=generator)
    angle = 3 * math.pi * radius + targets * 2 * math.pi / 3
    points = torch.stack([radius * angle.cos(), radius * angle.sin()], dim=1)
    return points + noise / 3 * torch.randn(num, 2, generator=generator), targets


def _moons(num: int, noise: float, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Two interleaving half circles."""
    targets = torch.arange(num) % 2
    angle = math.pi * torch.rand(num, generator=generator)
    upper = torch.stack([angle.cos(), angle.sin()], dim=1)
    lower = torch.stack([1 - angle.cos(), 0.5 - angle.sin()], dim=1)
    points = torch.where(targets[:, None] == 0, upper, lower)
    return points + noise * torch.randn(num, 2, generator=generator), targets


def _fashion_mnist(download: bool) -> tuple[Tensor, Tensor]:
    """The 60,000 training images; the 10,000 test images stay untouched, for a final test (B41)."""
    images, labels = _fashion_mnist_bytes(download)
    return images.unsqueeze(1).float() / 255, labels.long()


def _fashion_mnist_bytes(download: bool) -> tuple[Tensor, Tensor]:
    """The same as they lie on the disk."""
    folder = find_fashion_mnist()
    if folder is None and download:
        from torchvision.datasets import FashionMNIST

        root = Path(os.environ.get("COURSE_DATA", Path.home() / ".cache" / "course-data"))
        FashionMNIST(str(root), download=True)
        folder = root / "FashionMNIST" / "raw"
    if folder is None:
        raise DataNotFoundError(
            "Fashion-MNIST is not on this machine. Either install Debian's package "
            "(apt install dataset-fashion-mnist), or set COURSE_DATA to a folder with its four "
            "*-ubyte.gz files, or call load('fashion-mnist', download=True). "
            "load('digits') needs no files."
        )
    images = _read_idx(folder, "train-images-idx3-ubyte")
    labels = _read_idx(folder, "train-labels-idx1-ubyte")
    if len(images) != len(labels):
        raise ValueError(
            f"{folder}: {len(images)} images, {len(labels)} labels; download it again."
        )
    return images, labels


def find_fashion_mnist() -> Path | None:
    """Folder of the Fashion-MNIST files: under `COURSE_DATA`, Debian's, or where we download to."""
    roots = [Path(os.environ["COURSE_DATA"])] if os.environ.get("COURSE_DATA") else []
    roots += [DEBIAN_FASHION_MNIST, Path.home() / ".cache" / "course-data"]
    for root in roots:
        for folder in (root, root / "fashion-mnist", root / "FashionMNIST" / "raw"):
            if any(folder.glob("train-images-idx3-ubyte*")):
                return folder
    return None


def _read_idx(folder: Path, stem: str) -> Tensor:
    """An IDX file of unsigned bytes, gzipped or not, as a uint8 tensor of its own shape."""
    path = next((p for p in (folder / f"{stem}.gz", folder / stem) if p.exists()), None)
    if path is None:
        raise DataNotFoundError(f"{folder} has no {stem}.gz; it must hold all four files.")
    try:
        raw = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
        zeros, kind, ndim = struct.unpack_from(">HBB", raw)
        shape = struct.unpack_from(f">{ndim}I", raw, 4)
        if (zeros, kind) != (0, 8):
            raise ValueError("the first bytes are not those of an IDX file of unsigned bytes")
        values = np.frombuffer(raw, np.uint8, count=math.prod(shape), offset=4 + 4 * ndim)
    except (OSError, EOFError, ValueError, struct.error) as fault:
        raise ValueError(
            f"{path} cannot be read ({fault}). Delete it and download it again."
        ) from fault
    return torch.from_numpy(values.copy()).view(shape)
