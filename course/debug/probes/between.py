"""Probes on what happens between steps: graphs kept, batches skipped, generators reseeded."""

from __future__ import annotations

import math
from collections.abc import Iterator

from course.debug.probes.loop import own_loop
from course.debug.probes.report import Finding
from course.debug.probes.session import NotChecked, Session
from course.debug.probes.thresholds import ENOUGH_STEPS, KEPT


def kept_graphs(session: Session) -> Iterator[Finding]:
    """No graph outlives its step."""
    loop = own_loop(session)
    backwards = loop.tape.of("backward")
    if len(backwards) < ENOUGH_STEPS:
        raise NotChecked(f"fewer than {ENOUGH_STEPS} backwards")
    alive = loop.alive[-1] if loop.alive else 0
    if alive >= KEPT * len(backwards):
        state = any(e.retained for e in backwards)
        yield Finding(
            "undetached-logging", "error",
            f"After {len(backwards)} steps {alive} graphs are still alive: loss or output tensors "
            "are kept"
            + (", or a state is carried from step to step without detach()." if state else "."),
            {"graphs_alive": alive, "steps": len(backwards)},
            "hidden = hidden.detach()" if state else "total_loss += loss.item()",
        )  # fmt: skip


def skipped(session: Session) -> Iterator[Finding]:
    """Batches with a non-finite loss are not skipped silently."""
    loop = own_loop(session)
    if loop.unit != "step":
        raise NotChecked("needs train_step")
    tape = loop.tape
    bad = [i for i, value in enumerate(loop.losses) if not math.isfinite(value)]
    for event in tape.of("loss"):
        if event.value is not None and not math.isfinite(event.value) and event.graph:
            bad.append(event.call)
    stepped = {e.call for e in tape.of("step")}
    left_out = sorted({i for i in bad if i not in stepped})
    if left_out and stepped:
        yield Finding(
            "non-finite-skipped", "warning",
            f"{len(left_out)} of {tape.call} batches have a non-finite loss and are skipped "
            "silently.",
            {"skipped": len(left_out), "calls": tape.call, "first": left_out[0]},
            'raise ValueError(f"loss {loss}: look at this batch first")',
        )  # fmt: skip


def reseeded(session: Session) -> Iterator[Finding]:
    """Each step draws its own dropout masks."""
    loop = own_loop(session)
    states = loop.rng
    if loop.unit != "step" or len(states) < ENOUGH_STEPS:
        raise NotChecked(f"needs train_step and {ENOUGH_STEPS} calls")
    awake = any(any(e.submodes.values()) for e in loop.tape.of("forward"))
    after = states[1:]
    if awake and states[0] != after[0] and len(set(after)) == 1:
        yield Finding(
            "rng-reseeded", "warning",
            "After every step the random number generator is in the same state: dropout draws "
            "the same mask each time.",
            {"distinct_states": len(set(after)), "steps": len(after)},
            "torch.manual_seed(seed)  # once, before the loop",
        )  # fmt: skip
