"""Probes on the metric: of the right data, a mean over examples, the same when asked twice."""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from torch import Tensor

from course.debug.probes.modes import close, evaluation_of
from course.debug.probes.report import Finding
from course.debug.probes.session import NotChecked, Session, pair


def which_data(session: Session) -> Iterator[Finding]:
    """Scoring reads the validation loader, training the training loader."""
    if session.setup.val_loader is None or session.setup.val_loader is session.setup.train_loader:
        if session.setup.val_loader is not None:
            yield Finding(
                "leak-overlap", "error",
                "val_loader is the train_loader: the score says nothing about new data.", {},
                "val_loader = DataLoader(val_set, batch_size)",
            )  # fmt: skip
            return
        raise NotChecked("no val_loader")
    train, val = session.setup.train_loader, session.setup.val_loader
    seen = evaluation_of(session)
    opened = {id(e.loader) for e in seen.tape.of("epoch")}
    if id(train) in opened and id(val) not in opened:
        yield Finding(
            "evaluates-training-data", "error",
            "evaluate() reads the train_loader and never the val_loader.", {},
            "for x, y in val_loader: ...",
        )  # fmt: skip
    if session.setup.train is not None and session.setup.train_step is None:
        loop = session.loop.tape
        trained_on = set()
        current = None
        for event in loop.events:
            if event.kind == "fetch":
                current = event.dataset
            elif event.kind == "step" and current is not None:
                trained_on.add(id(current))
        if id(getattr(val, "dataset", None)) in trained_on and getattr(
            train, "dataset", None
        ) is not getattr(val, "dataset", None):
            yield Finding(
                "trains-on-validation", "error",
                "Optimizer steps are made on batches of the val_loader.", {},
                "for x, y in train_loader: ...",
            )  # fmt: skip


def accuracy(session: Session) -> Iterator[Finding]:
    """The metric is the mean over examples, of the outputs in eval mode."""
    seen = evaluation_of(session)
    if session.setup.val_loader is None or not session.val_epoch.whole:
        raise NotChecked("no val_loader that can be read whole")
    told = {k: v for k, v in seen.first.items() if "acc" in k.lower() and "train" not in k.lower()}
    losses = {k: v for k, v in seen.first.items()
              if "loss" in k.lower() and "train" not in k.lower()}  # fmt: skip
    events = [e for e in seen.tape.of("forward") if e.call == 0]
    if any(any(e.submodes.values()) for e in events) or seen.moved or not events:
        raise NotChecked("evaluate() is not in plain eval mode")
    if len(events) != len(session.val_epoch.batches):
        if told and 0 < len(events) < len(session.val_epoch.batches):
            yield Finding(
                "metric-wrong", "warning",
                "evaluate() scores only a part of the val_loader.",
                {"batches_scored": len(events), "batches": len(session.val_epoch.batches)},
                "return correct / total  # after the loop over val_loader, not inside it",
            )  # fmt: skip
        return
    rates, counts, values = [], [], []
    for batch in session.val_epoch.batches:
        inputs, targets = pair(batch)
        outputs = session.predict(inputs)
        hits = _hits(outputs, session.place(targets))
        if hits is None:
            raise NotChecked("outputs and targets are no classes")
        rates.append(float(hits.float().mean()))
        counts.append(len(targets))
        with session.observe(), torch.no_grad():
            session.model.eval()
            values.append(float(session.loss(outputs, targets)))
    total = sum(counts)
    mean = sum(r * n for r, n in zip(rates, counts, strict=True)) / total
    by_batch = sum(rates) / len(rates)
    for name, value in told.items():
        scale = 100.0 if value > 1.0001 and close(value, 100 * mean, 0.02) else 1.0
        if close(value, mean * scale, 0.002):
            continue
        if close(value, by_batch, 1e-4) or close(value, 100 * by_batch, 1e-4):
            yield Finding(
                "metric-batch-mean", "warning",
                f"{name} is the mean over batches, not over examples: the short last batch counts "
                "as much as a full one.",
                {name: value, "mean_over_examples": mean, "last_batch": counts[-1]},
                "correct += (logits.argmax(1) == y).sum().item(); total += len(y)",
            )  # fmt: skip
        elif (value > 1.0001 and not 1 < value <= 100) or value < 0:
            yield Finding(
                "metric-wrong", "error",
                f"{name} = {value:.4g} is no share of examples; recomputed it is {mean:.4g}.",
                {name: value, "recomputed": mean}, "return correct / total_examples",
            )  # fmt: skip
        elif _plain_metric(session):
            yield Finding(
                "metric-wrong", "warning",
                f"{name} = {value:.4g}, but the same outputs and targets give {mean:.4g}.",
                {name: value, "recomputed": mean, "examples": total},
                "correct += (logits.argmax(dim=1) == targets).sum().item()\n"
                "total += len(targets)",
            )  # fmt: skip
    fair = sum(v * n for v, n in zip(values, counts, strict=True)) / total
    plain = sum(values) / len(values)
    for name, value in losses.items():
        if not close(value, fair, 0.02) and close(value, plain, 1e-3):
            yield Finding(
                "metric-batch-mean", "warning",
                f"{name} is the mean over batches, not over examples.",
                {name: value, "mean_over_examples": fair, "last_batch": counts[-1]},
                "total += loss.item() * len(y); count += len(y)",
            )  # fmt: skip


def _plain_metric(session: Session) -> bool:
    return session.task == "classification" and not session.declared.get("metric")


def _hits(outputs: Tensor, targets: Tensor) -> Tensor | None:
    if outputs.dim() == 2 and outputs.shape[1] > 1 and targets.dim() == 1:
        if targets.is_floating_point():
            return None
        return outputs.argmax(1) == targets
    return None


def repeats(session: Session) -> Iterator[Finding]:
    """Scoring twice gives the same score: nothing is carried over from the first time."""
    seen = evaluation_of(session)
    if any(any(e.submodes.values()) for e in seen.tape.of("forward")) or seen.moved:
        raise NotChecked("evaluate() is not in plain eval mode")
    differ = {
        k: (seen.first[k], seen.second.get(k, math.nan)) for k in seen.first
        if not close(seen.first[k], seen.second.get(k, math.nan), 1e-3)
        and "time" not in k.lower() and "sec" not in k.lower()
    }  # fmt: skip
    counts = [len([e for e in seen.tape.of("forward") if e.call == c]) for c in (0, 1)]
    if counts[1] == 0 < counts[0]:
        yield Finding(
            "loader-exhausted", "error",
            "The second evaluate() finds no batch: the loader is a generator or an iterator.",
            {"batches_first": counts[0], "batches_second": 0},
            "val_loader = DataLoader(val_set, batch_size)  # not iter(...)",
        )  # fmt: skip
    elif differ and counts[0] == counts[1] and counts[0]:
        firsts = [e.inputs for e in seen.tape.of("forward") if e.call == 0 and e.inputs is not None]
        seconds = [
            e.inputs for e in seen.tape.of("forward") if e.call == 1 and e.inputs is not None
        ]
        alike = len(firsts) == len(seconds) and all(
            a.shape == b.shape and torch.equal(a, b) for a, b in zip(firsts, seconds, strict=True)
        )
        outs = [e.output for e in seen.tape.of("output") if e.output is not None]
        half = len(outs) // 2
        stable = all(
            a.shape == b.shape and torch.equal(a, b)
            for a, b in zip(outs[:half], outs[half:], strict=False)
        )
        if alike and stable:
            name = next(iter(differ))
            yield Finding(
                "metric-not-reset", "warning",
                f"{name} differs between two calls on the same outputs "
                f"({differ[name][0]:.4g}, then {differ[name][1]:.4g}): sums are carried over "
                "from the call before.",
                {"first": differ[name][0], "second": differ[name][1]},
                "correct = total = 0  # at the start of every evaluate(); metric.reset()",
            )  # fmt: skip
