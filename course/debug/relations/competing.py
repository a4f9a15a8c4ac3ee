"""Relations on a softmax in the loss: it runs over classes, not over the examples of a batch."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from course.debug.probes.functions import LOSSES
from course.debug.probes.report import Finding
from course.debug.probes.session import NotChecked, Session
from course.debug.probes.thresholds import ROUNDED
from course.debug.relations.program import program_of
from course.state.nested import num_examples, tensors_in

SHARED = {F.softmax, torch.softmax, Tensor.softmax}
SOFTMAX = {
    *SHARED, F.log_softmax, torch.log_softmax, Tensor.log_softmax, F.gumbel_softmax,
    torch.logsumexp, Tensor.logsumexp,
}  # fmt: skip
MEETING = {F.kl_div, F.cross_entropy, torch.mul, Tensor.mul, Tensor.__mul__}
"""Functions that compare logarithms of shares with shares, or weigh these by those."""
IMPLIED = {0: 0, 1: 0, 3: 0}
"""The axis that a softmax without one takes, by the number of axes; of others it is the second."""
LEAST_ROWS = 2
"""Examples of a batch from which they can compete."""


def for_a_place(session: Session) -> Iterator[Finding]:
    """Outputs [B, C, ...] next to classes [B, ...] are made shares over C, not over B.

    Only where nothing else is made of the outputs: a term over the rows next to one over the
    classes, e.g. one that keeps classes in balance, is meant.
    """
    program = program_of(session)
    batch = program.batches[0]
    rows = num_examples(batch)
    labels = [t for t in tensors_in(batch) if t.dim() > 1 and not t.is_floating_point()
              and t.dtype != torch.bool]  # fmt: skip
    if not labels or rows is None or rows < LEAST_ROWS:
        raise NotChecked("a batch has no classes [B, ...] of several places")
    mode = _Softmax(program.model)
    step = program.step(batch, within=mode, prepare=mode.listen)
    if len(step.calls) != 1:
        raise NotChecked("a step does not call the model once")
    met = [(t, axes) for t, axes in mode.seen if any(_are_classes(y, t, rows) for y in labels)]
    for output, axes in met:
        if axes == {0}:
            yield Finding(
                "rows-mixed", "error",
                f"The loss takes the softmax of outputs {list(output.shape)} along their first "
                f"axis, the {rows} examples of the batch: at each place examples compete for a "
                f"class, and not the {output.shape[1]} classes for a place.",
                {"rows": rows, "classes": output.shape[1]},
                "shares = logits.softmax(dim=1)  # over the classes of [B, C, ...]",
            )  # fmt: skip
            return
    if not met:
        raise NotChecked("no softmax of outputs [B, C, ...] next to classes [B, ...]")


def of_a_teacher(session: Session) -> Iterator[Finding]:
    """Shares [B, C] that a model's are to come near are shares of C, as its own are, not of B.

    In a table over pairs of rows both may be meant.
    """
    program = program_of(session)
    if not program.first().calls_any(SHARED):
        raise NotChecked("a step takes no softmax")
    mode = _Shares()
    program.step(program.batches[0], within=mode)
    met = [(rows, classes) for rows, classes in mode.met if rows != classes]
    if met:
        rows, classes = met[0]
        yield Finding(
            "rows-mixed", "error",
            f"The loss compares shares of the {classes} classes with targets {[rows, classes]} "
            f"that a softmax made along their first axis, the {rows} examples of the batch: what "
            "an example is to learn depends on the others, and its targets do not add up to 1.",
            {"rows": rows, "classes": classes},
            "soft = (teacher(inputs) / T).softmax(dim=1)  # over the classes",
        )  # fmt: skip


def _are_classes(labels: Tensor, output: Tensor, rows: int) -> bool:
    """One of C numbers for each row and place of [B, C, ...]. With one place for each row a softmax
    over the rows may be meant, e.g. to use all clusters alike."""
    shape = output.shape
    if len(shape) < 3 or shape[0] != rows or shape[1] < 2 or labels.shape != (rows, *shape[2:]):
        return False
    return labels.numel() > 0 and int(labels.max()) < shape[1]


class _Softmax(TorchFunctionMode):
    """Outputs of the model of which a softmax is taken, with all axes along which it is; losses of
    torch's count as the second."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model
        self.seen: list[tuple[Tensor, set[int]]] = []

    def listen(self) -> None:
        """Note what the model gives; the hook is taken off where the step is put back."""
        self.model.register_forward_hook(
            lambda _, args, output: self.seen.extend(
                (t, set()) for t in tensors_in(output) if t.is_floating_point() and t.dim() > 1
            )
        )

    def __torch_function__(self, function: Any, kinds: Any, args: Any = (), kwargs: Any = None):
        kwargs = kwargs or {}
        if function in SOFTMAX or function in LOSSES:
            first = args[0] if args else kwargs.get("input")
            for output, axes in self.seen:
                if first is output:
                    axes.add(_axis(function, first, args, kwargs))
        return function(*args, **kwargs)


class _Shares(TorchFunctionMode):
    """Fixed shares along the first axis that meet logarithms of shares along the second."""

    def __init__(self) -> None:
        super().__init__()
        self.met: list[tuple[int, int]] = []
        """Rows and columns of each."""
        self._fixed: list[Tensor] = []

    def __torch_function__(self, function: Any, kinds: Any, args: Any = (), kwargs: Any = None):
        kwargs = kwargs or {}
        result = function(*args, **kwargs)
        if function in SHARED and args and args[0].dim() == 2 and min(result.shape) > 1:
            if _axis(function, args[0], args, kwargs) == 0:
                self._fixed.append(result.detach())
        elif function in MEETING and len(args) > 1:
            for own, other in (args[:2], args[1::-1]):
                self._see(own, other, is_logits=function is F.cross_entropy)
        return result

    def _see(self, own: Any, other: Any, *, is_logits: bool) -> None:
        if not all(isinstance(t, Tensor) for t in (own, other)) or other.requires_grad:
            return
        fixed = any(other.shape == t.shape and other.data_ptr() == t.data_ptr()
                    for t in self._fixed)  # fmt: skip
        if not fixed or own.shape != other.shape or not own.requires_grad or _adds_up(other, 1):
            return
        if is_logits or _adds_up(own.detach().exp(), 1):
            self.met.append((other.shape[0], other.shape[1]))


def _adds_up(shares: Tensor, axis: int) -> bool:
    return bool(((shares.sum(axis) - 1).abs() < ROUNDED).all())


def _axis(function: Any, tensor: Tensor, args: Any, kwargs: Any) -> int:
    if function in LOSSES:
        return 1
    axis = kwargs.get("dim", args[1] if len(args) > 1 else None)
    if isinstance(axis, (tuple, list)):
        axis = axis[0] if len(axis) == 1 else 1
    if function is F.gumbel_softmax:
        axis = kwargs.get("dim", -1)
    return IMPLIED.get(tensor.dim(), 1) if axis is None else axis % tensor.dim()
