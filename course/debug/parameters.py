"""What a model consists of, tensor by tensor: trained or frozen, in the optimizer or not, or lost.

    print(parameter_report(model, optimizer))

The number of parameters says how large a model is. Most mistakes show in the other columns: a layer
that no optimizer holds, one that was frozen by accident, one in a plain list that is therefore not
part of the model.

Source: engineering module, §3; ledger C24.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from html import escape

from torch import Tensor, nn
from torch.optim import Optimizer

from course.analysis.reach import held_in
from course.tables import html_table


@dataclass(frozen=True)
class Entry:
    """One tensor of a model, or one hidden in its attributes."""

    name: str
    """The name in `named_parameters()`; for a lost tensor the path to it, e.g.
    `blocks[1].weight`."""
    kind: str
    """`parameter`, `buffer` or `lost`."""
    shape: tuple[int, ...]
    dtype: str
    numel: int
    trainable: bool
    """A parameter that requires a gradient."""
    optimized: bool | None
    """Whether the optimizer holds it; None for a buffer, or if no optimizer was given."""
    shared_with: str = ""
    """The first name of a tensor that has several; it is counted there."""


@dataclass(frozen=True)
class ParameterReport:
    """All tensors of a model, and what they add up to."""

    entries: tuple[Entry, ...]

    def _count(self, kind: str, trainable: bool | None = None) -> int:
        return sum(
            entry.numel
            for entry in self.entries
            if entry.kind == kind and not entry.shared_with and trainable in (None, entry.trainable)
        )

    @property
    def trainable(self) -> int:
        """Numbers in parameters that require gradients."""
        return self._count("parameter", True)

    @property
    def frozen(self) -> int:
        """Numbers in parameters that do not."""
        return self._count("parameter", False)

    @property
    def total(self) -> int:
        """Numbers in all parameters; buffers are not parameters."""
        return self._count("parameter")

    @property
    def buffers(self) -> int:
        """Numbers in buffers."""
        return self._count("buffer")

    @property
    def lost(self) -> tuple[Entry, ...]:
        """Tensors in attributes that are not registered: they are not trained, moved or saved."""
        return tuple(entry for entry in self.entries if entry.kind == "lost")

    @property
    def forgotten(self) -> tuple[Entry, ...]:
        """Trainable parameters that the optimizer does not hold."""
        return tuple(e for e in self.entries if e.trainable and e.optimized is False)

    def __str__(self) -> str:
        rows = [_HEADS, *map(_row, self.entries)]
        wide = [max(len(row[place]) for row in rows) for place in range(len(_HEADS))]
        lines = [
            "  ".join(cell.ljust(width) for cell, width in zip(row, wide, strict=True)).rstrip()
            for row in rows
        ]
        return "\n".join([*lines, self._summary()])

    def _repr_html_(self) -> str:
        return f"{html_table(_HEADS, map(_row, self.entries))}<p>{escape(self._summary())}</p>"

    def _summary(self) -> str:
        said = (
            f"{self.total:,} in parameters: {self.trainable:,} trainable, {self.frozen:,} frozen; "
            f"{self.buffers:,} in buffers."
        )
        if self.forgotten:
            said += f" Not in the optimizer: {', '.join(e.name for e in self.forgotten)}."
        if self.lost:
            said += f" Not registered: {', '.join(e.name for e in self.lost)}."
        return said


_HEADS = ("name", "kind", "shape", "dtype", "numbers", "trainable", "in optimizer")


def _row(entry: Entry) -> tuple[str, ...]:
    held = {True: "yes", False: "no", None: ""}[entry.optimized]
    numbers = f"as {entry.shared_with}" if entry.shared_with else f"{entry.numel:,}"
    trainable = "yes" if entry.trainable else "no"
    shape = " × ".join(map(str, entry.shape)) or "scalar"
    return entry.name, entry.kind, shape, entry.dtype, numbers, trainable, held


def parameter_report(model: nn.Module, optimizer: Optimizer | None = None) -> ParameterReport:
    """Report for every tensor of a model whether it is trained, moved and saved.

    Args:
        model: Its parameters and buffers are listed, and what else its attributes hold: tensors and
            modules in plain lists, tuples and dicts, and tensors that are plain attributes.
        optimizer: If given, each parameter is looked up in its groups.

    Raises:
        TypeError: `model` is not a module, or `optimizer` is not an optimizer.

    Source: engineering module, §3; ledger C24.
    """
    if not isinstance(model, nn.Module):
        raise TypeError(f"model is a {type(model).__name__}. Pass in an nn.Module.")
    if optimizer is not None and not isinstance(optimizer, Optimizer):
        given = type(optimizer).__name__
        raise TypeError(
            f"optimizer is a {given}. Pass in a torch.optim.Optimizer, or leave it out."
        )
    held = None
    if optimizer is not None:
        held = {id(p) for group in optimizer.param_groups for p in group["params"]}
    seen: dict[int, str] = {}
    entries = []
    for kind, named in (
        ("parameter", model.named_parameters(remove_duplicate=False)),
        ("buffer", model.named_buffers(remove_duplicate=False)),
        ("lost", _lost(model)),
    ):
        for name, tensor in named:
            entries.append(_entry(name, kind, tensor, held, seen.get(id(tensor), "")))
            seen.setdefault(id(tensor), name)
    return ParameterReport(tuple(entries))


def _entry(name: str, kind: str, tensor: Tensor, held: set[int] | None, first: str) -> Entry:
    optimized = None if held is None or kind == "buffer" else id(tensor) in held
    dtype = str(tensor.dtype).removeprefix("torch.")
    return Entry(
        name, kind, tuple(tensor.shape), dtype, tensor.numel(), tensor.requires_grad, optimized,
        first,
    )  # fmt: skip


def _lost(model: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """Tensors that attributes reach and the module has not registered."""
    known = {id(t) for t in (*model.parameters(), *model.buffers())}
    modules = {id(module) for module in model.modules()}
    for path, module in model.named_modules():
        for name, value in vars(module).items():
            if name.startswith("_") or name == "training":
                continue
            for where, held in held_in(value, f"{path}.{name}".strip(".")):
                yield from (
                    (way, tensor) for way, tensor in _named(where, held, modules)
                    if id(tensor) not in known
                )  # fmt: skip


def _named(where: str, held: Tensor | nn.Module, modules: set[int]) -> Iterator[tuple[str, Tensor]]:
    """A tensor, or those of a module that is not registered."""
    if isinstance(held, Tensor):
        yield where, held
    elif id(held) not in modules:
        for name, tensor in (*held.named_parameters(), *held.named_buffers()):
            yield f"{where}.{name}", tensor
