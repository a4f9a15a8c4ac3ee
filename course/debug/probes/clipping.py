"""Probes on clipping: after backward, before the step, once per update, on what the step uses.

Each clip is put into one of six places by what was seen around it (`_place`); `RULES` says how many
clips in a place make a finding.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from course.debug.probes.loop import norm, own_loop
from course.debug.probes.report import Finding, Severity
from course.debug.probes.session import NotChecked, Session
from course.debug.probes.tape import Event, Tape

LEAST_CLIPS = 3
"""Clips from which a habit is told from a first or last one that is cut off."""
MOSTLY = 0.7
"""Share of the clips: the first and the last may lack the neighbours that tell their place."""
SHRUNK = 0.5
"""Share of a clipped gradient that is left at the step, from which it was clipped while scaled
(scales are powers of 2 far above 2); clipping again to a lower norm is left alone."""
CUTS = 0.999
"""Share of the norm that is left where clipping changed anything; above it is rounding."""
LARGER = 1.01
"""Norm at the step over the norm declared: bf16 rounds by less than 1 %."""


@dataclass(frozen=True)
class Rule:
    """One finding on where clips are: when it holds, and what it says."""

    holds: Callable[[Counter, list[Event]], bool]
    severity: Severity
    message: str
    fix: str


AFTER_BACKWARD = (
    "loss.backward()\ntorch.nn.utils.clip_grad_norm_(model.parameters(), max_norm)\n"
    "optimizer.step()"
)


def _habit(*places: str) -> Callable[[Counter, list[Event]], bool]:
    """Most clips are in these places, the first of them most often."""

    def holds(seen: Counter, clips: list[Event]) -> bool:
        number = sum(seen[place] for place in ("early", "late", "scaled"))
        most = max(("early", "late", "scaled"), key=seen.__getitem__)
        return len(clips) >= LEAST_CLIPS and number >= MOSTLY * len(clips) and most in places

    return holds


def _in_windows(seen: Counter, clips: list[Event]) -> bool:
    cuts = any(norm(e.after) < CUTS * norm(e.before) for e in clips)
    return seen["inside"] >= 2 and seen["inside"] >= seen["good"] and cuts


RULES = (
    Rule(_habit("early"), "error",
         "Gradients are clipped before backward, when there are no gradients yet: the update is "
         "the same as without clipping.", AFTER_BACKWARD),
    Rule(_habit("late"), "error",
         "Gradients are clipped after the step, when the weights have already moved: the update is "
         "the same as without clipping.", AFTER_BACKWARD),
    Rule(_habit("scaled"), "error",
         "Gradients are clipped while they are still scaled, before unscale_(): the clipped norm "
         "is that of the scaled loss.", "scaler.unscale_(optimizer)\n" + AFTER_BACKWARD),
    Rule(_in_windows, "warning",
         "Gradients are clipped after every micro-batch: a sum of clipped parts is not a clipped "
         "sum.",
         "if (i + 1) % accum_steps == 0:\n    clip_grad_norm_(model.parameters(), max_norm)\n"
         "    optimizer.step()"),
)  # fmt: skip


def clip_place(session: Session) -> Iterator[Finding]:
    """Clipping comes after backward and before step."""
    tape = own_loop(session).tape
    clips = tape.of("clip")
    if not clips:
        if session.declared.get("max_grad_norm"):
            yield from _never_clipped(session, tape)
            return
        raise NotChecked("no clipping was seen")
    seen = Counter(_places(tape))
    for rule in RULES:
        if rule.holds(seen, clips):
            evidence = {"clips": len(clips), **{place: seen[place] for place in sorted(seen)}}
            yield Finding("clip-misplaced", rule.severity, rule.message, evidence, rule.fix)
            return
    by_norm = all(e.after for e in clips)  # clipping by value promises no norm
    if session.declared.get("max_grad_norm") and len(session.optimizers) == 1 and by_norm:
        yield from _never_clipped(session, tape)


def _places(tape: Tape) -> Iterator[str]:
    """Where each clip is: early, late, scaled, inside a window, or good."""
    events = [
        e for e in tape.events
        if e.kind in ("clip", "step", "unscale") or (e.kind == "backward" and not e.inside_step)
    ]  # fmt: skip
    for before, event, after in zip([None, *events], events, [*events[1:], None], strict=False):
        if event.kind == "clip":
            yield _place(event, before, after)


def _place(clip: Event, before: Event | None, after: Event | None) -> str:
    was, comes = (None if e is None else e.kind for e in (before, after))
    if norm(clip.before) == 0 and comes in (None, "backward"):
        return "early"
    if (comes == "backward" and was in (None, "step")) or (comes is None and was == "step"):
        return "late"
    if comes == "unscale":
        return "scaled"
    if comes == "backward":
        return "inside"
    if comes == "step" and clip.after and norm(after.gradient) < SHRUNK * norm(clip.after):
        return "scaled"
    return "good"


def _never_clipped(session: Session, tape: Tape) -> Iterator[Finding]:
    ceiling = float(session.declared["max_grad_norm"])
    norms = [norm(e.gradient) for e in tape.of("step")]
    above = sum(n > LARGER * ceiling for n in norms)
    if above >= 2:
        yield Finding(
            "clip-misplaced", "error",
            f"Gradients should be clipped to {ceiling:g}, but {above} of {len(norms)} steps use "
            "larger ones.",
            {"largest": max(norms), "max_grad_norm": ceiling},
            "torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm)  # before step()",
        )  # fmt: skip
