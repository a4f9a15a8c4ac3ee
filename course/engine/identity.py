"""Identity: what a run was computed from and with, so that two runs can be distinguished.

The commit, the machine, the versions, and a hash of every example in its order: two splits of the
same data have two hashes.

Source: Lecture 3, "Reproducibility in five layers"; ledger C37.
"""

from __future__ import annotations

import hashlib
import platform
import subprocess
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Subset, TensorDataset

from course.engine.distributed import num_ranks
from course.state import nested

PLAIN = (bool, int, float, str, type(None))
MOST_PARTS = 20_000
"""Longer lists of examples would take seconds."""
OID = "# branch.oid "
"""What git writes before the commit."""


def code_identity() -> dict[str, Any]:
    """The commit of the working directory, and whether it has uncommitted changes."""
    words = ["git", "status", "--porcelain=v2", "--branch", "--untracked-files=no"]
    try:
        done = subprocess.run(words, capture_output=True, text=True, timeout=10)
    except (OSError, subprocess.TimeoutExpired):
        return {"commit": None, "dirty": None}
    if done.returncode:
        return {"commit": None, "dirty": None}
    lines = done.stdout.splitlines()  # headers begin with #; branch.oid (initial): no commit yet
    named = [line.removeprefix(OID) for line in lines if line.startswith(OID)]
    commit = next((name for name in named if name != "(initial)"), None)
    return {"commit": commit, "dirty": any(not line.startswith("#") for line in lines)}


def hardware(device: torch.device) -> dict[str, Any]:
    """What computes."""
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else platform.machine()
    return {
        "device": device.type,
        "name": name,
        "num_processes": num_ranks(),
        "num_threads": torch.get_num_threads(),
    }


def versions() -> dict[str, str]:
    """The versions of the software used for the run."""
    return {
        "python": platform.python_version(),
        "torch": str(torch.__version__),
        "numpy": np.__version__,
        "cuda": str(torch.version.cuda),
    }


def data_identity(loader: Any) -> dict[str, Any] | None:
    """Number of examples, and a hash of every example in its order: the data and the split.

    Works for tensors, lists of batches, subsets, and data sets with `data` and `targets`; any other
    may define an attribute `identity`. Without one the hash is None.
    """
    if loader is None:
        return None
    source = getattr(loader, "dataset", loader)
    digest = hashlib.sha256()
    known = _feed(source, digest)
    size = len(source) if hasattr(source, "__len__") else None
    if source is loader and isinstance(loader, (list, tuple)):
        size = sum(nested.num_examples(batch) or 1 for batch in loader)
    if hasattr(loader, "inputs"):
        size = len(loader.inputs)
    indices = getattr(getattr(loader, "sampler", None), "indices", None)
    if indices is not None:  # SubsetRandomSampler: which of them are taken is the split
        size = len(indices)
        digest.update(repr([int(index) for index in indices]).encode())
    return {"num_examples": size, "hash": digest.hexdigest()[:16] if known else None}


def _feed(source: Any, digest: Any) -> bool:
    """Put the examples of `source` into the hash; False where it is not known how."""
    if isinstance(identity := getattr(source, "identity", None), str):
        digest.update(identity.encode())
    elif isinstance(source, Tensor) and source.layout is not torch.strided:
        if source.layout is torch.sparse_coo:
            source = source.coalesce()
            return all(_feed(part, digest) for part in (source.indices(), source.values()))
        return False
    elif isinstance(source, Tensor):
        digest.update(f"{tuple(source.shape)}{source.dtype}".encode())
        digest.update(source.detach().cpu().contiguous().flatten().view(torch.uint8).numpy())
    elif isinstance(source, np.ndarray):
        digest.update(f"{source.shape}{source.dtype}".encode() + source.tobytes())
    elif isinstance(source, TensorDataset):
        return all(_feed(tensor, digest) for tensor in source.tensors)
    elif isinstance(source, Subset):
        digest.update(repr([int(index) for index in source.indices]).encode())
        return _feed(source.dataset, digest)
    elif isinstance(source, (list, tuple, Mapping)):
        return _feed_parts(source, digest)
    elif hasattr(source, "inputs") and hasattr(source, "targets"):
        return _feed(source.inputs, digest) and _feed(source.targets, digest)
    elif hasattr(source, "data") and hasattr(source, "targets"):
        return _feed(source.data, digest) and _feed(torch.as_tensor(source.targets), digest)
    elif hasattr(source, "dataset"):
        return _feed(source.dataset, digest)
    else:
        return False
    return True


def _feed_parts(source: Any, digest: Any) -> bool:
    """Put a list of batches, or one of them, into the hash; numbers alone say nothing."""
    parts = list(source.values()) if isinstance(source, Mapping) else list(source)
    plain = [part if isinstance(part, PLAIN) else None for part in parts]
    digest.update(repr([list(source) if isinstance(source, Mapping) else None, plain]).encode())
    inner = [part for part in parts if not isinstance(part, PLAIN)]
    return 0 < len(inner) <= MOST_PARTS and all(_feed(part, digest) for part in inner)
