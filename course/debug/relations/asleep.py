"""Relation on eval mode: nothing is dropped, whatever kind of batch the model gets."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch.nn.functional as F
from torch.overrides import TorchFunctionMode

from course.debug.probes.modes import _repeats
from course.debug.probes.report import Finding
from course.debug.probes.session import NotChecked, Session
from course.debug.relations.program import program_of

DROPOUTS = {F.dropout, F.dropout1d, F.dropout2d, F.dropout3d, F.alpha_dropout}


class _Dropped(TorchFunctionMode):
    """Dropout that is on, by the name of its function and its rate."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[tuple[str, float]] = []

    def __torch_function__(self, function: Any, kinds: Any, args: Any = (), kwargs: Any = None):
        kwargs = kwargs or {}
        if function in DROPOUTS:
            rate = kwargs.get("p", args[1] if len(args) > 1 else 0.5)  # as in torch
            if kwargs.get("training", args[2] if len(args) > 2 else True) and rate > 0:
                self.seen.append((function.__name__, float(rate)))
        elif function is F.scaled_dot_product_attention:
            rate = kwargs.get("dropout_p", args[4] if len(args) > 4 else 0.0)
            if rate > 0:
                self.seen.append((function.__name__, float(rate)))
        return function(*args, **kwargs)


def nothing_dropped(session: Session) -> Iterator[Finding]:
    """In eval mode none of the model's dropout is active."""
    program = program_of(session)
    calls = program.first().calls
    if not calls:
        raise NotChecked("a step does not call the model")
    if session.setup.evaluate is not None:
        asked = session.evaluation.tape.of("forward")
        if _repeats(asked) or any(e.inputs is None for e in asked):
            raise NotChecked(
                "evaluate() may call the model several times on the same inputs, with dropout on"
            )
    with _Dropped() as dropped:
        program.replay(calls[0], again=True)
    if dropped.seen:
        name, rate = dropped.seen[0]
        yield Finding(
            "train-mode-in-eval", "error",
            f"In eval mode {name} drops a share of {rate:g}: it ignores model.eval(), so the model "
            "is scored with units missing.",
            {"function": name, "rate": rate, "calls": len(dropped.seen)},
            "x = F.dropout(x, p, training=self.training)\n"
            "F.scaled_dot_product_attention(q, k, v, dropout_p=p if self.training else 0.0)",
        )  # fmt: skip
