"""Probes on accumulation: K micro-batches move the weights as one batch of all of them."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import pairwise
from statistics import median

from course.debug.probes.loop import norm, of_optimizer, own_loop, pick, steppers_of, updates_of
from course.debug.probes.report import Finding
from course.debug.probes.session import Loop, NotChecked, Session
from course.debug.probes.tape import Event
from course.state import tensors_in

UNDIVIDED = 0.75
"""Share of K that the weights of K micro-batches must sum to before they count as undivided:
undivided they sum to K, divided to 1, which is half of the smallest window."""
RESCALED = 0.9
"""Share of the gradient's norm after backward that is left at the step, below which the loop
divided the gradient instead of the loss."""
LEAST_FAIR, MOST_FAIR = 0.8, 1.25
"""Between these the weights of a whole window count as summing to 1: up to a quarter too large, or
as many times too small."""
COUNTS_LESS = 0.9
"""Sum of the weights of a short window below which it counts less than a whole one: three
micro-batches that are divided by four sum to 0.75."""


def accumulation(session: Session) -> Iterator[Finding]:
    """A window of K micro-batches moves the weights as one batch of all of them."""
    loop = own_loop(session)
    tape = loop.tape
    if not tape.of("step"):
        raise NotChecked("no step was seen")
    windows = list(_batch_windows(loop, session.optimizers[0]))
    full = max((len(w) for w, _ in windows), default=0)
    if full < 2 or sum(len(w) == full for w, _ in windows) < 2:
        raise NotChecked("one batch per update")
    yield from _not_divided(session, windows, full)
    yield from _trailing(windows, full)


def _batch_windows(loop: Loop, optimizer: object) -> Iterator[tuple[list[float], list[int]]]:
    """The weight of each micro-batch of a window, as a share of its loss; epochs it spans."""
    shares: list[float] = []
    epochs: list[int] = []
    loss, reduction, iterator, forwards = math.nan, "mean", 0, 0
    take_turns = len(steppers_of(loop.tape)) > 1
    places = of_optimizer(loop.tape, optimizer)
    for event in loop.tape.events:
        if event.kind == "fetch":
            iterator = event.iterator
        elif event.kind == "loss" and event.graph:
            loss, reduction = event.value, event.reduction
        elif event.kind == "forward" and event.inputs is not None and event.grad:
            forwards += 1
        elif event.kind == "backward" and not event.inside_step:
            if take_turns and norm(pick(event.before, places)) == 0:  # of another one's update
                shares, epochs = [], []
            if reduction == "mean" and loss and math.isfinite(loss) and forwards:
                shares.append(event.loss / loss)
                epochs.append(iterator)
            forwards = 0
        elif event.kind == "step" and event.optimizer is optimizer:
            if _distinct_batches(loop, event, shares):
                yield list(shares), list(epochs)
            shares, epochs = [], []


def _first_row_count(batch: object) -> int:
    first = next(tensors_in(batch), None)
    return len(first) if first is not None and first.dim() else 0


def _distinct_batches(loop: Loop, step: Event, shares: list[float]) -> bool:
    """The backwards of this window belong to different batches, or to parts of one."""
    events = loop.tape.events
    since: list[Event] = []
    for event in reversed(events[: events.index(step)]):
        if event.kind == "step" and event.optimizer is step.optimizer:
            break
        since.append(event)
    backwards = [e for e in since if e.kind == "backward"]
    if len(backwards) != len(shares):
        return False
    if loop.unit == "step":
        calls = {e.call for e in backwards}
        if len(calls) == len(backwards):
            return True
        sizes = [len(e.inputs) for e in since if e.kind == "forward" and e.inputs is not None
                 and e.inputs.dim() and e.grad]  # fmt: skip
        whole = _first_row_count(loop.batches[step.call]) if step.call < len(loop.batches) else 0
        return len(calls) == 1 and len(sizes) == len(backwards) and sum(sizes) == whole
    return sum(e.kind == "fetch" for e in since) >= len(backwards)


def _not_divided(
    session: Session, windows: list[tuple[list[float], list[int]]], full: int
) -> Iterator[Finding]:
    whole = [shares for shares, _ in windows if len(shares) == full]
    total = median([sum(shares) for shares in whole])
    tape = session.loop.tape
    steps = tape.of("step")
    kept = []
    for _, since, step in updates_of(tape, steps[0].optimizer):
        made = [e.info["after"] for e in since if "after" in e.info]
        if made and norm(made[-1]) > 0:
            kept.append(norm(step.gradient) / norm(made[-1]))
    rescaled = bool(kept) and median(kept) < RESCALED and not tape.of("clip")
    if total > UNDIVIDED * full and not rescaled:  # full is 2 at least
        yield Finding(
            "accum-not-divided", "warning",
            f"{full} micro-batches make one update and each counts in full: the gradient is "
            f"{total:.3g} times that of the mean.",
            {"micro_batches": full, "sum_of_weights": total},
            "loss = loss_fn(model(x), y) * len(x) / num_examples_of_the_window",
        )  # fmt: skip


def _trailing(windows: list[tuple[list[float], list[int]]], full: int) -> Iterator[Finding]:
    whole = [sum(s) for s, _ in windows if len(s) == full]
    fair = LEAST_FAIR < median(whole) < MOST_FAIR
    short = [s for s, _ in windows if 0 < len(s) < full]
    if fair and short and any(sum(s) < COUNTS_LESS for s in short):
        worst = min(short, key=sum)
        yield Finding(
            "accum-trailing-window", "warning",
            f"The last window of an epoch holds {len(worst)} of {full} micro-batches and still "
            f"divides by {full}: it counts {sum(worst):.2f} instead of 1.",
            {"micro_batches": len(worst), "window": full, "sum_of_weights": sum(worst)},
            "in_window = min(accum_steps, num_batches - start)\nloss = loss / in_window",
        )  # fmt: skip
        return
    mixed = sum(len(set(epochs)) > 1 for _, epochs in windows)
    if mixed:
        yield Finding(
            "accum-trailing-window", "warning",
            f"{mixed} updates mix micro-batches of two epochs: the remainder of an epoch is not "
            "flushed.",
            {"updates_over_the_border": mixed, "window": full},
            "if (i + 1) % accum_steps == 0 or i + 1 == len(train_loader):\n    optimizer.step()\n"
            "    optimizer.zero_grad()",
        )  # fmt: skip


def wasted(session: Session) -> Iterator[Finding]:
    """Gradients that were computed are used."""
    loop = own_loop(session)
    if loop.unit != "train" or len(session.optimizers) > 1:
        raise NotChecked("needs train(n_steps) with one optimizer")
    tape, lost, seen = loop.tape, 0, 0
    for _, since, _step in updates_of(tape, session.optimizers[0]):
        for earlier, later in pairwise(since):
            seen += 1
            lost += norm(earlier.info.get("after", [])) > 0 and norm(later.before) == 0
    if lost and seen and len(tape.of("epoch")) > 1 and lost <= len(tape.of("epoch")):
        yield Finding(
            "accum-trailing-window", "warning",
            f"{lost} times gradients were cleared at the end of an epoch without a step: the last "
            "micro-batches are never used.",
            {"times": lost},
            "if (i + 1) % accum_steps == 0 or i + 1 == len(train_loader):\n    optimizer.step()",
        )  # fmt: skip
