"""Probes on modes: who trains in eval mode, who scores in train mode or with a graph."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import pairwise

import torch
from torch import Tensor

from course.debug.probes.report import Finding
from course.debug.probes.session import Evaluation, NotChecked, Session, clone, pair
from course.debug.probes.tape import Event, Tape


def eval_in_training(session: Session) -> Iterator[Finding]:
    """Dropout and batch norm are in train mode while training."""
    if session.setup.train_step is None and session.setup.train is None:
        raise NotChecked("no train_step or train")
    events = [e for e in session.loop.tape.of("forward") if e.grad]
    yield from _judge(session, events, "the training step")
    if session.setup.evaluate is not None and not _asleep(events):
        yield from _judge(session, _after_evaluate(session), "a training step after evaluate()")


def _asleep(events: list[Event]) -> bool:
    sensitive = [e for e in events if e.submodes]
    off = [e for e in sensitive if not e.training and not any(e.submodes.values())]
    return bool(sensitive) and len(off) >= 0.7 * len(sensitive)


def _judge(session: Session, events: list[Event], where: str) -> Iterator[Finding]:
    if _asleep(events):
        modes = events[-1].submodes
        if all(_all_frozen(session, name) for name in modes):
            return
        yield Finding(
            "eval-mode-in-training", "error",
            f"The model is in eval mode in {where}: dropout does nothing and batch norm keeps its "
            "old statistics.",
            {"layers_asleep": len(modes), "first": next(iter(modes))},
            "model.train()  # at the start of every epoch",
        )  # fmt: skip


def _all_frozen(session: Session, name: str) -> bool:
    parts = list(session.model.get_submodule(name).parameters())
    return bool(parts) and not any(p.requires_grad for p in parts)


def _after_evaluate(session: Session) -> list[Event]:
    tape = Tape(session.model, session.optimizers, session.setup.scheduler)
    with session.observe():
        session.model.train()
        try:
            session.setup.evaluate()
            with tape.running():
                if session.setup.train is not None:
                    session.setup.train(2)
                else:
                    session.setup.train_step(clone(session.epoch.batches[0]))
        except Exception as error:
            raise NotChecked(f"training after evaluate() raised {type(error).__name__}") from error
    return [e for e in tape.of("forward") if e.grad]


def _evaluation(session: Session) -> Evaluation:
    seen = session.evaluation
    if seen.error is not None:
        raise NotChecked(f"evaluate() raises {type(seen.error).__name__}: {str(seen.error)[:60]}")
    return seen


def train_in_eval(session: Session) -> Iterator[Finding]:
    """The model is in eval mode while it is scored."""
    seen = _evaluation(session)
    events = [e for e in seen.tape.of("forward") if e.call == 0]
    awake = [e for e in events if any(e.submodes.values())]
    differ = [k for k in seen.first if not close(seen.first[k], seen.second.get(k, math.nan))]
    root_awake = [e for e in awake if e.training]
    if awake and len(awake) >= 0.5 * len(events):
        repeated = _repeats(events)
        deliberate = not root_awake or repeated
        if deliberate and not seen.buffers_moved:
            yield Finding(
                "train-mode-in-eval", "note",
                "Dropout is active while scoring, over several passes: taken as Monte Carlo "
                "dropout, on purpose.",
                {"forwards": len(awake)},
            )  # fmt: skip
            return
        yield Finding(
            "train-mode-in-eval", "error",
            "evaluate() runs the model in train mode: dropout drops, batch norm uses the batch "
            "and moves its statistics.",
            {"forwards_in_train_mode": len(awake), "metrics_that_differ_on_repeat": differ,
             "buffers_moved": len(seen.buffers_moved)},
            "model.eval()\nwith torch.no_grad():\n    ...\nmodel.train()",
        )  # fmt: skip
    elif differ and events and not awake:
        yield from _stochastic(session, seen, events, differ)


def _repeats(events: list[Event]) -> bool:
    """The same inputs go through the model several times."""
    pairs = pairwise(events)
    return any(
        a.inputs is not None and b.inputs is not None and a.inputs.shape == b.inputs.shape
        and torch.equal(a.inputs, b.inputs)
        for a, b in pairs
    )  # fmt: skip


def _stochastic(
    session: Session, seen: Evaluation, events: list[Event], differ: list[str]
) -> Iterator[Finding]:
    inputs, _ = session.batch
    with session.observe(), torch.no_grad():
        session.model.eval()
        a, b = (session._first_tensor(session.call_model(inputs)) for _ in range(2))
    if a.shape == b.shape and _differ(a, b) and not _repeats(events):
        yield Finding(
            "train-mode-in-eval", "error",
            "The model gives another output at each call although it is in eval mode: "
            "F.dropout without training=self.training drops always.",
            {"largest_difference": float((a - b).abs().max()), "metrics": differ},
            "x = F.dropout(x, p, training=self.training)",
        )  # fmt: skip


def _differ(a: Tensor, b: Tensor) -> bool:
    """Other numbers; nan in the same places is no difference."""
    return not torch.allclose(a, b, rtol=0, atol=0, equal_nan=True)


def always_random(session: Session) -> Iterator[Finding]:
    """In eval mode the same inputs give the same outputs."""
    if session.setup.evaluate is not None:
        raise NotChecked("judged by what evaluate() does")
    inputs, _ = session.batch
    with session.observe(), torch.no_grad():
        session.model.eval()
        a, b = (session._first_tensor(session.call_model(inputs)) for _ in range(2))
    if a.shape == b.shape and _differ(a, b):
        yield Finding(
            "train-mode-in-eval", "warning",
            "The model gives another output at each call although it is in eval mode.",
            {"largest_difference": float((a.float() - b.float()).abs().max())},
            "x = F.dropout(x, p, training=self.training)",
        )  # fmt: skip


def no_grad(session: Session) -> Iterator[Finding]:
    """Scoring builds no graph and keeps none."""
    seen = _evaluation(session)
    outputs = [e for e in seen.tape.of("output") if e.call == 0]
    if not outputs:
        raise NotChecked("evaluate() does not call the model")
    used = seen.tape.of("backward") or seen.tape.of("autograd_grad")
    with_graph = [e for e in outputs if e.graph]
    if seen.alive >= max(2, 0.6 * len(outputs)):
        yield Finding(
            "undetached-logging", "error",
            f"After evaluate() {seen.alive} of {len(outputs)} graphs are still alive: losses or "
            "outputs are kept as tensors with their graph.",
            {"graphs_alive": seen.alive, "forwards": len(outputs)},
            "with torch.no_grad():\n    outputs.append(model(x).cpu())",
        )  # fmt: skip
    elif with_graph and not used:
        yield Finding(
            "no-grad-missing", "warning",
            "evaluate() builds a graph for every batch and never uses one: it takes more memory "
            "and time.",
            {"forwards_with_graph": len(with_graph), "forwards": len(outputs)},
            "@torch.no_grad()\ndef evaluate(): ...",
        )  # fmt: skip


def changes_model(session: Session) -> Iterator[Finding]:
    """Scoring leaves the weights as they are."""
    seen = _evaluation(session)
    if seen.moved and not seen.tape.of("step"):
        yield Finding(
            "evaluate-changes-model", "error",
            "The weights after evaluate() are not those before it.",
            {"optimizer_steps": 0},
            "state = copy.deepcopy(model.state_dict())  # and load it back after scoring",
        )  # fmt: skip
    elif seen.tape.of("step"):
        yield Finding(
            "evaluate-changes-model", "error",
            "evaluate() makes optimizer steps: the model is trained on what it is scored on.",
            {"optimizer_steps": len(seen.tape.of("step"))},
            "with torch.no_grad():\n    loss = loss_fn(model(x), y)  # no backward, no step",
        )  # fmt: skip


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
    seen = _evaluation(session)
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
    seen = _evaluation(session)
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
    seen = _evaluation(session)
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


def close(a: float, b: float, tolerance: float = 1e-6) -> bool:
    if math.isnan(a) or math.isnan(b):
        return math.isnan(a) and math.isnan(b)
    return a == b or abs(a - b) <= tolerance * max(1e-12, abs(a), abs(b))
