"""Relation on mixtures of examples: an input's labels are those of the examples it is made of."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from course.debug.probes.report import Finding
from course.debug.probes.session import NotChecked, Session, pair
from course.debug.probes.thresholds import OFTEN, ZERO
from course.debug.relations.program import exchanged, program_of
from course.debug.relations.targets import _pulled

TRIED = 8
"""Examples of a batch of which it is seen where they and their labels go."""
LEAST_MIXED = 3
"""Of these, examples that are in two inputs and whose labels are in two losses, from which a
mixture is made of all of them."""


def alike(session: Session) -> Iterator[Finding]:
    """If an example is in two inputs, its label is in the losses of the same two.

    Where only inputs are mixed, as with noise from another recording, or only labels, nothing is
    said; nor where a loss compares all rows with one another.
    """
    batch = program_of(session).batches[0]
    x, y = pair(batch)
    calls = program_of(session).first().calls
    if len(calls) != 1 or not calls[0].tensors or not _are_mixed(x, calls[0].tensors[0]):
        raise NotChecked("the model gets the examples of the batch as they are")
    if y.dim() != 1 or y.is_floating_point() or len(y) != len(x) or int(y.min()) == int(y.max()):
        raise NotChecked("a batch does not have one class for each example")
    inputs, pull, _ = _pulled(session, batch)
    if len(inputs) != len(x) or pull.dim() != 2 or len(pull) != len(x):
        raise NotChecked("the model does not get and give one row for each example")
    seen, apart = 0, []
    for row in range(min(TRIED, len(x))):
        other, another = x.clone(), y.clone()
        other[row] = x[row] + x.std() + 1
        another[row] = y[y != y[row]][0]
        moved = _rows(inputs, _pulled(session, exchanged(batch, x, other))[0])
        told = _rows(pull, _pulled(session, exchanged(batch, y, another))[1])
        if len(moved) == len(told) == 2:
            seen += 1
            if moved != told:
                apart.append((row, sorted(moved), sorted(told)))
    if seen >= LEAST_MIXED and len(apart) > OFTEN * seen:
        row, moved, told = apart[0]
        yield Finding(
            "labels-shuffled", "error",
            f"Inputs are mixtures of two examples, but {len(apart)} of {seen} labels are not in "
            f"the losses of the inputs that their example is in: example {row} is in inputs "
            f"{moved[0]} and {moved[1]}, its label in the losses of {told[0]} and {told[1]}. "
            "Inputs and labels are mixed in different orders.",
            {"tried": seen, "apart": len(apart)},
            "p = torch.randperm(len(x))  # one order for both\nx = lam * x + (1 - lam) * x[p]\n"
            "loss = lam * F.cross_entropy(out, y) + (1 - lam) * F.cross_entropy(out, y[p])",
        )  # fmt: skip


def _are_mixed(x: Tensor, given: Tensor) -> bool:
    return (
        x.is_floating_point() and x.shape == given.shape and x.dim() > 1
        and not torch.equal(x, given.to(x))
    )  # fmt: skip


def _rows(one: Tensor, other: Tensor) -> set[int]:
    """Rows in which two tensors differ."""
    if one.shape != other.shape:
        raise NotChecked("a batch with another example in it gives other shapes")
    apart = (one.double() - other.double()).abs().flatten(1).amax(1)
    return set((apart > ZERO).nonzero().flatten().tolist())
