"""Relations on evaluate(): it does not change trained weights, and reports the loss it computes."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from course.debug.probes.loop import norm
from course.debug.probes.modes import close, evaluation_of
from course.debug.probes.report import Finding
from course.debug.probes.session import NotChecked, Session, clone, pair
from course.debug.probes.tape import Event, Tape
from course.debug.relations.program import program_of

FEW = 4
"""Steps after which an average of the weights is no longer the weights themselves."""
PUT_BACK = 1e-3
"""Distance of the weights after and before, over their size, that is no rounding of weights that
were changed and changed back; four steps of a slow rate move them by more."""
EXPONENTIAL = ("perplexity", "ppl")
"""Words of what is the exponential of a mean loss."""
NUMBERS = 1e-4
"""Relative difference of two losses that were added in another order."""


def left(session: Session) -> Iterator[Finding]:
    """After some steps, too, evaluate() leaves the weights as training made them.

    Weights from an earlier step of the same training may be its best, restored on purpose.
    """
    setup, seen = session.setup, evaluation_of(session)
    if seen.moved or seen.tape.of("step"):
        raise NotChecked("evaluate() already moves the weights before any step")
    if setup.train_step is None and setup.train is None:
        raise NotChecked("no train_step or train")
    tape = Tape(session.model, session.optimizers, setup.scheduler)
    with session.observe():
        session.model.train()
        try:
            with tape.running():
                _train_a_little(session)
            trained = [p.detach().clone() for p in session.model.parameters()]
            setup.evaluate()
        except Exception as error:
            raise NotChecked(f"the loop raises {type(error).__name__}") from error
        now, sampled = [p.detach().clone() for p in session.model.parameters()], tape.weights()
    if [p.shape for p in now] != [p.shape for p in trained]:
        raise NotChecked("the parameters are different tensors afterwards")
    moved, size = norm([a - b for a, b in zip(now, trained, strict=True)]), norm(trained)
    if moved > PUT_BACK * size:
        earlier = any(all(map(torch.equal, e.weights, sampled)) for e in tape.of("stepped"))
        yield Finding(
            "evaluate-changes-model", "note" if earlier else "error",
            f"After {FEW} steps evaluate() leaves weights in the model that differ from those "
            "training made: "
            + ("those of an earlier step, which is right only if training should continue from its "
                "best." if earlier else
               "an average or a best state is loaded for scoring and stays loaded."),
            {"moved_over_size": moved / max(size, NUMBERS), "steps": FEW},
            "kept = copy.deepcopy(model.state_dict())\nmodel.load_state_dict(average)\n"
            "...\nmodel.load_state_dict(kept)",
        )  # fmt: skip


def _train_a_little(session: Session) -> None:
    setup, batches = session.setup, program_of(session).batches
    if setup.train_step is None:
        setup.train(FEW)
        return
    for number in range(FEW):
        setup.train_step(clone(batches[number % len(batches)]))


def told_loss(session: Session) -> Iterator[Finding]:
    """A mean loss lies between the smallest and the largest loss of its batches.

    One below all of them was divided by too large a count, if dividing by a known wrong count gives
    it; a loss that is scaled or weighted on purpose is not reported. A perplexity is judged by its
    loss.
    """
    seen = evaluation_of(session)
    told = {k: _as_loss(k, v) for k, v in seen.first.items() if "train" not in k.lower()}
    told = {k: v for k, v in told.items() if v is not None}
    events = [e for e in seen.tape.of("loss") if e.call == 0]
    forwards = [e for e in seen.tape.of("forward") if e.call == 0]
    if not told or not events or len(events) != len(forwards):
        raise NotChecked("evaluate() returns no loss, or does not call a torch loss once per batch")
    counts = [_counted(e) for e in events]
    means = [_mean(e) for e in events]
    total = sum(m * n for m, n in zip(means, counts, strict=True))
    rows = sum(len(e.targets) for e in events)
    ways = {
        "positions, including those that do not count": total
        / sum(e.targets.numel() for e in events),
        "examples, though each batch added its mean": sum(means) / rows,
    }
    for name, value in told.items():
        below = 0 < value < min(means) * (1 - NUMBERS)
        way = next((what for what, other in ways.items() if close(value, other, NUMBERS)), None)
        if below and way and not _costs_so_much(session, value):
            yield Finding(
                "metric-wrong", "warning",
                f"{name} = {seen.first[name]:.4g} corresponds to a loss of {value:.4g}, less than "
                f"that of every batch; the mean of the batches is {total / sum(counts):.4g}: the "
                f"sum was divided by the number of {way}.",
                {name: seen.first[name], "loss": value, "mean": total / sum(counts),
                 "least_of_a_batch": min(means)},
                "total += loss.item() * counted\ncount += counted  # the same number",
            )  # fmt: skip
            return


def _as_loss(name: str, value: float) -> float | None:
    """The mean loss that a number of this name stands for; None: it is of another kind."""
    if any(word in name.lower() for word in EXPONENTIAL):
        return math.log(value) if 0 < value < math.inf else None
    return value if "loss" in name.lower() else None


def _counted(event: Event) -> int:
    """Targets that the loss counts."""
    if event.name not in ("cross_entropy", "nll_loss") or event.targets.is_floating_point():
        return event.targets.numel()
    left_out = _options(event).get("ignore_index", -100)
    return int((event.targets != left_out).sum())


def _options(event: Event) -> dict[str, Any]:
    if event.call_again is None or event.reduction == "none":
        raise NotChecked("losses of single numbers are weighted by the author")
    return event.call_again.keywords


def _mean(event: Event) -> float:
    """The loss of one batch as the mean of what it counts."""
    options = _options(event) | {"reduction": "mean"}
    with torch.no_grad():
        value: Tensor = event.call_again.func(event.inputs, event.targets, **options)
    if not math.isfinite(float(value)):
        raise NotChecked("a batch has no target that counts")
    return float(value)


def _costs_so_much(session: Session, value: float) -> bool:
    """The author's own loss of the validation batches has batches below that."""
    if session.setup.val_loader is None:
        return False
    costs = []
    for batch in session.val_epoch.batches:
        with contextlib.suppress(NotChecked), session.observe(), torch.no_grad():
            session.model.eval()
            costs.append(_cost(session, batch))
    return bool(costs) and min(costs) <= value * (1 + NUMBERS)


def _cost(session: Session, batch: Any) -> float:
    if session.setup.loss_of is not None:
        given = session.setup.loss_of(session.model, session.place_all(clone(batch)))
        return float(given if isinstance(given, Tensor) else given.value)
    inputs, targets = pair(batch)
    return float(session.loss(session._first_tensor(session.call_model(inputs)), targets))
