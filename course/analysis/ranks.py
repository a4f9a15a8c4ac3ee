"""One training step on several ranks, simulated in one process or run in several.

Each rank runs forward and backward on its own share of the batch, and DistributedDataParallel takes
the plain mean of the ranks' gradients. That is the joined batch's gradient only if every rank
averages over equally many examples, and if no layer depends on the whole batch: BatchNorm sees only
its own rank's examples.

Source: Training-loop chapter, c2; engineering module, §5; ledger N52, T30, F88.
"""

from __future__ import annotations

import copy
import math
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

ROOT = Path(__file__).parents[2]
TIMEOUT_S = 90
"""Timeout: two interpreters that import torch on a busy machine take some ten seconds."""
Batch = tuple[Tensor, Tensor]


@dataclass(frozen=True, kw_only=True)
class RankStep:
    """What one rank has after forward and backward on its share."""

    count: int
    """Examples in its share."""
    loss: float
    """Their mean loss."""
    grads: dict[str, Tensor]
    """Gradients of its own share; in a real step, those after the exchange."""
    buffers: dict[str, Tensor]
    """For example the running statistics of BatchNorm."""


def shares(batch: Batch, sizes: Sequence[int]) -> list[Batch]:
    """The batch cut into one share per rank.

    Raises:
        ValueError: The sizes do not add up to the batch size.
    """
    inputs, targets = batch
    if sum(sizes) != len(targets):
        raise ValueError(f"shares of {list(sizes)} examples, but the batch holds {len(targets)}.")
    return list(zip(inputs.split(list(sizes)), targets.split(list(sizes)), strict=True))


def play_ranks(
    model: nn.Module, criterion: Callable[[Tensor, Tensor], Tensor], batches: Sequence[Batch]
) -> list[RankStep]:
    """Each rank's step on its own copy of the model, one after another, without any exchange."""
    return [_step(copy.deepcopy(model), criterion, batch) for batch in batches]


def _step(
    model: nn.Module, criterion: Callable[[Tensor, Tensor], Tensor], batch: Batch
) -> RankStep:
    model.zero_grad()
    inputs, targets = batch
    loss = criterion(model(inputs), targets)
    loss.backward()
    plain = model.module if isinstance(model, DistributedDataParallel) else model
    return RankStep(
        count=len(targets),
        loss=loss.item(),
        grads={name: p.grad.clone() for name, p in plain.named_parameters() if p.grad is not None},
        buffers={name: buffer.clone() for name, buffer in plain.named_buffers()},
    )


def mean_gradient(steps: Sequence[RankStep], *, by_count: bool = False) -> dict[str, Tensor]:
    """The mean of the ranks' gradients: plain, as under DistributedDataParallel, or by examples."""
    total = sum(step.count for step in steps)
    weights = [step.count / total if by_count else 1 / len(steps) for step in steps]
    return {
        name: sum(w * step.grads[name] for w, step in zip(weights, steps, strict=True))
        for name in steps[0].grads
    }


def joined(reports: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Combine the ranks' results into what one process would have on the whole batch.

    Args:
        reports: For each rank `count`, its number of examples; `loss`, their mean; `correct`, how
            many are right; `grads`, the gradient of the mean by name, or None if none arrived. A
            rank without examples has nan for its means; at least one rank has examples.

    Returns:
        `loss`, `accuracy` and `grads` of the mean over all examples; a gradient is None if it is
        None on every rank that has examples.
    """
    used = [report for report in reports if report["count"]]
    total = sum(report["count"] for report in used)
    grads: dict[str, Tensor | None] = dict.fromkeys(reports[0]["grads"])
    for report in used:
        for name, grad in report["grads"].items():
            if grad is not None:
                part = grad * (report["count"] / total)
                grads[name] = part if grads[name] is None else grads[name] + part
    return {
        "loss": math.fsum(report["count"] * report["loss"] for report in used) / total,
        "accuracy": sum(report["correct"] for report in used) / total,
        "grads": grads,
    }


def gap(gradient: dict[str, Tensor], expected: dict[str, Tensor]) -> float:
    """‖gradient − expected‖ / ‖expected‖ over all parameters."""
    mine, theirs = (
        torch.cat([grads[name].flatten() for name in expected]) for grads in (gradient, expected)
    )
    return ((mine - theirs).norm() / theirs.norm()).item()


def run_ranks(
    model: nn.Module, criterion: Callable[[Tensor, Tensor], Tensor], batches: Sequence[Batch]
) -> list[RankStep]:
    """The same step with one process per rank, under DistributedDataParallel, on the CPU.

    Raises:
        RuntimeError: Processes, or connections between them, are not allowed here; or a rank
        failed. The message ends with its last output.
    """
    with tempfile.TemporaryDirectory() as folder:
        torch.save((model, criterion, list(batches)), Path(folder) / "job.pt")
        started = []
        try:
            for rank in range(len(batches)):
                started.append(_start(folder, rank, len(batches)))
            said = [process.communicate(timeout=TIMEOUT_S)[1] for process in started]
        except (OSError, subprocess.TimeoutExpired) as fault:
            raise RuntimeError(f"{len(batches)} processes could not connect: {fault}") from None
        finally:
            for process in started:
                process.kill()
                process.wait()
        for rank, (process, text) in enumerate(zip(started, said, strict=True)):
            if process.returncode or not (Path(folder) / f"{rank}.pt").is_file():
                last = (text.strip().splitlines() or ["nothing"])[-1]
                raise RuntimeError(f"rank {rank} of {len(batches)} failed: {last}")
        read = [Path(folder) / f"{rank}.pt" for rank in range(len(batches))]
        return [RankStep(**torch.load(path, weights_only=True)) for path in read]


def _start(folder: str, rank: int, num_ranks: int) -> subprocess.Popen:
    """Start one rank in its own interpreter."""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path]),
                                "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}  # fmt: skip
    command = [sys.executable, "-m", "course.analysis.ranks", folder, str(rank), str(num_ranks)]
    return subprocess.Popen(
        command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )


def _be_rank(folder: Path, rank: int, num_ranks: int) -> None:
    """The process of a rank: meet the others at a file, step, write the results."""
    import torch.distributed as dist

    meeting = f"file://{folder / 'meeting'}"
    dist.init_process_group("gloo", init_method=meeting, rank=rank, world_size=num_ranks)
    try:
        job = torch.load(folder / "job.pt", weights_only=False)  # written by run_ranks, just now
        model, criterion, batches = job
        shared = DistributedDataParallel(model)
        torch.save(vars(_step(shared, criterion, batches[rank])), folder / f"{rank}.pt")
        dist.barrier()  # a rank that exits early closes its connections to the others
    finally:
        dist.destroy_process_group()


if __name__ == "__main__":
    _be_rank(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
