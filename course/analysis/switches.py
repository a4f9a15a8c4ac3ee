"""Three switches of a training loop: train or eval mode, graph or no graph, step or no step.

    for row in four_combinations(model, inputs, targets): print(row)

Each of the four combinations of mode and graph is tried on copies of the model, so that the effects
of the two switches are not confused. The third switch is the update: it needs a graph, but no mode
forbids it.

Source: Lecture 3, "Practice problems", P5; engineering module, §2; annotated-loop essay,
"Validation"; ledger X07, X63, T06, F24, F25.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from course.state import undisturbed


@dataclass(frozen=True, kw_only=True)
class Combination:
    """The effect of two forward passes and an attempted update under one setting of switches."""

    mode: str
    """`train` or `eval`."""
    grad: bool
    """Whether a graph was recorded."""
    same_twice: bool
    """Whether two passes over the same inputs gave the same logits."""
    moved: tuple[str, ...]
    """Buffers that a forward pass changed, e.g. BatchNorm's running mean."""
    saved_bytes: int
    """Bytes that one pass keeps for a later backward()."""
    can_step: bool
    """Whether backward() and one step of SGD moved the weights."""

    def __str__(self) -> str:
        return (
            f"{self.mode:5}  {'graph' if self.grad else 'no_grad':7}  "
            f"same twice: {_yes(self.same_twice)}  buffers moved: {len(self.moved)}  "
            f"kept: {self.saved_bytes:6,} bytes  a step moves weights: {_yes(self.can_step)}"
        )


def four_combinations(model: nn.Module, inputs: Tensor, targets: Tensor) -> list[Combination]:
    """Every combination of mode and graph, in the order train, eval; graph first.

    Args:
        model: Returns logits [B, C]; it is not changed.
        inputs: [B, ...].
        targets: Class indices [B].
    """
    return [
        _tried(copy.deepcopy(model).train(mode == "train"), grad, inputs, targets)
        for mode in ("train", "eval")
        for grad in (True, False)
    ]


def _tried(model: nn.Module, grad: bool, inputs: Tensor, targets: Tensor) -> Combination:
    before = {name: buffer.clone() for name, buffer in model.named_buffers()}
    with undisturbed(), torch.set_grad_enabled(grad):
        torch.manual_seed(0)
        first, saved = _pass(model, inputs)
        moved = tuple(n for n, b in model.named_buffers() if not torch.equal(b, before[n]))
        second = model(inputs)
        loss = F.cross_entropy(second, targets)
    return Combination(
        mode="train" if model.training else "eval",
        grad=grad,
        same_twice=torch.equal(first, second),
        moved=moved,
        saved_bytes=saved,
        can_step=loss.requires_grad and _steps(model, loss),
    )


def _pass(model: nn.Module, inputs: Tensor) -> tuple[Tensor, int]:
    """Logits, and the bytes that autograd saves for backward, without weights and inputs."""
    known = {t.untyped_storage().data_ptr() for t in (inputs, *_owned(model))}
    saved: dict[int, Tensor] = {}

    def pack(tensor: Tensor) -> Tensor:
        if tensor.untyped_storage().data_ptr() not in known:
            saved[tensor.untyped_storage().data_ptr()] = tensor  # kept: no address is reused
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        logits = model(inputs)
    return logits.detach(), sum(tensor.untyped_storage().nbytes() for tensor in saved.values())


def _owned(model: nn.Module) -> Sequence[Tensor]:
    return [*model.parameters(), *model.buffers()]


def _steps(model: nn.Module, loss: Tensor) -> bool:
    before = [parameter.detach().clone() for parameter in model.parameters()]
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    pairs = zip(before, model.parameters(), strict=True)
    return any(not torch.equal(old, new) for old, new in pairs)


def _yes(value: bool) -> str:
    return "yes" if value else "no"
