"""Relation on flags: what negates 0 and 1 makes 1 and 0 of them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from course.debug.probes.functions import NOTS, shares_memory
from course.debug.probes.report import Finding
from course.debug.probes.session import NotChecked, Session, as_metrics
from course.debug.relations.program import program_of
from course.debug.relations.steps import close

EXACT = 1e-6
"""Relative change of a loss that rounding makes."""
BATCHES = 3
"""Batches in one of which some flag is 1."""
PICKS = {Tensor.__getitem__, Tensor.index_select, torch.index_select}


def flags(session: Session) -> Iterator[Finding]:
    """~ of integers that are only 0 and 1 is not used as if it made 1 and 0 of them.

    It makes -1 and -2. That is right for places counted from the end, and where only the last bit
    is used afterwards: there, 1 and 0 would give the same loss.
    """
    seen, run = session.loop.tape.of("bitwise not"), _losses
    if not seen and session.setup.evaluate is not None:
        seen, run = session.evaluation.tape.of("bitwise not"), _scores
    if not seen:
        raise NotChecked("~ is not taken of any integers")
    if min(e.least for e in seen) != 0 or max(e.most for e in seen) != 1:
        raise NotChecked("the integers that ~ is taken of are not only 0 and 1")
    plain, other = _OneAndZero(False), _OneAndZero(True)
    one, two = run(session, plain), run(session, other)
    if plain.picks or all(map(_same, one, two)):
        return
    low, high = (int(~torch.tensor(v, dtype=getattr(torch, seen[0].type.split(".")[1])))
                 for v in (0, 1))  # fmt: skip
    yield Finding(
        "wrong-formula", "error",
        f"~ is taken of integers ({seen[0].type}) that are all 0 or 1, {len(seen)} times in "
        f"{'evaluate()' if run is _scores else 'training'}: it flips every bit "
        f"and gives {low} for 0 and {high} for 1, not 1 and 0.",
        {"times": len(seen), "of_0": low, "of_1": high},
        "alive = 1 - done  # or ~done.bool()",
    )  # fmt: skip


def _losses(session: Session, mode: _OneAndZero) -> list[float]:
    program = program_of(session)
    return [program.step(batch, within=mode).loss for batch in program.batches[:BATCHES]]


def _scores(session: Session, mode: _OneAndZero) -> list[float]:
    with session.observe(), mode:
        torch.manual_seed(0)
        return [*as_metrics(session.setup.evaluate()).values()]


def _same(one: float, other: float) -> bool:
    return close(one, other, EXACT) or (one != one and other != other)  # or neither is a number


class _OneAndZero(TorchFunctionMode):
    """~ of 0 and 1 gives 1 and 0; and whether what it gives picks places of something."""

    def __init__(self, instead: bool) -> None:
        super().__init__()
        self.instead, self.picks = instead, False
        self.made: list[Tensor] = []

    def __torch_function__(self, function: Any, kinds: Any, args: Any = (), kwargs: Any = None):
        result = function(*args, **(kwargs or {}))
        if function in NOTS and isinstance(result, Tensor) and result.dtype != torch.bool:
            if self.instead:
                result = result & 1
            self.made.append(result)
        elif function in PICKS and self.made:
            given = [a for a in args[1:] for a in (a if isinstance(a, tuple) else (a,))]
            self.picks |= any(isinstance(a, Tensor) and a.dtype != torch.uint8
                              and shares_memory(a, self.made) for a in given)  # fmt: skip
        return result
