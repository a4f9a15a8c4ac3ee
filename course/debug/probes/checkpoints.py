"""Probe on checkpoints: what is saved does not change later, and loading it restores everything.

Only if the author passes in `save` and `load`. Two runs start from the same snapshot, with the same
batches and the same random numbers: one continues after saving; the other makes as many different
steps, loads, and then makes the steps of the first. They must agree bit for bit.

Source: Lecture 3, "Checkpoint and resume"; ledger F69, B27, B39.
"""

from __future__ import annotations

import math
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from course.debug.probes.report import Finding, Severity
from course.debug.probes.session import NotChecked, Session
from course.debug.probes.traces import STEPS, Trace, differences, distance, run


def checkpoint(session: Session) -> Iterator[Finding]:
    """A run that was saved and loaded continues exactly like one that never stopped."""
    setup = session.setup
    if setup.save is None or setup.load is None:
        raise NotChecked("no save and load")
    if setup.train_step is None and setup.train is not None:
        raise NotChecked("needs train_step: which batches train() takes is not known")
    with tempfile.TemporaryDirectory() as folder:
        whole, again = run(session, None, folder), run(session, None, folder)
        if differences(whole.end, again.end):
            raise NotChecked("two runs from the same seed differ, so no resume can be compared")
        resumed = run(session, setup.load, folder)
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
    changed = differences(whole.at_save, whole.after_save)
    lasting = set(changed) & set(differences(whole.at_save, whole.end))
    put_back = not lasting and all(name.startswith("mode of") for name in changed)
    apart = [n for n in differences(whole.end, resumed.end) if not n.startswith("optimizer")]
    seen = Observed(
        resumed.refused, resumed.failed, changed, put_back, resumed.saved_moved,
        differences(whole.after_save, resumed.loaded), apart, distance(whole.end, resumed.end),
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
    if resumed.failed or differences(whole.end, resumed.end):
        return
    apart = [name for name in whole.scores if name in differences(whole.scores, resumed.scores)]
    if apart and not differences(whole.scores, again.scores):
        name = apart[0]
        yield Finding(
            "checkpoint-incomplete", "warning",
            "After load() the weights are those of an uninterrupted run, but evaluate() gives a "
            f"different {name}: what it scores, e.g. an average of the weights, is not loaded.",
            {"uninterrupted": whole.scores[name], "loaded": resumed.scores.get(name, math.nan)},
            'checkpoint["averaged"] = averaged.state_dict()\n'
            'averaged.load_state_dict(checkpoint["averaged"])',
        )  # fmt: skip


def _listed(names: list[str]) -> str:
    if not names:
        return ""
    return names[0] if len(names) == 1 else f"{names[0]} (with {len(names) - 1} more)"
