"""Probe on checkpoints: what is saved does not change later, and loading it restores everything.

Only if the author passes in `save` and `load`. Two runs start from the same snapshot, with the same
batches and the same random numbers: one continues after saving; the other makes as many different
steps, loads, and then makes the steps of the first. They must agree bit for bit.

Source: Lecture 3, "Checkpoint and resume"; ledger F69, B27, B39.
"""

from __future__ import annotations

import contextlib
import inspect
import math
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from course.debug.probes.report import Finding, Severity
from course.debug.probes.saved import holds_weights_alone, refusal
from course.debug.probes.session import NotChecked, Session, as_list, as_metrics, clone
from course.state.nested import tensors_in

STEPS = 4
"""Steps between saving and looking: whole windows of 2 or 4 micro-batches, too."""


@dataclass
class Trace:
    """What one run looked like."""

    at_save: dict[str, Any] = field(default_factory=dict)
    after_save: dict[str, Any] = field(default_factory=dict)
    """Right after `save()` returned: it should have changed nothing."""
    loaded: dict[str, Any] = field(default_factory=dict)
    end: dict[str, Any] = field(default_factory=dict)
    scores: dict[str, float] = field(default_factory=dict)
    """What `evaluate()` gives at the end."""
    saved_moved: int = 0
    """Tensors in what `save()` returned that later steps changed."""
    refused: str = ""
    """What safe loading said of the file."""
    failed: str = ""
    """What `load` raised."""
    weights_alone: bool = False
    """What was saved is weights by themselves, with no place for an optimizer."""


def checkpoint(session: Session) -> Iterator[Finding]:
    """A run that was saved and loaded continues exactly like one that never stopped."""
    setup = session.setup
    if setup.save is None or setup.load is None:
        raise NotChecked("no save and load")
    if setup.train_step is None and setup.train is not None:
        raise NotChecked("needs train_step: which batches train() takes is not known")
    with tempfile.TemporaryDirectory() as folder:
        whole, again = _run(session, None, folder), _run(session, None, folder)
        if _differences(whole.end, again.end):
            raise NotChecked("two runs from the same seed differ, so no resume can be compared")
        resumed = _run(session, setup.load, folder)
    yield from _judged(whole, resumed)
    yield from _scored(whole, again, resumed)


@dataclass(frozen=True)
class Observed:
    """How a run that was saved and loaded differs from one that went on."""

    refused: str
    failed: str
    changed: list[str]
    """What `save()` itself changed."""
    put_back: bool
    """Modes alone, and the next step puts them back."""
    saved_moved: int
    lost: list[str]
    """What `load()` did not bring back."""
    apart: list[str]
    """What differs some steps later; without it, whatever load() left out makes no difference."""
    distance: float
    weights_alone: bool

    @property
    def optimizer_only(self) -> bool:
        """Weights were saved, and they came back; only what goes with them in training did not."""
        return self.weights_alone and bool(self.lost) and all(
            name.startswith(("optimizer", "scheduler")) for name in self.lost
        )  # fmt: skip

    @property
    def modes_only(self) -> bool:
        return bool(self.lost) and all(name.startswith("mode of") for name in self.lost)

    def words(self) -> dict[str, Any]:
        """What messages may name."""
        unseen = "nothing that can be seen, e.g. a new optimizer,"
        return {
            "refused": self.refused, "failed": self.failed, "moved": self.saved_moved,
            "changed": _listed(self.changed), "lost": _listed(self.lost) or unseen,
            "apart": _listed(self.apart), "steps": STEPS,
        }  # fmt: skip

    def numbers(self) -> dict[str, Any]:
        """The evidence."""
        return {
            "changed_by_save": len(self.changed), "moved_after_save": self.saved_moved,
            "not_restored": len(self.lost), "first": (self.lost or self.changed or [""])[0],
            "largest_distance": self.distance,
        }  # fmt: skip


@dataclass(frozen=True)
class Rule:
    """One way to go wrong: when it holds, what it is called, what is said."""

    holds: Callable[[Observed], bool]
    id: str
    severity: Severity
    message: str
    fix: str
    ends: bool = False
    """What follows would only be its consequence."""


RULES = (
    Rule(lambda seen: bool(seen.refused), "checkpoint-refused", "warning",
         "torch.load(path, weights_only=True) refuses the file: {refused}",
         'state["folder"] = str(folder)  # plain values and tensors only'),
    Rule(lambda seen: bool(seen.failed), "checkpoint-refused", "error",
         "load() raises on what save() has just saved: {failed}",
         "state = model.state_dict()  # of the model itself, not of its "
         "wrapper;\nmodel.load_state_dict(state)  # and strict, so that names that do not fit are "
         "reported",
         ends=True),
    Rule(lambda seen: bool(seen.changed) and seen.put_back, "checkpoint-changes-model", "note",
         "save() itself changes {changed}, until the next step puts it back.",
         "was = model.training\nmodel.eval()\n...\nmodel.train(was)"),
    Rule(lambda seen: bool(seen.changed) and not seen.put_back, "checkpoint-changes-model", "error",
         "save() itself changes {changed}.",
         "was = model.training\nmodel.eval()\n...\nmodel.train(was)"),
    Rule(lambda seen: seen.saved_moved > 0, "checkpoint-by-reference", "error",
         "{moved} tensors of the state that save() returned changed in the next {steps} steps: "
         "state_dict() refers to the live weights, so the best is always the last.",
         "best = copy.deepcopy(model.state_dict())", ends=True),
    Rule(lambda seen: not seen.apart, "", "note", "", "", ends=True),
    Rule(lambda seen: seen.modes_only, "checkpoint-changes-model", "error",
         "After load() the modules are in a different mode from when they were saved ({lost}): "
         "training continues without dropout, or with frozen statistics.",
         "model.load_state_dict(state)\nmodel.train()", ends=True),
    Rule(lambda seen: seen.optimizer_only, "checkpoint-incomplete", "note",
         "save() gives the weights alone, and load() brings them back, but not {lost}: that "
         "serves to put back the best weights or to use the model. A run resumed from it is "
         "another one: {apart} differs {steps} steps later.",
         'checkpoint = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}  # to '
         "resume", ends=True),
    Rule(lambda seen: True, "checkpoint-incomplete", "error",
         "load() does not restore everything: {lost} is not what was saved; {steps} steps later "
         "{apart} differs from an uninterrupted run.",
         'checkpoint = {"model": model.state_dict(), "optimizer": optimizer.state_dict(),\n'
         '              "scheduler": scheduler.state_dict()}\n'
         'optimizer.load_state_dict(checkpoint["optimizer"])  # and so for each'),
)  # fmt: skip
"""In this order, until one ends it; the one without a name is a run that is the same."""


def _judged(whole: Trace, resumed: Trace) -> Iterator[Finding]:
    changed = _differences(whole.at_save, whole.after_save)
    lasting = set(changed) & set(_differences(whole.at_save, whole.end))
    put_back = not lasting and all(name.startswith("mode of") for name in changed)
    apart = [n for n in _differences(whole.end, resumed.end) if not n.startswith("optimizer")]
    seen = Observed(
        resumed.refused, resumed.failed, changed, put_back, resumed.saved_moved,
        _differences(whole.after_save, resumed.loaded), apart, _distance(whole.end, resumed.end),
        resumed.weights_alone,
    )  # fmt: skip
    for rule in RULES:
        if rule.holds(seen):
            if rule.id:
                said = rule.message.format(**seen.words())
                yield Finding(rule.id, rule.severity, said, seen.numbers(), rule.fix)
            if rule.ends:
                return


def _scored(whole: Trace, again: Trace, resumed: Trace) -> Iterator[Finding]:
    """Two runs that end with the same weights, and are scored apart."""
    if resumed.failed or _differences(whole.end, resumed.end):
        return
    apart = [name for name in whole.scores if name in _differences(whole.scores, resumed.scores)]
    if apart and not _differences(whole.scores, again.scores):
        name = apart[0]
        yield Finding(
            "checkpoint-incomplete", "warning",
            "After load() the weights are those of an uninterrupted run, but evaluate() gives a "
            f"different {name}: what it scores, e.g. an average of the weights, is not loaded.",
            {"uninterrupted": whole.scores[name], "loaded": resumed.scores.get(name, math.nan)},
            'checkpoint["averaged"] = averaged.state_dict()\n'
            'averaged.load_state_dict(checkpoint["averaged"])',
        )  # fmt: skip


def _run(session: Session, load: Callable | None, folder: str) -> Trace:
    """Steps, save, steps; with `load`: other steps, load, the same steps."""
    trace, file = Trace(), Path(folder) / "checkpoint.pt"
    size = max(STEPS, int(session.declared.get("accumulate", 1)))
    batches = session.epoch.batches
    with session.observe():
        session.model.train()
        _steps(session, batches, 0, size)
        trace.at_save = _state(session)
        saved = _call(session.setup.save, file, "save")
        trace.after_save = _state(session)
        kept = [t.detach().clone() for t in tensors_in(saved)]
        random = torch.get_rng_state()
        if load is not None:
            trace.refused = refusal(file)
            trace.weights_alone = holds_weights_alone(session.model, saved, file)
            _steps(session, list(reversed(batches)), 0, size)
            now = list(tensors_in(saved))
            trace.saved_moved = sum(
                a.shape != b.shape or not _same(a, b) for a, b in zip(kept, now, strict=True)
            )
            try:
                _call(load, file if saved is None or _wants(load) == "path" else saved, "load")
            except Exception as error:
                trace.failed = f"{type(error).__name__}: {str(error)[:160]}"
                return trace
            trace.loaded = _state(session)
        torch.set_rng_state(random)
        _steps(session, batches, size, size)
        trace.end = _state(session)
        with contextlib.suppress(Exception):  # a probe of its own says so
            trace.scores = as_metrics(session.setup.evaluate()) if session.setup.evaluate else {}
    return trace


def _steps(session: Session, batches: list[Any], first: int, number: int) -> None:
    for i in range(first, first + number):
        (session.setup.train_step or session.plain_step)(clone(batches[i % len(batches)]))


def _call(function: Callable, value: Any, name: str) -> Any:
    """`save()` or `save(path)`; `load(state)`, `load(path)` or `load()`."""
    try:
        takes = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        takes = [object()]
    needed = [p for p in takes if getattr(p, "default", None) is inspect.Parameter.empty
              and getattr(p, "kind", None) not in (inspect.Parameter.VAR_POSITIONAL,
                                                   inspect.Parameter.VAR_KEYWORD)]  # fmt: skip
    return function(value) if needed or (name == "load" and takes) else function()


def _wants(function: Callable) -> str:
    """`path` where the parameter's name says so."""
    with contextlib.suppress(TypeError, ValueError):
        first = next(iter(inspect.signature(function).parameters), "")
        return "path" if any(w in first.lower() for w in ("path", "file", "folder")) else "state"
    return "state"


def _state(session: Session) -> dict[str, Any]:
    """Weights, buffers, modes, and what optimizers and the scheduler remember, by name."""
    found: dict[str, Any] = {}
    names = {}
    for name, parameter in session.model.named_parameters():
        found[f"weight {name}"], names[id(parameter)] = parameter.detach().clone(), name
    for name, buffer in session.model.named_buffers():
        found[f"buffer {name}"] = buffer.detach().clone()
    for name, module in session.model.named_modules():
        found[f"mode of {name or 'the model'}"] = module.training
    for number, optimizer in enumerate(session.optimizers):
        where = f"optimizer {number}" if number else "optimizer"
        for group, held in enumerate(optimizer.param_groups):
            found[f"{where}: lr of group {group}"] = float(held.get("lr", 0.0))
        for parameter, state in optimizer.state.items():
            for key, value in state.items():
                label = f"{where}: {key} of {names.get(id(parameter), 'a tensor')}"
                found[label] = value.detach().clone() if isinstance(value, Tensor) else value
    for scheduler in as_list(session.setup.scheduler):
        found["scheduler: epoch"] = getattr(scheduler, "last_epoch", None)
    return found


def _differences(a: dict[str, Any], b: dict[str, Any]) -> list[str]:
    """Names of what is not the same, the weights first."""
    names = [*a, *(name for name in b if name not in a)]
    return [n for n in names if n not in a or n not in b or not _same(a[n], b[n])]


def _same(a: Any, b: Any) -> bool:
    if isinstance(a, Tensor) and isinstance(b, Tensor):
        return a.shape == b.shape and torch.equal(a.nan_to_num(), b.nan_to_num())
    return type(a) is type(b) and repr(a) == repr(b)


def _distance(a: dict[str, Any], b: dict[str, Any]) -> float:
    pairs = [(a[n], b[n]) for n in a if n.startswith("weight") and n in b]
    return max((float((x - y).abs().max()) for x, y in pairs if x.numel()), default=0.0)


def _listed(names: list[str]) -> str:
    if not names:
        return ""
    return names[0] if len(names) == 1 else f"{names[0]} (with {len(names) - 1} more)"
