"""Probes on progress: steps add up, and they lower the loss where plain steps do."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import torch

from course.debug.probes.loop import own_loop
from course.debug.probes.report import Finding
from course.debug.probes.session import STEPS, NotChecked, Session, clone, pair
from course.debug.probes.thresholds import ENOUGH_STEPS, LEAST_STEPS, NEARLY_ALL

RISEN, FALLEN = 1.05, 0.97
"""Ratios of the loss after some steps to that before: above the one the user's steps raise it,
below the other plain steps bring it down."""
RISEN_BY = 0.02
"""What a loss must have risen by as well: near 0 any step multiplies it."""
LOOKED_AT = 4
"""Batches on which the loss is compared."""


def undone(session: Session) -> Iterator[Finding]:
    """Each step starts from the weights that the previous step left."""
    tape = own_loop(session).tape
    steps, stepped = tape.of("step"), tape.of("stepped")
    if len(steps) < LEAST_STEPS or any(e.has_closure for e in steps):
        raise NotChecked(f"fewer than {LEAST_STEPS} steps, or steps with a closure")
    first = steps[0].weights
    again = sum(all(map(torch.equal, first, e.weights)) for e in steps[1:])
    moved = sum(not all(map(torch.equal, first, e.weights)) for e in stepped)
    if again >= NEARLY_ALL * (len(steps) - 1) and moved >= NEARLY_ALL * len(steps):
        yield Finding(
            "updates-undone", "error",
            f"{again + 1} of {len(steps)} steps start from exactly the same weights: the previous "
            "step is undone, e.g. by load_state_dict or by a model rebuilt in the loop.",
            {"steps_from_the_same_weights": again + 1, "steps": len(steps)},
            "model.load_state_dict(state)  # once, before the loop",
        )  # fmt: skip


def downhill(session: Session) -> Iterator[Finding]:
    """The user's steps lower the loss where plain steps on the same batches do.

    Only checked if `train_step` returns what `loss_fn` gives for the batch: otherwise it minimises
    something else.
    """
    loop = own_loop(session)
    if loop.unit != "step" or len(loop.losses) < ENOUGH_STEPS or len(session.optimizers) > 1:
        raise NotChecked("needs train_step and one optimizer")
    first = _loss_in_train_mode(session)
    if not math.isclose(abs(loop.losses[0]), abs(first), rel_tol=0.01, abs_tol=1e-4):
        raise NotChecked("train_step does not return the loss of its batch")
    if session.is_spent(0.6):
        raise NotChecked("the budget of forwards is spent")
    before, after = _compared(session, session.setup.train_step, len(loop.losses))
    if not after > RISEN * before + RISEN_BY:
        return
    _, plainly = _compared(session, session.plain_step, len(loop.losses))
    if not plainly < FALLEN * before:
        return
    backward = [e.loss for e in loop.tape.of("backward")]
    negated = len(backward) == len(loop.losses) and all(
        math.isclose(b, -v, rel_tol=1e-4) for b, v in zip(backward, loop.losses, strict=True)
    )
    yield Finding(
        "loss-negated" if negated else "loss-rises", "error" if negated else "warning",
        f"{len(loop.losses)} calls of train_step raise the loss from {before:.3g} to {after:.3g}, "
        f"but as many plain steps bring it to {plainly:.3g}"
        + (": backward() is called on minus the loss." if negated
           else ": backward() is not called on the loss, or not on all of it."),
        {"before": before, "after": after, "after_plain_steps": plainly, "negated": negated},
        "optimizer.zero_grad()\nloss = loss_fn(model(inputs), targets)\n"
        "loss.backward()  # no minus sign\noptimizer.step()",
    )  # fmt: skip


def _loss_in_train_mode(session: Session) -> float:
    inputs, targets = session.batch
    with session.observe(), torch.no_grad():
        session.model.train()
        outputs = session._first_tensor(session.call_model(inputs))
        return float(session.loss(outputs, targets))


def _compared(session: Session, step: Callable, number: int) -> tuple[float, float]:
    """Mean loss in eval mode before and after so many steps."""
    batches = session.epoch.batches
    with session.observe():
        before = _mean_loss(session)
        session.model.train()
        for i in range(min(number, STEPS)):
            step(clone(batches[i % len(batches)]))
        return before, _mean_loss(session)


def _mean_loss(session: Session) -> float:
    session.model.eval()
    total = count = 0.0
    with torch.no_grad():
        for batch in session.epoch.batches[:LOOKED_AT]:
            inputs, targets = pair(batch)
            outputs = session._first_tensor(session.call_model(inputs))
            total += float(session.loss(outputs, targets)) * len(targets)
            count += len(targets)
    return total / count
