"""Relations on softmax: it runs over the axis that is summed over, and within a row."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

from course.debug.probes.functions import shares_memory
from course.debug.probes.report import Finding
from course.debug.probes.session import NotChecked, Session
from course.debug.relations.program import program_of

SOFTMAXES = {F.softmax, torch.softmax, Tensor.softmax}
LOG_SOFTMAXES = {F.log_softmax, torch.log_softmax, Tensor.log_softmax}
MULTIPLIES = {"mul", "rmul", "multiply"}
"""Functions that multiply number by number, by their names without underscores."""
PRODUCTS = {torch.matmul, Tensor.matmul, Tensor.__matmul__, torch.bmm, Tensor.bmm}

OF_ROWS = {
    F.triplet_margin_loss, F.triplet_margin_with_distance_loss, F.cosine_embedding_loss,
    F.pairwise_distance,
}  # fmt: skip
"""Functions that compare each row with the same row of another tensor."""


def summed(session: Session) -> Iterator[Finding]:
    """The weights a softmax makes are summed over the axis along which they add up to 1."""
    program, mode = program_of(session), _Shares()
    if not program.first().calls_any(SOFTMAXES):
        raise NotChecked("a step calls no softmax")
    program.step(program.batches[0], within=mode)
    if not mode.met:
        raise NotChecked("no softmax goes into a product")
    if mode.found is not None:
        shape, axis = mode.found
        yield Finding(
            "rows-mixed", "warning",
            f"Weights of {list(shape)} add up to 1 along axis {axis} and are summed over axis "
            f"{len(shape) - 1}: what each position gets is not a weighted mean of the others.",
            {"shape": list(shape), "softmax_axis": axis, "summed_axis": len(shape) - 1},
            "weights = scores.softmax(dim=-1)  # over the keys; then weights @ values",
        )  # fmt: skip


def of_several(session: Session) -> Iterator[Finding]:
    """A softmax shares among several: along an axis of size 1 each share is 1, whatever the scores.

    One key, head or expert has nothing to share with, and is summed over alone; if the shares are
    summed over an axis where there are several, that axis is the one to share among.
    """
    program, mode = program_of(session), _Ones()
    if not program.first().calls_any(SOFTMAXES):
        raise NotChecked("a step calls no softmax")
    program.step(program.batches[0], within=mode)
    if not mode.kept:
        raise NotChecked("no softmax runs along an axis of size 1")
    if mode.found is not None:
        shape, axis = mode.found
        yield Finding(
            "wrong-formula", "warning",
            f"Weights of {list(shape)} come from a softmax along an axis of size 1, so all are 1, "
            f"and they are summed over {shape[axis]} along axis {axis}: the sum weighs nothing, "
            "and what makes the scores gets no gradient.",
            {"shape": list(shape), "summed_axis": axis},
            f"weights = scores.softmax(dim={axis})  # over what is summed",
        )  # fmt: skip


def of_a_row(session: Session) -> Iterator[Finding]:
    """A softmax in the loss adds up to 1 within each row, not down the batch.

    A square table of every row with every row may be read both ways. Rows that are compared with
    each other are not scaled column by column.
    """
    program = program_of(session)
    if not program.first().calls_any(SOFTMAXES | LOG_SOFTMAXES | {F.normalize}):
        raise NotChecked("a step calls no softmax, and normalises no rows")
    rows = {len(t) for call in program.first().calls for t in call.tensors if t.dim()}
    mode = _DownTheBatch(rows)
    program.step(program.batches[0], within=mode)
    if mode.found is not None:
        name, shape = mode.found
        yield Finding(
            "rows-mixed", "warning",
            f"{name} of {list(shape)} runs down the {shape[0]} rows of the batch: each row's "
            "numbers depend on the other rows.",
            {"function": name, "shape": list(shape), "axis": 0},
            "log_shares = logits.log_softmax(dim=1)  # over the classes; F.normalize(z, dim=1)",
        )  # fmt: skip


class _DownTheBatch(TorchFunctionMode):
    """Keeps the first softmax, or the first rows that are compared with rows, made along axis 0."""

    def __init__(self, rows: set[int]) -> None:
        super().__init__()
        self.rows = rows
        self.found: tuple[str, torch.Size] | None = None
        self.scaled: list[Tensor] = []

    def __torch_function__(self, function: Any, kinds: Any, args: Any = (), kwargs: Any = None):
        kwargs = kwargs or {}
        result = function(*args, **kwargs)
        if self.found is not None or not isinstance(result, Tensor) or not result.requires_grad:
            return result
        if function in SOFTMAXES | LOG_SOFTMAXES and self._is_a_table(result):
            axis = kwargs.get("dim", args[1] if len(args) > 1 else None)
            if axis is not None and axis % 2 == 0:
                self.found = function.__name__, result.shape
        elif function is F.normalize and self._is_a_table(result):
            given = args[0] if args else kwargs["input"]
            down = kwargs.get("dim", args[2] if len(args) > 2 else 1) % 2 == 0
            if down and not given.is_leaf:  # of weights, the first axis may be as long by chance
                self.scaled.append(result)
        elif function in OF_ROWS:
            met = [t for t in (*args, *kwargs.values()) if any(t is kept for kept in self.scaled)]
            if met:
                self.found = "normalize", met[0].shape
        elif (
            function in PRODUCTS
            and any(args[0] is t for t in self.scaled)
            and result.shape[-2:] == (len(args[0]), len(args[0]))
        ):
            self.found = "normalize", args[0].shape
        return result

    def _is_a_table(self, tensor: Tensor) -> bool:
        several = tensor.dim() == 2 and tensor.shape[0] != tensor.shape[1] > 1
        return several and len(tensor) in self.rows


class _Shares(TorchFunctionMode):
    """Keeps the first tensor of shares that a product sums over another axis."""

    def __init__(self) -> None:
        super().__init__()
        self.axes: dict[int, int] = {}
        self.alive: list[Tensor] = []
        self.met = False
        self.found: tuple[torch.Size, int] | None = None

    def __torch_function__(self, function: Any, kinds: Any, args: Any = (), kwargs: Any = None):
        kwargs = kwargs or {}
        result = function(*args, **kwargs)
        first = args[0] if args else None
        if function in SOFTMAXES and isinstance(result, Tensor) and result.dim() > 2:
            axis = kwargs.get("dim", args[1] if len(args) > 1 else None)
            if axis is not None:
                self._keep(result, axis % result.dim())
        elif function is F.dropout and id(first) in self.axes:
            self._keep(result, self.axes[id(first)])
        elif function in PRODUCTS and id(first) in self.axes:
            self.met = True
            if self.found is None and self.axes[id(first)] != first.dim() - 1:
                self.found = first.shape, self.axes[id(first)]
        return result

    def _keep(self, shares: Tensor, axis: int) -> None:
        self.axes[id(shares)] = axis
        self.alive.append(shares)  # an id is its own as long as the tensor lives


class _Ones(TorchFunctionMode):
    """Keeps the first weights from a softmax along an axis of size 1 that are summed over an axis
    of another size, alone or times something."""

    def __init__(self) -> None:
        super().__init__()
        self.kept: list[Tensor] = []
        self.products: list[tuple[Tensor, torch.Size]] = []
        self.found: tuple[torch.Size, int] | None = None

    def __torch_function__(self, function: Any, kinds: Any, args: Any = (), kwargs: Any = None):
        kwargs = kwargs or {}
        result = function(*args, **kwargs)
        if self.found is not None or not isinstance(result, Tensor) or not result.requires_grad:
            return result
        name = getattr(function, "__name__", "").strip("_")
        ones = [a for a in args if shares_memory(a, self.kept)]  # views of them, too
        if function in SOFTMAXES:
            axis = kwargs.get("dim", args[1] if len(args) > 1 else None)
            if axis is not None and result.shape[axis] == 1 < result.numel():
                self.kept.append(result)
        elif name in MULTIPLIES and ones and ones[0].dim() == result.dim():
            self.products.append((result, ones[0].shape))
        elif name == "sum":
            axes = kwargs.get("dim", args[1] if len(args) > 1 else None)
            for product, shape in self.products:
                if args[0] is product and isinstance(axes, int) and shape[axes] > 1:
                    self.found = shape, axes % len(shape)
        elif function in PRODUCTS and ones:
            axis = -1 if ones[0] is args[0] else -2
            if ones[0].dim() > 1 < ones[0].shape[axis]:
                self.found = ones[0].shape, axis % ones[0].dim()
        return result
