"""Relations on several optimizers: each steps only on the gradient of its own loss."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations, pairwise, permutations
from statistics import fmean
from typing import Any

import torch
from torch import Tensor

from course.debug.probes.loop import is_nonzero, of_optimizer, own_loop, steppers_of
from course.debug.probes.report import Finding
from course.debug.probes.session import NotChecked, Session
from course.debug.probes.tape import Event, Tape
from course.debug.probes.thresholds import LEAST_STEPS, MOST, TINY
from course.debug.relations.rivals import left_by_a_rival, reached

NEAR = 1e-4
"""Difference of two gradients of one bias that are the same but for rounding."""
WITH = 0.3
"""Cosine from which two losses want the same of a network, and both may train it."""
AGAINST = -0.3
"""Cosine of two gradients from which one undoes the other: of unrelated ones of 100 weights it is
below in 1 of 700."""


def left_over(session: Session) -> Iterator[Finding]:
    """A step does not use a leftover gradient of another optimizer's loss against its own.

    backward is called on one loss, another optimizer steps, backward is called on a second loss,
    and this optimizer steps on the sum of both: within one call, or with what the previous call
    left. If it holds weights that the first loss does not reach, e.g. its own head on a trunk, that
    is intended.
    """
    loop = own_loop(session)
    tape = loop.tape
    optimizers = steppers_of(tape)
    if len(optimizers) < 2 or loop.unit != "step":
        raise NotChecked("fewer than two optimizers step, or the calls of train() are not seen")
    for optimizer in optimizers:
        steps = [e for e in tape.of("step") if e.optimizer is optimizer]
        cosines = [c for e in steps if (c := _cosine(tape, e)) is not None]
        against = [c for c in cosines if c < AGAINST]
        stale = [e for e in steps if _of_the_call_before(tape, e)]
        if len(cosines) >= LEAST_STEPS and len(against) >= MOST * len(steps):
            yield Finding(
                "missing-zero-grad", "warning",
                "An optimizer steps on the sum of two gradients that point against each other: one "
                "from its own loss, and one left over from another optimizer's loss. A detach() or "
                "a zero_grad() is missing in between.",
                {"steps": len(steps), "against_each_other": len(against),
                 "cosine": sum(cosines) / len(cosines)},
                "loss_d = bce(d(fake.detach()), zeros)  # no gradient reaches the generator",
            )  # fmt: skip
            return
        if len(stale) >= max(LEAST_STEPS, MOST * len(steps)):
            yield Finding(
                "missing-zero-grad", "warning",
                f"In {len(stale)} of {len(steps)} steps an optimizer uses the gradient of its own "
                "loss plus one left over from the previous call, from a loss that another "
                "optimizer has already stepped on.",
                {"steps": len(steps), "with_old_gradients": len(stale)},
                "optimizer_d.zero_grad()  # before loss_d.backward(), not after its step\n"
                "loss_d.backward()\noptimizer_d.step()",
            )  # fmt: skip
            return
        if rival := left_by_a_rival(session, tape, steps):
            yield Finding(
                "missing-zero-grad", "warning",
                f"In {rival[0]} of {len(steps)} steps an optimizer uses the gradient of its own "
                "loss plus one that was left by a loss on which another optimizer has just "
                f"stepped. For the same inputs the two losses pull {rival[1]} outputs of its "
                "network opposite ways: it also follows the loss that it should resist.",
                {"steps": len(steps), "with_both": rival[0], "outputs_pulled_apart": rival[1]},
                "optimizer_g.step()\noptimizer_d.zero_grad()  # before loss_d.backward()",
            )  # fmt: skip
            return


def opposed(session: Session) -> Iterator[Finding]:
    """Two optimizers do not pull a shared weight in opposite directions.

    The losses of two networks that compete are opposite; each must train only its own network.
    """
    tape = own_loop(session).tape
    for one, other in combinations(steppers_of(tape), 2):
        shared = sorted({*of_optimizer(tape, one)} & {*of_optimizer(tape, other)})
        steps = [e for e in tape.of("step") if e.optimizer in (one, other)]
        turns = [(a, b) for a, b in pairwise(steps) if a.optimizer is one is not b.optimizer]
        cosines = [
            _between(*(_flat(e.gradient, shared, tape.watched) for e in turn)) for turn in turns
        ] if shared else []  # fmt: skip
        against = [c for c in cosines if c < AGAINST]
        if len(cosines) >= LEAST_STEPS and len(against) >= MOST * len(cosines):
            yield Finding(
                "optimizer-holds-another", "error",
                f"Two optimizers hold the same {len(shared)} parameters and pull them in opposite "
                f"directions (cosine {sum(cosines) / len(cosines):.2f}): what one loss gains, the "
                "other undoes. When networks compete, each optimizer holds only its own.",
                {"parameters": len(shared), "turns": len(cosines), "against": len(against),
                 "cosine": sum(cosines) / len(cosines)},
                "optimizer_d = torch.optim.Adam(discriminator.parameters())  # not of both",
            )  # fmt: skip
            return


def holds_another(session: Session) -> Iterator[Finding]:
    """An optimizer does not hold all parameters of another one in addition to its own.

    Each loss moves its own network: a generator's loss, say, would make its critic worse. Two
    losses that want the same may both train it, e.g. a head that is stepped on twice as often.
    """
    loop = own_loop(session)
    tape, optimizers = loop.tape, steppers_of(loop.tape)
    if len(optimizers) < 2 or loop.unit != "step":
        raise NotChecked("fewer than two optimizers step, or the calls of train() are not seen")
    for one, other in permutations(optimizers, 2):
        own, others = {*of_optimizer(tape, one)}, {*of_optimizer(tape, other)}
        if not others or not others < own:
            continue
        steps = [e for e in tape.of("step") if e.optimizer is one]
        parts = others, own - others
        both = [e for e in steps
                if all(any(is_nonzero(e.gradient[i]) for i in part) for part in parts)
                and any(s.kind == "step" and s.optimizer is other for s in tape.in_call(e.call))
                ]  # fmt: skip
        agree = [_agreement(tape, e, other, sorted(others)) for e in both]
        if len(both) >= max(LEAST_STEPS, MOST * len(steps)) and fmean(agree) < WITH:
            yield Finding(
                "optimizer-holds-another", "warning",
                f"One optimizer holds all {len(others)} parameters of another and "
                f"{len(own - others)} more, and both step in each of {len(both)} calls: a network "
                "is moved by a loss that is not its own.",
                {"parameters": len(others), "more": len(own - others), "calls": len(both)},
                "optimizer_g = torch.optim.Adam(generator.parameters())  # not model.parameters()",
            )  # fmt: skip
            return


def _agreement(tape: Tape, step: Event, other: Any, index: list[int]) -> float:
    """Cosine between the gradients of a step and of another optimizer's in the same call."""
    theirs = [e for e in tape.in_call(step.call) if e.kind == "step" and e.optimizer is other]
    one, two = (_flat(e.gradient, index, tape.watched) for e in (step, theirs[-1]))
    return _between(one, two)


def both_answers(session: Session) -> Iterator[Finding]:
    """A network that should tell two kinds apart does not get one target for all that it sees."""
    tape, seen, alike = own_loop(session).tape, 0, []
    if len(steppers_of(tape)) < 2:
        raise NotChecked("fewer than two optimizers step")
    for step in tape.of("step"):
        before = tape.events[: tape.events.index(step)]
        ends = [n for n, e in enumerate(before) if e.kind == "backward" and e.call == step.call]
        if not ends:
            continue
        start = ends[-2] if len(ends) > 1 else 0
        met = [e for e in before[start : ends[-1]]
               if e.kind == "loss" and e.name == "bce_with_logits" and e.graph
               and e.call == step.call]  # fmt: skip
        if len(met) < 2 or not _trains_the_last_layer(tape, step, before[ends[-1]], met):
            continue
        seen += 1
        answers = {float(t) for e in met for t in (e.targets.min(), e.targets.max())}
        alike += answers if len(answers) == 1 else []
    if not seen:
        raise NotChecked("no network gets several targets in one backward")
    if len(alike) >= max(LEAST_STEPS, MOST * seen):
        yield Finding(
            "wrong-targets", "error",
            f"In {len(alike)} of {seen} updates a network gets several batches with the same "
            f"target for all of them ({alike[0]:g}): it learns to give that answer, and does not "
            "learn to tell anything apart.",
            {"updates": seen, "with_one_answer": len(alike), "answer": alike[0]},
            "loss_d = bce(d(real), ones) + bce(d(fake.detach()), zeros)",
        )  # fmt: skip


def _trains_the_last_layer(tape: Tape, step: Event, backward: Event, met: list[Event]) -> bool:
    """The optimizer holds the bias behind the outputs that the losses met: its gradient is what
    the losses have there, or half of that."""
    known = sum(float((e.inputs.double().sigmoid() - e.targets.double()).mean()) for e in met)
    for place in of_optimizer(tape, step.optimizer):
        old, new = backward.before[place], backward.after[place]
        if new is None or new.numel() != 1:
            continue
        added = float(new) - (0.0 if old is None else float(old))
        if any(abs(added - part * known) < NEAR for part in (1.0, 0.5)):
            return True
    return False


def _between(one: Tensor, other: Tensor) -> float:
    return float(one @ other / (one.norm() * other.norm()).clamp_min(TINY))


def _cosine(tape: Tape, step: Event) -> float | None:
    """Between what the last backward added and what was there, if another optimizer stepped
    between the two."""
    before = [e for e in tape.in_call(step.call) if e.kind in ("backward", "step")]
    before = before[: before.index(step)]
    backwards = [e for e in before if e.kind == "backward"]
    index = of_optimizer(tape, step.optimizer)
    if not backwards or not any(
        e.kind == "step" and e.optimizer is not step.optimizer
        and _shares_a_loss(tape, e, before[:place], set(index))
        for place, e in enumerate(before[: before.index(backwards[-1])])
    ):  # fmt: skip
        return None
    old, new = (_flat(which, index, backwards[-1].after) for which in (
        backwards[-1].before, backwards[-1].after))  # fmt: skip
    if not old.any() or not new.any() or _keeps_own(backwards[-1], index):
        return None
    added = new - old
    return _between(old, added)


def _shares_a_loss(tape: Tape, step: Event, before: list[Event], own: set[int]) -> bool:
    """A loss before another optimizer's step reached its weights and these: not only these, as the
    first half of a loss of their own does."""
    index = set(of_optimizer(tape, step.optimizer))
    met = [reached(e) for e in before if e.kind == "backward"]
    return any(r & own and r & (index - own or index) for r in met)


def _of_the_call_before(tape: Tape, step: Event) -> bool:
    """A gradient of an earlier call is left at a loss that reaches this optimizer's weights alone,
    and it is of a loss that reached another's, who stepped on it."""
    since = _since_its_last(tape, step)
    backwards = [e for e in since if e.kind == "backward"]
    now = [e for e in backwards if e.call == step.call]
    index = of_optimizer(tape, step.optimizer)
    own = set(index)
    if (
        not now
        or not reached(now[0]) <= own
        or not any(is_nonzero(now[0].before[i]) for i in index)
    ):
        return False
    return not _keeps_own(now[0], index) and any(
        e.kind == "step"
        and any(b.call < step.call and reached(b) & set(of_optimizer(tape, e.optimizer)) - own
                for b in backwards if since.index(b) < place)
        for place, e in enumerate(since)
    )  # fmt: skip


def _since_its_last(tape: Tape, step: Event) -> list[Event]:
    """Backwards and steps before this step, from its optimizer's step before on."""
    found: list[Event] = []
    for event in tape.events[: tape.events.index(step)]:
        if event.kind == "step" and event.optimizer is step.optimizer:
            found = []
        elif event.kind in ("backward", "step"):
            found.append(event)
    return found


def _keeps_own(last: Event, index: list[int]) -> bool:
    """Weights that the last loss reaches, and no loss before it did."""
    return any(
        is_nonzero(new) and not is_nonzero(old)
        for old, new in ((last.before[i], last.after[i]) for i in index)
    )


def _flat(gradient: list[Tensor | None], index: list[int], like: list[Tensor | None]) -> Tensor:
    parts = [gradient[i] if gradient[i] is not None else torch.zeros_like(like[i])
             for i in index if like[i] is not None]  # fmt: skip
    return torch.cat([p.flatten().double() for p in parts]) if parts else torch.zeros(1).double()
