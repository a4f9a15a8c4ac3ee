"""Probes on modes: training in eval mode, scoring in train mode or with a graph."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn

from course.debug.probes.adapted import share_trained_on
from course.debug.probes.report import Finding
from course.debug.probes.session import Evaluation, NotChecked, Session, as_metrics, clone
from course.debug.probes.tape import Event, Tape
from course.debug.probes.thresholds import KEPT, OFTEN, TINY
from course.state import Snapshot

ASLEEP = 0.7
"""Share of the forwards with a graph that are in eval mode, from which training is: the others may
come before the first `evaluate()`."""
LONGEST_EPOCH = 64
"""Batches of an epoch up to which `train()` is followed beyond its end: about what the other
probes on the loop take together."""


def eval_in_training(session: Session) -> Iterator[Finding]:
    """Dropout and batch norm are in train mode during training.

    Only forwards count from whose graph an update's gradients come: a search for the worst inputs,
    labels that the model gives itself or a baseline may well be made in eval mode.
    """
    if session.setup.train_step is None and session.setup.train is None:
        raise NotChecked("no train_step or train")
    events = _that_count(session.loop.tape)
    yield from _judge(session, events, "the training step")
    if session.setup.evaluate is not None and not _asleep(events):
        after = _after_evaluate(session)
        yield from _judge(session, after, "a training step after evaluate()")
        if not _asleep(after):
            yield from _judge(session, _in_the_second_epoch(session), "the second epoch of train()")


def _that_count(tape: Tape) -> list[Event]:
    """Forwards through which gradients came to the weights that were not cleared before an update.

    All with a graph where none is seen to have got a gradient.
    """
    events = [e for e in tape.of("forward") if e.grad]
    if not any(e.info.get("pulls") for e in events):
        return events
    lost = _lost(tape)

    def counts(event: Event) -> bool:
        return not event.submodes or any(_leads_on(p, lost) for p in event.info.get("pulls", ()))

    return [e for e in events if counts(e)]


def _leads_on(pull: Event, lost: set[int]) -> bool:
    """A gradient that autograd.grad gives of inputs alone changes no weight, and one that backward
    gives does unless it is cleared."""
    return id(pull) not in lost if pull.kind == "backward" else not pull.cut


def _lost(tape: Tape) -> set[int]:
    """Ids of the backwards of which no gradient was left when the next came, without an update
    between them."""
    lost: set[int] = set()
    since: list[Event] = []
    updates = bool(tape.of("step"))
    for event in tape.events:
        if event.kind == "step":
            since = []
        elif event.kind == "backward" and updates and not event.inside_step:
            if not any(g is not None and bool(g.any()) for g in event.before):
                lost |= {id(e) for e in since}
                since = []
            since.append(event)
    return lost


def _asleep(events: list[Event]) -> bool:
    sensitive = [e for e in events if e.submodes]
    off = [e for e in sensitive if not e.training and not any(e.submodes.values())]
    return bool(sensitive) and len(off) >= ASLEEP * len(sensitive)


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
    return _that_count(tape)


def _in_the_second_epoch(session: Session) -> list[Event]:
    """Forward passes of `train()` after the first epoch, if something was evaluated between."""
    length = len(session.epoch.batches)
    if session.setup.train is None or not session.epoch.whole or length > LONGEST_EPOCH:
        return []
    tape = Tape(session.model, session.optimizers, session.setup.scheduler)
    with session.observe():
        session.model.train()
        try:
            with tape.running():
                session.setup.train(length + 2)
        except Exception as error:
            raise NotChecked(f"train({length + 2}) raised {type(error).__name__}") from error
    events = tape.of("forward")
    scored = [place for place, event in enumerate(events) if not event.grad]
    counting = {id(e) for e in _that_count(tape)}
    return [e for e in events[scored[-1] :] if id(e) in counting] if scored else []


def scored_with(session: Session, hook: Callable[..., Any]) -> dict[str, float]:
    """What evaluate() gives while a forward hook of the model exchanges its outputs.

    Raises:
        NotChecked: It raises then.
    """
    with session.observe():
        handle = session.model.register_forward_hook(hook)
        try:
            return as_metrics(session.setup.evaluate())
        except NotChecked:
            raise
        except Exception as error:
            raise NotChecked(f"evaluate() raises {type(error).__name__} then") from error
        finally:
            handle.remove()


def evaluation_of(session: Session) -> Evaluation:
    seen = session.evaluation
    if seen.error is not None:
        raise NotChecked(f"evaluate() raises {type(seen.error).__name__}: {str(seen.error)[:60]}")
    return seen


def train_in_eval(session: Session) -> Iterator[Finding]:
    """The model is in eval mode during scoring."""
    seen = evaluation_of(session)
    events = [e for e in seen.tape.of("forward") if e.call == 0]
    awake = [e for e in events if any(e.submodes.values())]
    differ = [k for k in seen.first if not close(seen.first[k], seen.second.get(k, math.nan))]
    root_awake = [e for e in awake if e.training]
    if awake and len(awake) >= OFTEN * len(events):
        repeated = _repeats(events)
        deliberate = not root_awake or repeated
        if deliberate and not seen.buffers_moved:
            yield Finding(
                "train-mode-in-eval", "note",
                "Dropout is active during scoring, over several passes: this is taken as intended "
                "Monte Carlo dropout.",
                {"forwards": len(awake)},
            )  # fmt: skip
            return
        yield Finding(
            "train-mode-in-eval", "error",
            "evaluate() runs the model in train mode: dropout drops units, and batch norm uses "
            "batch statistics and updates its running ones.",
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
    if a.shape == b.shape and _differ(a, b) and not (_repeats(events) or _keeps_state(session)):
        yield Finding(
            "train-mode-in-eval", "error",
            "The model gives a different output at each call although it is in eval mode: "
            "F.dropout without training=self.training always drops.",
            {"largest_difference": float((a - b).abs().max()), "metrics": differ},
            "x = F.dropout(x, p, training=self.training)",
        )  # fmt: skip


def _keeps_state(session: Session) -> bool:
    """The second output differs with the same random numbers too: it depends on the first call,
    which model.state looks at."""
    inputs, _ = session.batch
    with session.observe(), torch.no_grad():
        session.model.eval()
        generators = Snapshot()
        a = session._first_tensor(session.call_model(inputs))
        generators.restore()
        b = session._first_tensor(session.call_model(inputs))
    return a.shape == b.shape and _differ(a, b)


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
    if a.shape == b.shape and _differ(a, b) and not _keeps_state(session):
        yield Finding(
            "train-mode-in-eval", "warning",
            "The model gives a different output at each call although it is in eval mode.",
            {"largest_difference": float((a.float() - b.float()).abs().max())},
            "x = F.dropout(x, p, training=self.training)",
        )  # fmt: skip


def no_grad(session: Session) -> Iterator[Finding]:
    """Scoring neither builds nor keeps a graph."""
    seen = evaluation_of(session)
    outputs = [e for e in seen.tape.of("output") if e.call == 0]
    if not outputs:
        raise NotChecked("evaluate() does not call the model")
    used = seen.tape.of("backward") or seen.tape.of("autograd_grad")
    with_graph = [e for e in outputs if e.graph]
    if seen.alive >= max(2, KEPT * len(outputs)):
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
            "evaluate() builds a graph for every batch and never uses it, which costs memory and "
            "time.",
            {"forwards_with_graph": len(with_graph), "forwards": len(outputs)},
            "@torch.no_grad()\ndef evaluate(): ...",
        )  # fmt: skip


def changes_model(session: Session) -> Iterator[Finding]:
    """Scoring does not change the weights, and what it trains itself is scored on other rows."""
    seen = evaluation_of(session)
    steps = seen.tape.of("step")
    if seen.moved and not steps:
        yield Finding(
            "evaluate-changes-model", "error",
            "evaluate() changes the weights.",
            {"optimizer_steps": 0},
            "state = copy.deepcopy(model.state_dict())  # and load it back after scoring",
        )  # fmt: skip
    elif steps and (seen.moved or any(_holds(e.optimizer, session.model) for e in steps)):
        yield Finding(
            "evaluate-changes-model", "error",
            "evaluate() makes optimizer steps: the model is trained on the data it is scored on.",
            {"optimizer_steps": len(steps)},
            "with torch.no_grad():\n    loss = loss_fn(model(x), y)  # no backward, no step",
        )  # fmt: skip
    elif steps and (again := share_trained_on(session)) > OFTEN:
        yield Finding(
            "evaluate-changes-model", "error",
            f"evaluate() trains a network of its own ({len(steps)} steps), and {again:.0%} of the "
            "rows on which it is scored are rows on which it was trained: the score says nothing "
            "about new data.",
            {"optimizer_steps": len(steps), "rows_trained_on": again},
            "fast = adapted(copy.deepcopy(model), x[:k], y[:k])\nscore(fast(x[k:]), y[k:])",
        )  # fmt: skip


def _holds(optimizer: Any, model: nn.Module) -> bool:
    """The optimizer moves a parameter of the model."""
    own = {id(p) for p in model.parameters()}
    return any(id(p) in own for group in optimizer.param_groups for p in group["params"])


def close(a: float, b: float, tolerance: float = 1e-6) -> bool:
    if math.isnan(a) or math.isnan(b):
        return math.isnan(a) and math.isnan(b)
    return a == b or abs(a - b) <= tolerance * max(TINY, abs(a), abs(b))
