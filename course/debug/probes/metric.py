"""Probes on the metric: on the right data, a mean over examples, the same when computed twice.

What `evaluate()` returned is compared with a plain evaluation of the same batches; `RULES` says
what each kind of difference means.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import IterableDataset

from course.debug.probes.accuracies import other_accuracies
from course.debug.probes.classes import are_classes, is_plain, met_as_they_are
from course.debug.probes.ideal import counts_in_its_way
from course.debug.probes.modes import close, evaluation_of
from course.debug.probes.one_table import holds_both_sides
from course.debug.probes.report import Finding, Severity
from course.debug.probes.session import Evaluation, NotChecked, Session, pair
from course.debug.probes.tape import Event
from course.state.nested import tensors_in

EQUAL = 0.002
"""Relative difference of two accuracies that are the same: three digits are what people print."""
EQUAL_LOSS = 0.02
"""The same for losses, which weights and label smoothing may move a little."""
BY_BATCH = 1e-4
"""Relative difference from the mean over batches: it is met exactly or not at all."""
BY_BATCH_LOSS = 1e-3
REPEATED = 1e-3
"""Relative difference of two evaluations of one model; kernels that add in any order stay below."""
PERCENT = 1.0001
"""An accuracy above is one in per cent, or none."""
ALL_IN_PERCENT = 100
"""The largest accuracy there is, in per cent."""


def which_data(session: Session) -> Iterator[Finding]:
    """Scoring reads the validation loader, and training reads the training loader."""
    train, val = session.setup.train_loader, session.setup.val_loader
    if val is None:
        raise NotChecked("no val_loader")
    if val is train and _says_other_examples(session):
        raise NotChecked("one loader gives both sides")
    if val is train:
        yield Finding(
            "leak-overlap", "error",
            "val_loader is the train_loader: the score says nothing about new data.", {},
            "val_loader = DataLoader(val_set, batch_size)",
        )  # fmt: skip
        return
    seen = evaluation_of(session)
    opened = {id(e.loader) for e in seen.tape.of("epoch")}
    reads_training = id(train) in opened and id(val) not in opened
    if reads_training and not holds_both_sides(session):
        yield Finding(
            "evaluates-training-data", "error",
            "evaluate() reads the train_loader and never the val_loader.", {},
            "for x, y in val_loader: ...",
        )  # fmt: skip
    own = getattr(val, "dataset", None)
    if own is not getattr(train, "dataset", None) and id(own) in _trained_on(session):
        yield Finding(
            "trains-on-validation", "error",
            "Optimizer steps are made on batches of the val_loader.", {},
            "for x, y in train_loader: ...",
        )  # fmt: skip


def _says_other_examples(session: Session) -> bool:
    """Of one loader, validation still gets other examples: other rows of one table, or new ones of
    a stream that makes them up."""
    data = getattr(session.setup.val_loader, "dataset", None)
    if not isinstance(data, IterableDataset):
        return holds_both_sides(session)
    with session.observe():
        first, second = (
            {row.numpy().tobytes() for b in islice(session.setup.val_loader, 2)
             for t in tensors_in(b) if t.is_floating_point() and t.dim() > 1
             for row in t.detach().cpu().contiguous()}
            for _ in range(2)
        )  # fmt: skip
    return bool(second) and not first & second


def _trained_on(session: Session) -> set[int]:
    """Ids of the data sets whose batches a step followed, in a `train` of the author's."""
    if session.setup.train is None or session.setup.train_step is not None:
        return set()
    found, current = set(), None
    for event in session.loop.tape.events:
        if event.kind == "fetch":
            current = event.dataset
        elif event.kind == "step" and current is not None:
            found.add(id(current))
    return found


@dataclass(frozen=True)
class Plain:
    """A plain evaluation of the validation batches, batch by batch."""

    counts: list[int]
    rates: list[float]
    """Share of right answers in each batch."""
    costs: list[float]
    """Loss of each batch; nan where there is no loss_fn."""
    outputs: list[Tensor]
    targets: list[Tensor]

    def by_example(self, values: list[float]) -> float:
        return sum(v * n for v, n in zip(values, self.counts, strict=True)) / sum(self.counts)

    @staticmethod
    def by_batch(values: list[float]) -> float:
        return sum(values) / len(values)


@dataclass(frozen=True)
class Observed:
    """One number from `evaluate()` next to the same number computed here."""

    name: str
    value: float
    mean: float
    """Over examples."""
    by_batch: float
    """Over batches."""
    examples: int
    last_batch: int
    is_plain: bool
    """The task is classification, no metric of another kind is declared, and neither another
    network was scored nor a part of the model alone, e.g. an older head of it."""
    usual: list[float]
    """Other numbers that are also called an accuracy."""

    @property
    def is_mean(self) -> bool:
        percent = self.value > PERCENT and close(self.value, 100 * self.mean, EQUAL_LOSS)
        return close(self.value, self.mean * (100 if percent else 1), EQUAL)

    @property
    def is_by_batch(self) -> bool:
        return any(close(self.value, scale * self.by_batch, BY_BATCH) for scale in (1, 100))

    @property
    def is_usual(self) -> bool:
        return any(close(self.value, s * u, EQUAL) for s in (1, 100) for u in self.usual)

    @property
    def is_no_share(self) -> bool:
        return self.value < 0 or self.value > ALL_IN_PERCENT


@dataclass(frozen=True)
class Rule:
    """What one kind of difference means."""

    holds: Callable[[Observed], bool]
    id: str
    severity: Severity
    message: str
    fix: str


RULES = (
    Rule(lambda seen: seen.is_by_batch, "metric-batch-mean", "warning",
         "{name} is the mean over batches, not over examples: the short last batch has the same "
         "weight as a full one.",
         "correct += (logits.argmax(1) == y).sum().item(); total += len(y)"),
    Rule(lambda seen: seen.is_no_share and not seen.is_usual, "metric-wrong", "error",
         "{name} = {value:.4g} is not a share of examples; recomputed, it is {mean:.4g}.",
         "return correct / total_examples"),
    Rule(lambda seen: seen.is_plain and not seen.is_usual, "metric-wrong", "warning",
         "{name} = {value:.4g}, but the same outputs and targets give {mean:.4g}.",
         "correct += (logits.argmax(dim=1) == targets).sum().item()\ntotal += len(targets)"),
)  # fmt: skip
"""For an accuracy that is not the mean over examples; the first rule that holds is reported."""


def accuracy(session: Session) -> Iterator[Finding]:
    """The metric is the mean over examples, computed from the outputs in eval mode."""
    seen = evaluation_of(session)
    if not session.val_epoch.whole:
        raise NotChecked("the val_loader cannot be read whole")
    events = [e for e in seen.tape.of("forward") if e.call == 0]
    if any(any(e.submodes.values()) for e in events) or seen.moved or not events:
        raise NotChecked("evaluate() is not in plain eval mode")
    rates, batches = _named(seen, "acc"), session.val_epoch.batches
    if not met_as_they_are(events, session):
        raise NotChecked("evaluate() gives the model other inputs than the val_loader's batches")
    if len(events) != len(batches):
        if rates and len(events) < len(batches) and _fewer_rows(events, batches):
            yield _of_a_part(len(events), len(batches))
        return
    plain = _evaluated(session)
    for name, value in rates.items():
        yield from _judged(session, _observed(session, plain, plain.rates, name, value))
    for name, value in _named(seen, "loss").items():
        one = _observed(session, plain, plain.costs, name, value)
        if not close(value, one.mean, EQUAL_LOSS) and close(value, one.by_batch, BY_BATCH_LOSS):
            yield Finding(
                "metric-batch-mean", "warning",
                f"{name} is the mean over batches, not over examples.",
                {name: value, "mean_over_examples": one.mean, "last_batch": one.last_batch},
                "total += loss.item() * len(y); count += len(y)",
            )  # fmt: skip


def _named(seen: Evaluation, word: str) -> dict[str, float]:
    """Numbers of `evaluate()` with this word in their name, without those of training."""
    return {
        k: v for k, v in seen.first.items() if word in k.lower() and "train" not in k.lower()
    }  # fmt: skip


def _fewer_rows(events: list[Event], batches: list[Any]) -> bool:
    """The model did not get as many examples as the loader has: it may get all in one call."""
    if any(e.inputs is None or not e.inputs.dim() for e in events):
        return True
    rows = sum(len(next(iter(tensors_in(batch)))) for batch in batches)
    return sum(len(e.inputs) for e in events) < rows


def _of_a_part(scored: int, batches: int) -> Finding:
    return Finding(
        "metric-wrong", "warning", "evaluate() scores only part of the val_loader.",
        {"batches_scored": scored, "batches": batches},
        "return correct / total  # after the loop over val_loader, not inside it",
    )  # fmt: skip


def _evaluated(session: Session) -> Plain:
    plain = Plain([], [], [], [], [])
    for batch in session.val_epoch.batches:
        inputs, targets = pair(batch)
        outputs = session.predict(inputs)
        hits = _hits(outputs, session.place(targets))
        if hits is None:
            raise NotChecked("outputs and targets are not classes")
        plain.rates.append(float(hits.float().mean()))
        plain.counts.append(len(targets))
        plain.outputs.append(outputs.detach())
        plain.targets.append(session.place(targets))
        if session.loss_fn is None:
            plain.costs.append(math.nan)
            continue
        with session.observe(), torch.no_grad():
            session.model.eval()
            plain.costs.append(float(session.loss(outputs, targets)))
    return plain


def _hits(outputs: Tensor, targets: Tensor) -> Tensor | None:
    classes = outputs.dim() == 2 and outputs.shape[1] > 1 and targets.dim() == 1
    if not classes or targets.is_floating_point():
        return None
    if int(targets.max()) >= outputs.shape[1]:  # columns are no classes, e.g. thresholds of grades
        return None
    return outputs.argmax(1) == targets


def _observed(
    session: Session, plain: Plain, values: list[float], name: str, value: float
) -> Observed:
    is_plain = (
        session.task == "classification"
        and not session.declared.get("metric")
        and not session.evaluation.tape.other_networks
        and not session.evaluation.tape.parts_alone
    )
    return Observed(
        name, value, plain.by_example(values), plain.by_batch(values), sum(plain.counts),
        plain.counts[-1], is_plain,
        other_accuracies(torch.cat(plain.outputs), torch.cat(plain.targets)),
    )  # fmt: skip


def _judged(session: Session, one: Observed) -> Iterator[Finding]:
    """What is wrong with an accuracy; one that is not the share of examples is called wrong only
    if outputs and targets are all that it may be of."""
    if one.is_mean:
        return
    for rule in RULES:
        if rule.holds(one):
            if rule.id == "metric-wrong" and (
                not (is_plain(one.name) and are_classes(session))
                or counts_in_its_way(session, one.name)
            ):
                return
            evidence = {one.name: one.value, "mean_over_examples": one.mean,
                        "examples": one.examples, "last_batch": one.last_batch}  # fmt: skip
            message = rule.message.format(name=one.name, value=one.value, mean=one.mean)
            yield Finding(rule.id, rule.severity, message, evidence, rule.fix)
            return


def repeats(session: Session) -> Iterator[Finding]:
    """Scoring twice gives the same score: nothing is carried over from the first evaluation."""
    seen = evaluation_of(session)
    if any(any(e.submodes.values()) for e in seen.tape.of("forward")) or seen.moved:
        raise NotChecked("evaluate() is not in plain eval mode")
    if seen.tape.other_networks:
        raise NotChecked("evaluate() asks another network too, which may answer differently")
    counts = [len([e for e in seen.tape.of("forward") if e.call == c]) for c in (0, 1)]
    if counts[1] == 0 < counts[0]:
        yield Finding(
            "loader-exhausted", "error",
            "The second evaluate() finds no batches: the loader is a generator or an iterator.",
            {"batches_first": counts[0], "batches_second": 0},
            "val_loader = DataLoader(val_set, batch_size)  # not iter(...)",
        )  # fmt: skip
        return
    differ = [
        k for k, v in seen.first.items()
        if not close(v, seen.second.get(k, math.nan), REPEATED)
        and "time" not in k.lower() and "sec" not in k.lower()
    ]  # fmt: skip
    if differ and counts[0] == counts[1] > 0 and _same_calls(seen):
        name = differ[0]
        first, second = seen.first[name], seen.second.get(name, math.nan)
        yield Finding(
            "metric-not-reset", "warning",
            f"{name} differs between two calls on the same outputs ({first:.4g}, then "
            f"{second:.4g}): sums are carried over from the first call.",
            {"first": first, "second": second},
            "correct = total = 0  # at the start of every evaluate(); metric.reset()",
        )  # fmt: skip


def _same_calls(seen: Evaluation) -> bool:
    """Both evaluations gave the model the same and got the same."""
    firsts, seconds = (
        [e.inputs for e in seen.tape.of("forward") if e.call == call and e.inputs is not None]
        for call in (0, 1)
    )
    outs = [e.output for e in seen.tape.of("output") if e.output is not None]
    half = len(outs) // 2
    pairs = [*zip(firsts, seconds, strict=False), *zip(outs[:half], outs[half:], strict=False)]
    alike = all(a.shape == b.shape and torch.equal(a, b) for a, b in pairs)
    return len(firsts) == len(seconds) and alike
