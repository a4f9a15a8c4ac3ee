"""Seeding: one number behind every random draw, and what it does not reach.

`seed_everything` sets the global generators of Python, NumPy and torch (all devices). It does not
reach a `numpy.random.default_rng` that some object holds (F103), nor a model that was built before
it was called (F102). A loader should hold a generator of its own, since the order of a shared one
depends on every earlier draw (F86).

Source: Lecture 3, "Reproducibility in five layers"; ledger C14, C15, F94, F95, F102-F104.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch

from course.whole import check_seed


def seed_everything(seed: int, *, deterministic: bool = False) -> torch.Generator:
    """Seed Python, NumPy and torch, and return a fresh CPU generator with the same seed.

    Args:
        seed: 0 to 2**32 - 1, the range that NumPy takes.
        deterministic: Also ask torch for deterministic kernels only; an operation that has none
            then raises. Slower on a GPU; on CPU the draws alone decide (F104).

    Returns:
        A generator to hand to a `DataLoader` or a split.

    Raises:
        ValueError: The seed is another number, or none; nothing is seeded.
    """
    seed = check_seed(seed)
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)  # CPU and every accelerator
    if deterministic:
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
        torch.backends.cudnn.benchmark = False
    if deterministic or torch.are_deterministic_algorithms_enabled():  # which loads the compiler
        torch.use_deterministic_algorithms(deterministic)
    return torch.Generator().manual_seed(seed)


@contextmanager
def undisturbed(device: torch.device | None = None) -> Iterator[None]:
    """Whatever is drawn inside, every global generator is afterwards where it was before.

    An unshuffled validation pass draws a number too: measuring must not change the run (F86).
    """
    rewind = global_rewinder(device)
    try:
        yield
    finally:
        rewind()


def global_rewinder(device: torch.device | None = None) -> Callable[[], None]:
    """A function that puts every global generator back where it stands now; call it at any time.

    Args:
        device: The accelerator in use; None means all those that have been used.
    """
    cpu, numpys, pythons = torch.get_rng_state(), np.random.get_state(), random.getstate()
    used = _accelerators_in_use() if device is None else [device]
    states = [(one, _generator_of(one).get_rng_state(one)) for one in used if one.type != "cpu"]

    def rewind() -> None:
        torch.set_rng_state(cpu)
        np.random.set_state(numpys)
        random.setstate(pythons)
        for one, state in states:
            _generator_of(one).set_rng_state(state, one)

    return rewind


def _generator_of(device: torch.device) -> Any:
    """The module that keeps a device's random state, e.g. `torch.cuda`."""
    return torch.get_device_module(device)


def _accelerators_in_use() -> list[torch.device]:
    """Every accelerator that has been used; asking one that has not would start it."""
    kind = torch.accelerator.current_accelerator()  # of this build of torch, if not of the machine
    if kind is None or not getattr(_generator_of(kind), "is_initialized", lambda: True)():
        return []  # to ask the machine takes long, each time
    if torch.accelerator.current_accelerator(check_available=True) is None:
        return []
    return [torch.device(kind.type, i) for i in range(torch.accelerator.device_count())]


def rng_state(device: torch.device | None = None) -> dict[str, Any]:
    """The state of every global generator, as tensors and plain numbers that a checkpoint may hold.

    Args:
        device: The accelerator in use; its generator is included.
    """
    version, keys, gauss = random.getstate()
    name, np_keys, position, has_gauss, cached = np.random.get_state()
    state = {
        "torch": torch.get_rng_state(),
        "python": {"version": version, "keys": torch.tensor(keys), "gauss": gauss},
        "numpy": {
            "name": name,
            "keys": torch.from_numpy(np_keys.astype(np.int64)),
            "position": int(position),
            "has_gauss": int(has_gauss),
            "gauss": float(cached),
        },
    }
    if device is not None and device.type != "cpu":
        state[device.type] = _generator_of(device).get_rng_state(device)
    return state


def set_rng_state(state: dict[str, Any], device: torch.device | None = None) -> None:
    """Put every global generator back into a state that `rng_state` gave."""
    torch.set_rng_state(state["torch"].cpu())  # map_location may have moved it (F109)
    python = state["python"]
    keys = torch.as_tensor(python["keys"]).tolist()  # a list in checkpoints of earlier versions
    random.setstate((python["version"], tuple(keys), python["gauss"]))
    numpy = state["numpy"]
    keys = numpy["keys"].numpy().astype(np.uint32)
    np.random.set_state(
        (numpy["name"], keys, numpy["position"], numpy["has_gauss"], numpy["gauss"])
    )
    if device is not None and device.type in state:
        _generator_of(device).set_rng_state(state[device.type].cpu(), device)
