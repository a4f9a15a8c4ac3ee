"""Shared by the experiments: points on spirals, a small network, a short loop, and three meters.

The meters: `LiveBytes` counts the bytes of every living tensor, `saved_bytes` counts those that
autograd keeps for backward, and `interleaved` times two pieces of code in turn, so that a busy
machine slows both.
"""

from __future__ import annotations

import itertools
import math
import statistics
import time
import warnings
import weakref
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from course.analysis.timing import time_in_turn, waiter

CPU = torch.device("cpu")


# --- data and a network --------------------------------------------------------------------------


@lru_cache
def spirals(seed: int, num: int = 480, num_val: int = 120) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Three arms of points: training inputs [N, 2] and targets [N], then the same for validation.

    The arms are less wound than those of `course.data` (4.5 radians instead of 1.5 turns), so that
    a small network learns them within a second.
    """
    generator = torch.Generator().manual_seed(seed)
    targets = torch.randint(0, 3, (num + num_val,), generator=generator)
    radius = 0.05 + 0.95 * torch.rand(num + num_val, generator=generator)
    angle = 4.5 * radius + targets * 2 * math.pi / 3
    angle += 0.2 * torch.randn(num + num_val, generator=generator)
    points = torch.stack([radius * angle.cos(), radius * angle.sin()], dim=1)
    return points[:num], targets[:num], points[num:], targets[num:]


@lru_cache
def digits(seed: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Handwritten digits, normalised: training inputs [N, 64] and targets, then validation."""
    from course.data import load

    data = load("digits", seed=seed)
    flat = data.train_inputs.flatten(1), data.val_inputs.flatten(1)
    return flat[0], data.train_targets, flat[1], data.val_targets


def mlp(*sizes: int, dropout: float = 0.0, seed: int | None = None) -> nn.Sequential:
    """Linear layers of these sizes with ReLU (and dropout) between; 2-64-64-3 by default."""
    if seed is not None:
        torch.manual_seed(seed)
    sizes = sizes or (2, 64, 64, 3)
    layers: list[nn.Module] = []
    for index, (fan_in, fan_out) in enumerate(itertools.pairwise(sizes)):
        if index:
            layers += [nn.ReLU()] + ([nn.Dropout(dropout)] if dropout else [])
        layers.append(nn.Linear(fan_in, fan_out))
    return nn.Sequential(*layers)


@dataclass(frozen=True, kw_only=True)
class Recorded:
    """The record of a short training run."""

    losses: list[float]
    """Loss of every step's batch."""
    norms: list[float]
    """Joint gradient norm at every step."""

    @property
    def finite(self) -> bool:
        """Whether every loss was a finite number."""
        return all(math.isfinite(loss) for loss in self.losses)


def fit(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    inputs: Tensor,
    targets: Tensor,
    *,
    steps: int,
    batch_size: int = 32,
    watch: Callable[[int], bool] | None = None,
) -> Recorded:
    """Train for `steps` updates; `watch(step)` is called after each and may return True to stop."""
    losses, norms = [], []
    batches = cycle_batches(len(targets), batch_size)
    for step, rows in zip(range(steps), batches, strict=False):
        loss = F.cross_entropy(model(inputs[rows]), targets[rows])
        optimizer.zero_grad()
        loss.backward()
        norms.append(grad_norm(model))
        optimizer.step()
        losses.append(loss.item())
        if not math.isfinite(losses[-1]) or (watch is not None and watch(step)):
            break
    return Recorded(losses=losses, norms=norms)


def cycle_batches(num: int, batch_size: int, *, shuffle: bool = True) -> Iterator[Tensor]:
    """Indices of one batch after the other, epoch after epoch."""
    while True:
        order = torch.randperm(num) if shuffle else torch.arange(num)
        yield from order.split(batch_size)


@torch.no_grad()
def accuracy(model: nn.Module, inputs: Tensor, targets: Tensor) -> float:
    """Accuracy in eval mode; the model's own mode is restored."""
    was_training = model.training
    model.eval()
    right = (model(inputs).argmax(1) == targets).float().mean().item()
    model.train(was_training)
    return right


@torch.no_grad()
def full_loss(model: nn.Module, inputs: Tensor, targets: Tensor) -> float:
    """Mean cross-entropy over all examples, in the mode the model is in."""
    return F.cross_entropy(model(inputs), targets).item()


# --- numbers of models ---------------------------------------------------------------------------


def grad_norm(model: nn.Module) -> float:
    """Joint L2 norm of all gradients that are not None."""
    grads = [p.grad for p in model.parameters() if p.grad is not None]
    return torch.stack([g.norm() for g in grads]).norm().item() if grads else 0.0


def flat(tensors: nn.Module | Iterable[Tensor]) -> Tensor:
    """All parameters (or the tensors given) as one detached float64 vector, copied."""
    tensors = tensors.parameters() if isinstance(tensors, nn.Module) else tensors
    return torch.cat([t.detach().double().flatten() for t in tensors]).clone()


def flat_grad(model: nn.Module) -> Tensor:
    """All gradients as one float64 vector."""
    return flat(p.grad for p in model.parameters())


def relative(a: Tensor, b: Tensor) -> float:
    """‖a − b‖ / ‖b‖."""
    return ((a - b).norm() / b.norm()).item()


# --- what raises and what warns ------------------------------------------------------------------


def error_of(call: Callable[..., Any], *args: Any, **kwargs: Any) -> str:
    """Name of the exception that `call` raises; empty if it passes."""
    try:
        call(*args, **kwargs)
    except Exception as fault:
        return type(fault).__name__
    return ""


def warnings_of(call: Callable[..., Any], *args: Any, **kwargs: Any) -> list[str]:
    """First line of every warning that `call` gives."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        call(*args, **kwargs)
    return [str(one.message).strip().splitlines()[0] for one in caught]


# --- meters --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Ratio:
    """Ratios of the time of one piece of code to another's, one per round."""

    median: float
    low: float
    """First quartile."""
    high: float
    """Third quartile."""

    def as_list(self) -> list[float]:
        """[first quartile, median, third quartile], rounded for tables."""
        return [round(value, 3) for value in (self.low, self.median, self.high)]


def interleaved(
    first: Callable[[], Any],
    second: Callable[[], Any],
    *,
    rounds: int = 15,
    warmup: int = 1,
    device: torch.device = CPU,
) -> Ratio:
    """Time of `first` over time of `second`, measured alternately: ABAB..., never A...AB...B.

    On the CPU it is this process's own processor time, which other processes disturb less.
    """
    timed = time_in_turn(
        {"first": first, "second": second},
        warmup=warmup,
        repeats=rounds,
        synchronize=waiter(device),
        clock=time.process_time if device.type == "cpu" else time.perf_counter,
    )
    pairs = zip(timed["first"].times, timed["second"].times, strict=True)
    ratios = [one / max(other, 1e-9) for one, other in pairs]
    low, median, high = statistics.quantiles(ratios, n=4)
    return Ratio(median, low, high)


class LiveBytes(TorchDispatchMode):
    """Counts the bytes of tensors that were made inside the block and are still alive.

    with LiveBytes() as live:
        train()
    live.peak, live.now
    """

    def __init__(self) -> None:
        super().__init__()
        self.now = 0
        self.peak = 0
        self._known: weakref.WeakValueDictionary[int, Any] = weakref.WeakValueDictionary()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        given = {id(t.untyped_storage()) for t in tree_leaves((args, kwargs)) if _is_tensor(t)}
        for tensor in tree_leaves(result):
            if _is_tensor(tensor) and id(tensor.untyped_storage()) not in given:
                self._count(tensor.untyped_storage())
        return result

    def _count(self, storage: torch.UntypedStorage) -> None:
        if self._known.get(id(storage)) is storage:
            return  # a view of something already counted
        size = storage.nbytes()
        self._known[id(storage)] = storage
        self.now += size
        self.peak = max(self.peak, self.now)
        weakref.finalize(storage, self._forget, size)

    def _forget(self, size: int) -> None:
        self.now -= size


def _is_tensor(leaf: Any) -> bool:
    return isinstance(leaf, Tensor)


def peak_bytes(call: Callable[[], Any], device: torch.device = CPU) -> int:
    """Peak of the bytes that `call` added: from the allocator on CUDA, counted on the CPU."""
    if device.type == "cuda":
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        call()
        torch.cuda.synchronize()
        return torch.cuda.max_memory_allocated() - before
    with LiveBytes() as live:
        call()
    return live.peak


def saved_bytes(call: Callable[[], Any], *, without: Iterable[Tensor] = ()) -> int:
    """Bytes of the distinct tensors that autograd saves for backward while `call` runs."""
    skipped = {tensor.untyped_storage().data_ptr() for tensor in without}
    sizes: dict[int, int] = {}
    kept = []  # or an address could be used twice

    def pack(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in skipped:
            sizes[storage.data_ptr()] = storage.nbytes()
            kept.append(tensor)
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        call()
    return sum(sizes.values())


def graph_nodes(tensor: Tensor) -> int:
    """Number of autograd nodes reachable from a tensor."""
    seen, queue = set(), [tensor.grad_fn]
    while queue:
        node = queue.pop()
        if node is not None and node not in seen:
            seen.add(node)
            queue += [parent for parent, _ in node.next_functions]
    return len(seen)
