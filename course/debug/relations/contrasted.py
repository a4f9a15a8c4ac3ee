"""Relation on two views that a step makes: the loss does not compare a view with itself."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

from course.debug.probes.report import Finding
from course.debug.probes.session import NotChecked, Session
from course.debug.probes.tape import changes_by_mode
from course.debug.probes.thresholds import CHANGED, TINY
from course.debug.relations.program import Program, program_of
from course.debug.relations.steps import Step
from course.state.nested import mapped, tensors_in

MOVED = 0.1
"""By so many of their own deviations outputs are moved."""
LEAST_ROWS = 4
"""Rows below which two views are alike by chance."""
FIRST, SECOND = (True, False), (False, True)
"""Which of two outputs is moved."""


def with_itself(session: Session) -> Iterator[Finding]:
    """Two outputs that the loss holds against each other are not of one random view.

    A view counts if the step draws it, and the model makes the same outputs of it twice. The loss
    holds two outputs against each other if moving the one has another effect where the other is
    moved, too: in a sum of two losses it has not.
    """
    program = program_of(session)
    if any(changes_by_mode(part) for part in program.model.modules()):
        raise NotChecked("the model itself is random")
    step = program.first()
    kinds = [e.kind for e in step.tape.events if e.kind in ("output", "backward")]
    if kinds not in (["output", "backward"], ["output", "output", "backward"]):
        raise NotChecked("a step does not call the model once or twice before its one backward")
    halves = len(kinds) == 2
    views = _views(step, halves)
    if not torch.equal(*views):
        raise NotChecked("the model does not get the same rows twice")
    redrawn = _views(program.step(program.batches[0], seed=1), halves)
    if torch.equal(views[0], redrawn[0]):
        raise NotChecked("the model gets the same rows twice, but they are not random")
    outputs = [e.output for e in step.tape.of("output") if e.graph and e.output is not None]
    outputs = list(outputs[0].chunk(2)) if halves and outputs else outputs
    if len(outputs) != 2 or not torch.equal(*outputs):
        raise NotChecked("the model does not make one output of both, with a graph")
    none, first, second, both = (
        _cost(program, moved, halves) for moved in ((False, False), FIRST, SECOND, (True, True))
    )
    effects = abs(first - none) + abs(second - none)
    if abs(both - first - second + none) > CHANGED * effects + TINY:
        yield Finding(
            "compared-with-itself", "error",
            f"The model gets the same {len(views[0])} random rows {list(views[0].shape)} twice in "
            "a step, and the loss holds the two outputs against each other: they are one view, so "
            "they agree whatever the model has learned.",
            {"rows": len(views[0]), "loss": none, "moved_first": first, "moved_both": both},
            "first, second = augment(x), augment(x)  # two draws, not one used twice",
        )  # fmt: skip


def _views(step: Step, halves: bool) -> list[Tensor]:
    """What the model gets in both calls, or in both halves of its one."""
    given = [next((t for t in call.tensors if t.is_floating_point()), None) for call in step.calls]
    given = [t for t in given if t is not None and t.dim() > 1]
    if halves and len(given) == 1 and len(given[0]) % 2 == 0:
        given = list(given[0].chunk(2))
    if len(given) != 2 or len(given[0]) < LEAST_ROWS:
        raise NotChecked("the model does not get two views")
    return given


def _cost(program: Program, moved: tuple[bool, bool], halves: bool) -> float:
    """What the first batch costs if either of two outputs is moved."""
    calls = iter(range(len(moved)))

    def shift(_: nn.Module, args: tuple, output: Any) -> Any:
        first, call = next(tensors_in(output)), next(calls)
        parts = list(first.chunk(2)) if halves else [first]
        made = torch.cat([_away(part, call + n) if moved[call + n] else part
                          for n, part in enumerate(parts)])  # fmt: skip
        return mapped(lambda t: made if t is first else t, output)

    def prepare() -> None:
        program.model.register_forward_hook(shift)  # taken off where the step is put back

    return program.step(program.batches[0], prepare=prepare).loss


def _away(output: Tensor, seed: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    drawn = torch.randn(output.shape, generator=generator).to(output)
    return output + MOVED * output.detach().std() * drawn
