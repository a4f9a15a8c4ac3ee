"""Probes on clipping: after backward, before the step, once per update."""

from __future__ import annotations

from collections.abc import Iterator

from course.debug.probes.loop import norm, own_loop
from course.debug.probes.report import Finding
from course.debug.probes.session import NotChecked, Session
from course.debug.probes.tape import Event, Tape


def clip_place(session: Session) -> Iterator[Finding]:
    """Clipping comes after backward and before step."""
    tape = own_loop(session).tape
    clips = tape.of("clip")
    if not clips:
        if session.declared.get("max_grad_norm"):
            yield from _never_clipped(session, tape)
            return
        raise NotChecked("no clipping was seen")
    early = late = partial = good = 0
    unscaled = bool(tape.of("unscale"))
    events = [e for e in tape.events if e.kind in ("clip", "step", "backward", "unscale")]
    events = [e for e in events if not (e.kind == "backward" and e.inside_step)]
    for before, event, after in zip([None, *events], events, [*events[1:], None], strict=False):
        if event.kind != "clip":
            continue
        if norm(event.before) == 0 and (after is None or after.kind == "backward"):
            early += 1
        elif (
            after is not None
            and after.kind == "backward"
            and (before is None or before.kind == "step")
        ) or (before is not None and before.kind == "step" and after is None):
            late += 1
        elif after is not None and after.kind == "unscale":
            early += 1
        elif after is not None and after.kind == "backward":
            partial += 1
        else:
            good += 1
    seen = len(clips)
    if early + late >= 0.7 * seen and seen >= 3:
        where = (
            "before backward, where there are no gradients yet"
            if early > late
            else ("after the step, when the weights have already moved")
        )
        yield Finding(
            "clip-misplaced", "error",
            f"Gradients are clipped {where}: the update is the same as without."
            + (" It also comes before unscale_()." if unscaled and early else ""),
            {"clips": seen, "too_early": early, "too_late": late},
            "loss.backward()\ntorch.nn.utils.clip_grad_norm_(model.parameters(), max_norm)\n"
            "optimizer.step()",
        )  # fmt: skip
    elif partial >= 2 and partial >= good and _changed(clips):
        yield Finding(
            "clip-misplaced", "warning",
            "Gradients are clipped after every micro-batch: a sum of clipped parts is no clipped "
            "sum.",
            {"clips": seen, "inside_windows": partial},
            "if (i + 1) % accum_steps == 0:\n    clip_grad_norm_(model.parameters(), max_norm)\n"
            "    optimizer.step()",
        )  # fmt: skip

    elif (
        session.declared.get("max_grad_norm")
        and len(session.optimizers) == 1
        and all(e.after for e in clips)  # by norm; clipping by value promises no norm
    ):
        yield from _never_clipped(session, tape)


def _changed(clips: list[Event]) -> bool:
    return any(norm(e.after) < 0.999 * norm(e.before) for e in clips)


def _never_clipped(session: Session, tape: Tape) -> Iterator[Finding]:
    ceiling = float(session.declared["max_grad_norm"])
    norms = [norm(e.gradient) for e in tape.of("step")]
    above = sum(n > 1.01 * ceiling for n in norms)
    if above >= 2:
        yield Finding(
            "clip-misplaced", "error",
            f"Gradients should be clipped to {ceiling:g}, yet {above} of {len(norms)} steps use "
            "larger ones.",
            {"largest": max(norms), "max_grad_norm": ceiling},
            "torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm)  # before step()",
        )  # fmt: skip
