"""The doctor: pass in a training set-up, get back what is wrong with it, most likely first.

    report = diagnose(dict(model=model, loss_fn=loss_fn, optimizer=optimizer,
                           train_loader=train_loader, train_step=train_step, evaluate=evaluate))

The set-up is run for a few dozen steps and watched from outside; nothing is judged by its name.
Afterwards it is exactly as it was, bit for bit. Alarms are meant to be few: what may be intentional
is only a note, and what the author declares is not mentioned.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

from course.debug.probes import (
    accumulation,
    activations,
    answers,
    axes,
    between,
    checkpoints,
    clearing,
    clipping,
    data,
    draws,
    frozen,
    groups,
    metric,
    modes,
    multiples,
    numbers,
    pairing,
    progress,
    ranges,
    rates,
    rescored,
    schedule,
    scored,
    shifted,
    splits,
    stepping,
    structure,
    sums,
)
from course.debug.probes.report import SPENT, Finding, Report
from course.debug.probes.session import FORWARDS, PLACES, NotChecked, Session
from course.debug.probes.setup import as_setup
from course.debug.relations import RELATIONS, direction
from course.debug.relations.pairs import places_in

PROBES: tuple[Callable[[Session], Iterator[Finding]], ...] = (
    data.empty, numbers.raises, data.memory_shared, data.contract, data.single_class,
    data.second_epoch, draws.same_draws, splits.groups, splits.times, splits.split, splits.items,
    multiples.scaled, splits.preprocessing, splits.label_shift, data.wrapped_bytes,
    answers.target_in_inputs, answers.shuffled_in_step, answers.shuffled_between_epochs,
    answers.unrelated, pairing.broadcast,
    pairing.classes_as_numbers, activations.double_softmax, activations.softmax_in_the_loss,
    activations.double_sigmoid, activations.missing_log_softmax, pairing.rows_mixed,
    axes.logits_reshaped, axes.padding, structure.hidden_modules, structure.plain_tensors,
    structure.membership, structure.another_model, frozen.freezes_nothing, frozen.frozen,
    frozen.frozen_drift, groups.weight_decay, groups.zero_rate, groups.batch_of_one,
    clearing.clearing, clearing.thrown_away, stepping.uphill, between.reseeded, stepping.erased,
    stepping.stepping, clipping.clip_place, accumulation.accumulation, accumulation.wasted,
    progress.undone, schedule.schedule, schedule.factor, schedule.at_rest, schedule.of_another,
    between.kept_graphs, between.skipped, modes.changes_model, modes.eval_in_training,
    modes.train_in_eval, modes.always_random, modes.no_grad, metric.which_data, sums.stands_still,
    metric.accuracy, rescored.accuracy, rescored.from_zero, metric.repeats, scored.another_model,
    scored.smoothed_loss, checkpoints.checkpoint, *RELATIONS, shifted.covariate_shift,
    ranges.unnormalised, numbers.finite, numbers.underflow, rates.start, numbers.dead_units,
    rates.too_large, rates.too_small, rates.outweighed, pairing.reads_inputs, progress.downhill,
)  # fmt: skip

SYMPTOMS = {
    "non-finite-loss", "dead-relu", "lr-too-large", "lr-too-small", "inputs-ignored",
    "metric-wrong", "metric-batch-mean", "raises", "loss-rises", "checkpoint-incomplete",
}  # fmt: skip
"""What another bug can cause: listed after the others, and only as notes if there is an error."""
OUTCOMES = (direction.follows,)
"""Probes that see what training comes to and not why: what they find is left out where another
probe names a cause."""


def diagnose(setup: Any, *, budget: int = FORWARDS) -> Report:
    """Watch a training set-up for a few dozen steps and say what is wrong with it.

    Args:
        setup: Mapping, dataclass or object with `model`, `loss_fn`, `optimizer`, `train_loader`
            (or `loss_of`) and, if available, `val_loader, scheduler, num_classes, task, train_step,
            train, evaluate, save, load, groups, declared`; `help(course.debug.Setup)` explains
            each.
        budget: Forward passes of the model after which no further experiment is started: counted,
            not timed, so that a busy machine finds the same.

    Returns:
        Findings, most likely first, and what was and was not checked. The set-up, its gradients,
        modes, hooks, generators and the global random number generators are as before.
        `museum.cannot_see` lists what even a clean report does not rule out.

    Raises:
        ValueError: A required part is missing.

    Source: Lecture 3, "The debug ladder"; ledger section B.
    """
    started = time.perf_counter()
    session = Session(as_setup(setup), budget)
    found: list[Finding] = []
    outcomes: list[Finding] = []
    checked: list[str] = []
    skipped: dict[str, str] = {}
    try:
        if session.setup.evaluate is not None:
            session.evaluation  # noqa: B018 (first: an iterator in it can be read only once)
        PLACES.set(places_in(session))
        session.loss_fn  # noqa: B018 (before any experiment: looking for it runs the loop)
        for probe in PROBES:
            name = _name(probe)
            if session.is_spent():
                skipped[name] = SPENT
                continue
            try:
                (outcomes if probe in OUTCOMES else found).extend(probe(session))
                checked.append(name)
            except NotChecked as reason:
                skipped[name] = str(reason)
            except Exception as error:
                skipped[name] = f"{type(error).__name__}: {str(error)[:120]}"
    finally:
        session.kept.restore()
        PLACES.set(None)
    if not any(finding.is_alarm and finding.id not in SYMPTOMS for finding in found):
        found += outcomes
    findings = _ordered(_without(found, session.declared.get("allow", ())))
    titles = {_name(probe): _asks(probe) for probe in PROBES}
    return Report(findings, checked, skipped, time.perf_counter() - started, titles)


def _name(probe: Callable) -> str:
    return f"{probe.__module__.rsplit('.', 1)[-1]}.{probe.__name__}"


def _asks(probe: Callable) -> str:
    """The first paragraph of what a probe says of itself."""
    return " ".join((probe.__doc__ or probe.__name__).split("\n\n")[0].split())


def _without(found: list[Finding], allowed: Any) -> list[Finding]:
    allowed = {allowed} if isinstance(allowed, str) else set(allowed)
    return [finding for finding in found if finding.id not in allowed]


def _ordered(found: list[Finding]) -> list[Finding]:
    """Each class once, as an alarm if there is one; causes before symptoms, errors before warnings
    before notes."""
    unique = {f.id: f for f in reversed(sorted(found, key=lambda f: not f.is_alarm))}
    first = [f for f in found if unique[f.id] is f]
    rank = {"error": 0, "warning": 1, "note": 2}
    causes = [f for f in first if f.is_alarm and f.id not in SYMPTOMS]
    return sorted(
        first,
        key=lambda f: (not f.is_alarm, bool(causes) and f.id in SYMPTOMS, rank[f.severity]),
    )
