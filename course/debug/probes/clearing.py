"""Probes on clearing: each update starts from cleared gradients, and loses none of its own."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from statistics import median
from typing import Any

import torch
from torch import Tensor

from course.debug.probes.answers import rows_of
from course.debug.probes.loop import norm, of_optimizer, own_loop, pick, steppers_of, updates_of
from course.debug.probes.report import Finding
from course.debug.probes.session import NotChecked, Session
from course.debug.probes.tape import Event
from course.debug.probes.thresholds import LEAST_STEPS, MOST, NEARLY_ALL
from course.state.nested import tensors_in

THROWN_AWAY = 0.4
"""Share of the backwards whose gradients nobody used, from which windows are emptied at every
micro-batch: of whole windows of two that is half, of larger ones more; the last may be cut off."""


def clearing(session: Session) -> Iterator[Finding]:
    """Each update starts from cleared gradients."""
    tape = own_loop(session).tape
    for optimizer in steppers_of(tape):
        index = of_optimizer(tape, optimizer)
        if not index:
            continue
        if any(e.inside_step for e in tape.of("backward")):
            inner = [e for e in tape.of("backward") if e.inside_step]
            dirty = [e for e in inner[1:] if norm(pick(e.before, index)) > 0]
            if len(inner) >= 4 and len(dirty) >= MOST * (len(inner) - 1):
                yield _not_cleared(len(dirty), len(inner) - 1, inner, index)
            continue
        seen, left = 0, []
        for before, since, _step in updates_of(tape, optimizer):
            if before is None or not since:
                continue
            adding = next((e for e in since if _adds(e, index)), None)
            if adding is None:
                continue
            seen += 1
            stale = [i for i in index if _never_cleared(before.gradient[i], since, i)]
            if stale:
                left.append(len(stale))
        if seen >= 3 and len(left) >= MOST * seen:
            events = [e for e in tape.of("backward") if "after" in e.info]
            part = median(left) < NEARLY_ALL * len(index)
            yield _not_cleared(len(left), seen, events, index, part=part)
            return


def _never_cleared(used: Tensor | None, since: list[Event], i: int) -> bool:
    """The gradient of the step before is there at every backward of this window."""
    found = [event.before[i] for event in since]
    if used is None or any(g is None or not bool(g.any()) for g in found):
        return False
    return torch.allclose(found[0], used, rtol=1e-3, atol=0)


def _adds(event: Event, index: list[int]) -> bool:
    """This backward reaches the optimizer's parameters."""
    before, after = (pick(event.info.get(k, []), index) for k in ("before", "after"))
    return any(
        b is not None and (a is None or not torch.equal(a, b))
        for a, b in zip(before, after, strict=False)
    )


def _not_cleared(
    dirty: int, seen: int, events: list[Event], index: list[int], part: bool = False
) -> Finding:
    first = norm(pick(events[0].info.get("after", []), index))
    last = norm(pick(events[-1].info.get("after", []), index))
    what = "some of the gradients" if part else "the gradients"
    return Finding(
        "missing-zero-grad", "error",
        f"In {dirty} of {seen} updates {what} of the previous update were still there when "
        "backward added to them.",
        {"updates_with_old_gradients": dirty, "updates": seen, "norm_first": first,
         "norm_last": last},
        "optimizer.zero_grad()\nloss.backward()\noptimizer.step()",
    )  # fmt: skip


def thrown_away(session: Session) -> Iterator[Finding]:
    """Gradients are not cleared before the next batch unless a step came in between."""
    loop = own_loop(session)
    if loop.unit != "step" or len(session.optimizers) > 1:
        raise NotChecked("needs train_step with one optimizer")
    events = [e for e in loop.tape.events if e.kind in ("backward", "step")]
    if not loop.tape.of("step") or any(e.info.get("inside_step") for e in events):
        raise NotChecked("no step was seen, or backwards inside it")
    inside = sum(
        _only_the_last_counts(loop.tape.in_call(call))
        and _are_parts(loop.tape.in_call(call), batch)
        for call, batch in enumerate(loop.batches[: len(loop.losses)])
    )
    if inside >= max(LEAST_STEPS, MOST * len(loop.losses)):
        yield Finding(
            "grads-cleared-before-step", "error",
            f"In {inside} of {len(loop.losses)} steps the gradients of all micro-batches except "
            "the last were cleared before optimizer.step() used them.",
            {"steps_of_the_last_alone": inside, "steps": len(loop.losses)},
            "optimizer.zero_grad()  # once, before the loop over micro-batches\n"
            "for part in parts: (loss_of(part) / len(parts)).backward()\noptimizer.step()",
        )  # fmt: skip
        return
    lost = sum(
        a.kind == b.kind == "backward" and a.call != b.call
        and norm(a.info.get("after", [])) > 0 and norm(b.before) == 0
        for a, b in pairwise(events)
    )  # fmt: skip
    backwards = len(loop.tape.of("backward"))
    if backwards >= LEAST_STEPS and lost >= THROWN_AWAY * backwards:
        yield Finding(
            "grads-cleared-before-step", "error",
            f"{lost} of {backwards} gradients were cleared before any step used them: the window "
            "is emptied at every micro-batch.",
            {"thrown_away": lost, "backwards": backwards, "steps": len(loop.tape.of("step"))},
            "if (i + 1) % accum_steps == 0:\n    optimizer.step()\n    optimizer.zero_grad()",
        )  # fmt: skip


def _only_the_last_counts(events: list[Event]) -> bool:
    """One call with several backwards, and a step on the last one's gradients.

    A step on other gradients has collected them elsewhere, e.g. clipped by example.
    """
    backwards = [e for e in events if e.kind == "backward"]
    steps = [e for e in events if e.kind == "step"]
    if len(backwards) < 2 or len(steps) != 1:
        return False
    cleared = all(norm(a.info.get("after", [])) > 0 and norm(b.before) == 0
                  for a, b in pairwise(backwards))  # fmt: skip
    used, last = steps[0].gradient, backwards[-1].info.get("after", [])
    return cleared and all(
        (a is None) == (b is None) and (a is None or torch.allclose(a, b))
        for a, b in zip(used, last, strict=True)
    )


def _are_parts(events: list[Event], batch: Any) -> bool:
    """Each forward got rows of the batch that no other got: micro-batches of it.

    The same rows twice are a method's own, e.g. sharpness-aware minimisation, and so are rows that
    are not the batch's, e.g. adversarial ones.
    """
    inputs = [e.first_tensor for e in events if e.kind == "forward" and e.grad]
    if len(inputs) < 2 or any(t is None or t.dim() < 2 for t in inputs):
        return False
    like = [t for t in tensors_in(batch)
            if t.dtype == inputs[0].dtype and t.shape[1:] == inputs[0].shape[1:]]  # fmt: skip
    known = {row for t in like for row in rows_of(t)}
    given = [set(rows_of(t)) for t in inputs]
    return set.union(*given) <= known and sum(map(len, given)) == len(set.union(*given))
