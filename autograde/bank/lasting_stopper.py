"""03g.stopper: early stopping whose count survives a resume."""

from __future__ import annotations

import copy
import io
import math
from functools import partial
from typing import Any

import numpy as np
import torch

from autograde.apart import in_a_process
from autograde.bank.harness import read_safely
from autograde.exercise import Answer, AnswerError, Case, Draw, Exercise, Part, Wrong, kept
from course.engine.stopping import EarlyStopping

BIT = 2.0**-40
"""Below what float32 can tell of the losses: a best that was rounded is another one."""
HIGH = 1e9
"""A loss that is an improvement on nothing but inf."""


def draw(source: Draw, part: str) -> Case:
    """Losses, patience, and after which epochs the run is cut.

    The second case begins with losses of nan and inf, and a finite one beyond any that one may
    call the highest.
    """
    patience = source.integer(2, 4)
    bit = BIT if source.slack is None else 0.0  # a case to be read has short numbers
    low, step = source.integer(40, 60) / 64 - bit, 1 / 64  # exact in binary, not in float32
    if part == "cut" and source.index:
        low = 4 * step  # the best loss is 0
    small = part in ("whole", "cut")
    fall = (2 - source.index % 2) * step if small else 0.0  # exactly min_delta, or less

    def worse(number: int) -> list[float]:
        return [low + step * source.integer(1, 5) for _ in range(number)]

    best = low - 4 * step
    early = patience if source.index == 1 else 0  # as a run begins that an overflow spoils at once
    losses = [*[math.nan] * (early - 1), math.inf, HIGH] if early else []
    losses += [low + 6 * step, low + 3 * step, low, *worse(patience - 1), best]
    losses += [math.nan, math.nan, low, best - fall]
    losses.append(best - 3 * step)  # improves, after a True, on the best and not on best - fall
    losses += [*worse(2 * patience - 2), math.nan, math.nan]  # twice patience: a second True, too
    case = {"losses": losses, "patience": patience, "min_delta": 2 * step if small else 0.0}
    cuts = {"whole": [], "file": [2]}.get(part, range(len(losses)))
    if source.slack is not None and len(cuts) > 1:
        cuts = cuts[source.integer(0, 4) :: 5]
    return {**case, "cuts": list(cuts), "longer": 2 * (part == "longer"), "numpy": part == "file",
            "double": part == "cut" and source.index == 1}  # fmt: skip


def run(function, case: Case, device: torch.device) -> Answer:
    """What update() says epoch by epoch: without a cut, or for each cut, from there on."""
    losses = [np.float64(x) if case["numpy"] else x for x in case["losses"]]
    answer, states = in_a_process(partial(_whole, function, case, losses))
    if not case["cuts"]:
        return answer
    taken = [_read(state) for state in states]  # all that is known of the first object
    resumed = {
        str(cut): _resumed(function, case, taken[cut], losses[cut + 1 :]) for cut in case["cuts"]
    }
    return {
        **answer,
        "file": kept(_through_a_file, taken[case["cuts"][0]]),
        "resumed": {cut: said for cut, (said, _) in resumed.items()},
        "loaded": {cut: state for cut, (_, state) in resumed.items()},
    }


def _whole(function, case: Case, losses: list[float]) -> tuple[Answer, list[bytes]]:
    """What one object says epoch by epoch, and its state after each, as in a file."""
    stopper = function(case["patience"], case["min_delta"])
    for name in ("update", "state_dict", "load_state_dict"):
        if not callable(getattr(stopper, name, None)):
            raise AnswerError(f"Your object has no method {name}().")
    said, states, taken = [], [], []
    for loss in losses:
        said.append(_said(stopper, loss))
        states.append(stopper.state_dict())
        taken.append(copy.deepcopy(states[-1]))
    moved = [i for i, (now, then) in enumerate(zip(states, taken, strict=True))
             if repr(now) != repr(then)]  # fmt: skip
    return {"said": said, "moved": moved}, [_written(state) for state in taken if case["cuts"]]


def _written(state: Any) -> bytes:
    file = io.BytesIO()
    try:
        torch.save(state, file)
    except Exception as error:
        kind = type(error).__name__
        raise AnswerError(
            f"Saving what state_dict() gave raises {kind}: put plain numbers into the state."
        ) from None
    return file.getvalue()


def _read(state: bytes) -> Any:
    return torch.load(io.BytesIO(state), weights_only=False)


def _said(stopper: Any, loss: float) -> bool:
    stop = stopper.update(loss)
    if not isinstance(stop, bool):
        kind = type(stop).__name__
        raise AnswerError(f"update() returned a {kind}; return True to stop, False otherwise.")
    return stop


def _resumed(function, case: Case, state: Any, losses: list[float]) -> tuple[list[bool], str]:
    """A new object goes on from a state; from a state of its own once more, where asked.

    Returns:
        What update() says, and whether the state that was loaded is still what it was.
    """
    for _ in range(1 + case["double"]):
        stopper = function(case["patience"] + case["longer"], case["min_delta"])
        given = copy.deepcopy(state)
        stopper.load_state_dict(given)
        loaded, state = state, stopper.state_dict()
    said = [_said(stopper, loss) for loss in losses]
    return said, "as it was" if repr(given) == repr(loaded) else "changed"


def _through_a_file(state: Any) -> str:
    if not isinstance(state, dict) or not state:
        raise AnswerError(f"state_dict() gave {state!r:.40}; return a dictionary with the state.")
    file = io.BytesIO()
    try:
        torch.save(state, file)
        file.seek(0)
        read_safely(file)
    except Exception as error:
        kind = type(error).__name__
        raise AnswerError(
            f"Saved and loaded with weights_only=True the state raises {kind}: put plain numbers "
            "into it, such as float(loss)."
        ) from None
    return "loads safely"


class Reference:
    """The course's own."""

    def __init__(self, patience: int, min_delta: float) -> None:
        self.rule = EarlyStopping(patience, min_delta=min_delta)

    def update(self, val_loss: float) -> bool:
        return self.rule.update(float(val_loss))

    def state_dict(self) -> dict[str, Any]:
        return self.rule.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.rule.load_state_dict(state)


def reference(patience: int, min_delta: float) -> Reference:
    """What `run` builds."""
    return Reference(patience, min_delta)


class Stopper:
    """A right answer; the wrong ones change one method of it."""

    def __init__(self, patience, min_delta):
        self.patience, self.min_delta = patience, min_delta
        self.best, self.waited = math.inf, 0

    def update(self, val_loss):
        if val_loss < self.best - self.min_delta:
            self.best, self.waited = float(val_loss), 0
        else:
            self.waited += 1
        return self.waited >= self.patience

    def state_dict(self):
        return {"best": self.best, "waited": self.waited}

    def load_state_dict(self, state):
        self.best, self.waited = state["best"], state["waited"]


class CountLost(Stopper):
    def load_state_dict(self, state):
        self.best = state["best"]


class BestLost(Stopper):
    def load_state_dict(self, state):
        self.waited = state["waited"]


class NothingLoaded(Stopper):
    def load_state_dict(self, state):
        return state


class SettingsToo(Stopper):
    def state_dict(self):
        return dict(vars(self))

    def load_state_dict(self, state):
        vars(self).update(state)


class Living(SettingsToo):
    def state_dict(self):
        return vars(self)


class LivingList(Stopper):
    """Its numbers in a list, handed out in a new dictionary."""

    def __init__(self, patience, min_delta):
        super().__init__(patience, min_delta)
        self.losses = []

    def update(self, val_loss):
        self.losses.append(float(val_loss))
        return super().update(val_loss)

    def state_dict(self):
        return {**super().state_dict(), "losses": self.losses}


class LivingState(Stopper):
    """One dictionary for the state, handed out itself."""

    def __init__(self, patience, min_delta):
        self.patience, self.min_delta = patience, min_delta
        self.state = {"best": math.inf, "waited": 0}

    def update(self, val_loss):
        if val_loss < self.state["best"] - self.min_delta:
            self.state["best"], self.state["waited"] = float(val_loss), 0
        else:
            self.state["waited"] += 1
        return self.state["waited"] >= self.patience

    def state_dict(self):
        return self.state

    def load_state_dict(self, state):
        self.state = dict(state)


class LivingWhileWaiting(LivingState):
    """A new dictionary for each improvement; the count is written into it."""

    def update(self, val_loss):
        if val_loss < self.state["best"] - self.min_delta:
            self.state = {"best": float(val_loss), "waited": 0}
        else:
            self.state["waited"] += 1
        return self.state["waited"] >= self.patience


class LoadedLives(LivingState):
    """What was loaded is the state itself."""

    def state_dict(self):
        return dict(self.state)

    def load_state_dict(self, state):
        self.state = state


class InfFirst(Stopper):
    """Without a best loss any but nan is one, inf too."""

    def __init__(self, patience, min_delta):
        super().__init__(patience, min_delta)
        self.best = None

    def update(self, val_loss):
        first = self.best is None and not math.isnan(val_loss)
        if first or (self.best is not None and val_loss < self.best - self.min_delta):
            self.best, self.waited = float(val_loss), 0
        else:
            self.waited += 1
        return self.waited >= self.patience


class FromAMillion(Stopper):
    """A best loss that is high, and yet is beaten by inf alone."""

    def __init__(self, patience, min_delta):
        super().__init__(patience, min_delta)
        self.best = 1e6


class InFloat32(Stopper):
    def state_dict(self):
        return {"best": torch.tensor(self.best), "waited": self.waited}

    def load_state_dict(self, state):
        self.best, self.waited = state["best"].item(), state["waited"]


class ZeroIsNone(Stopper):
    """A best loss of 0 is taken for no best."""

    def state_dict(self):
        return {"best": self.best or math.inf, "waited": self.waited}


class OnThePrevious(Stopper):
    """Each epoch is compared with the one before it."""

    def update(self, val_loss):
        stop = super().update(val_loss)
        self.best = float(val_loss)
        return stop


class NumpyKept(Stopper):
    def update(self, val_loss):
        if val_loss < self.best - self.min_delta:
            self.best, self.waited = val_loss, 0
        else:
            self.waited += 1
        return self.waited >= self.patience


class RestartedCount(Stopper):
    def state_dict(self):
        return {"best": self.best, "waited": 0}


class OneMore(Stopper):
    def load_state_dict(self, state):
        super().load_state_dict(state)
        self.waited += 1


class NanSkipped(Stopper):
    def update(self, val_loss):
        return self.waited >= self.patience if math.isnan(val_loss) else super().update(val_loss)


class NanBest(Stopper):
    def update(self, val_loss):
        if not val_loss >= self.best - self.min_delta:
            self.best, self.waited = float(val_loss), 0
            return False
        self.waited += 1
        return self.waited >= self.patience


class EqualImproves(Stopper):
    def update(self, val_loss):
        if val_loss <= self.best - self.min_delta:
            self.best, self.waited = float(val_loss), 0
        else:
            self.waited += 1
        return self.waited >= self.patience


class EqualDelta(Stopper):
    """A gain of min_delta is enough, where there is one."""

    def update(self, val_loss):
        least = self.best - self.min_delta
        if val_loss < least or (self.min_delta and val_loss == least):
            self.best, self.waited = float(val_loss), 0
        else:
            self.waited += 1
        return self.waited >= self.patience


class NanFirst(Stopper):
    """No best yet is None, so the first loss becomes it unseen."""

    def __init__(self, patience, min_delta):
        super().__init__(patience, min_delta)
        self.best = None

    def update(self, val_loss):
        if self.best is None:
            self.best, self.waited = float(val_loss), 0
            return False
        return super().update(val_loss)


class CountsAgain(Stopper):
    def update(self, val_loss):
        stop = super().update(val_loss)
        self.waited *= not stop
        return stop


class DeltaForgotten(Stopper):
    def __init__(self, patience, min_delta):
        super().__init__(patience, 0.0)


class LateStop(Stopper):
    def update(self, val_loss):
        super().update(val_loss)
        return self.waited > self.patience


class NotReset(Stopper):
    def update(self, val_loss):
        waited = self.waited
        super().update(val_loss)
        self.waited = waited + (self.waited > 0)
        return self.waited >= self.patience


class OnlyOnce(Stopper):
    def update(self, val_loss):
        return super().update(val_loss) and self.waited == self.patience


class Frozen(Stopper):
    """Once stopped, for ever."""

    over = False

    def update(self, val_loss):
        self.over = super().update(val_loss) or self.over
        return self.over


class Creeping(Stopper):
    """The best follows every lower loss."""

    def update(self, val_loss):
        stop = super().update(val_loss)
        self.best = min(self.best, float(val_loss))
        return stop


class AsText(Stopper):
    def state_dict(self):
        return f"{self.best} {self.waited}"

    def load_state_dict(self, state):
        best, waited = state.split()
        self.best, self.waited = float(best), int(waited)


class AllLosses:
    """Keeps every loss, and counts from the start each time."""

    def __init__(self, patience, min_delta):
        self.patience, self.min_delta, self.losses = patience, min_delta, []

    def update(self, val_loss):
        self.losses.append(float(val_loss))
        best, waited = float("inf"), 0
        for loss in self.losses:
            better = best - loss > self.min_delta
            best, waited = (loss, 0) if better else (best, waited + 1)
        return waited >= self.patience

    def state_dict(self):
        return {"losses": list(self.losses)}

    def load_state_dict(self, state):
        self.losses = list(state["losses"])


class InTensors:
    def __init__(self, patience, min_delta):
        self.patience, self.min_delta = patience, min_delta
        self.numbers = torch.tensor([torch.inf, 0.0], dtype=torch.float64)

    def update(self, val_loss):
        best, waited = self.numbers.tolist()
        if val_loss + self.min_delta < best:
            self.numbers = torch.tensor([float(val_loss), 0.0], dtype=torch.float64)
        else:
            self.numbers = torch.tensor([best, waited + 1], dtype=torch.float64)
        return self.numbers[1].item() >= self.patience

    def state_dict(self):
        return {"numbers": self.numbers.clone()}

    def load_state_dict(self, state):
        self.numbers = state["numbers"].clone()


class ByEpoch(Stopper):
    epoch, best_epoch = 0, 0

    def update(self, val_loss):
        self.epoch += 1
        if val_loss < self.best - self.min_delta:
            self.best, self.best_epoch = float(val_loss), self.epoch
        return self.epoch - self.best_epoch >= self.patience

    def state_dict(self):
        return {"best": self.best, "epoch": self.epoch, "of_best": self.best_epoch}

    def load_state_dict(self, state):
        self.best, self.epoch, self.best_epoch = state.values()


EXERCISE = Exercise(
    id="03g.stopper",
    title="patience that survives the night",
    source="Training-loop chapter, c7, component 1; annotated-loop essay, \"Checkpointing\"",
    kind="class",
    ledger=("C12", "C13", "F111", "B28", "T34"),
    minutes=10,
    difficulty=2,
    read=("F111", "N53", "course.engine.EarlyStopping"),
    hints=(
        "Which two of its numbers change from epoch to epoch, and which two never change?",
        "The state of epoch 3 must still say the same at epoch 9: is it a copy? And can "
        "weights_only=True read it, even if a loss came from NumPy?",
        "state_dict() returns {'best': self.best, 'waited': self.waited} with float(val_loss) as "
        "best; load_state_dict() sets these two, and leaves patience and min_delta alone.",
    ),
    signature="Stopper(patience, min_delta)",
    parts=(
        Part("whole", "when it stops, without a cut", points=1, fields=("said",)),
        Part("cut", "the same answers after a cut at any epoch", points=2, fields=("resumed",)),
        Part("file", "a state that later epochs do not change, and that loads safely", points=1,
             fields=("moved", "loaded", "file", "resumed")),
        Part("longer", "another patience after the cut", points=1, hidden=True,
             fields=("resumed",)),
    ),
    reference=reference,
    draw=draw,
    run=run,
    says={
        "said": "what update() says, epoch by epoch:",
        "resumed": "what update() says after the cut, by the epoch of the cut, from 0:",
        "moved": "the list of epochs whose state was changed by later ones",
        "loaded": "the loaded state, after later epochs, by the epoch of the cut:",
        "file": "the state",
    },
    by_hand=(EarlyStopping.update,),
    wrong=(
        Wrong("count-lost", CountLost,
              "After a cut, patience was counted from 0. Save how many epochs have passed since "
              "the best one, and load it."),
        Wrong("count-lost", RestartedCount),
        Wrong("best-lost", BestLost,
              "After a cut, any loss counted as an improvement: the best loss was not known. Save "
              "it, and load it."),
        Wrong("nothing-loaded", NothingLoaded,
              "After a cut, the object was like new: neither the best loss nor the count was "
              "restored."),
        Wrong("settings-too", SettingsToo,
              "The new object was made with a longer patience, but it continued with the old one. "
              "Keep the settings it was made with; only the state comes from the file."),
        Wrong("living", Living,
              "The state of an earlier epoch changed as training continued: the returned object "
              "is, or holds, something that update() writes into. Return copies, such as "
              "dict(self.state)."),
        Wrong("living", LivingState),
        Wrong("living", LivingList),
        Wrong("living", LivingWhileWaiting),
        Wrong("loaded-lives", LoadedLives,
              "The loaded state changed in later epochs: the object keeps using the same "
              "dictionary that it was given. Take the numbers out of it, or make a "
              "copy.", sure=True),
        Wrong("in-float32", InFloat32,
              "After a cut, the best loss was rounded: a loss equal to it, or lower by exactly "
              "min_delta, counted as an improvement. A tensor is float32 by default; keep a Python "
              "float.", sure=True),
        Wrong("zero-is-none", ZeroIsNone,
              "A best loss of 0 was lost in the cut: `or` and `if best` treat 0 as missing. Check "
              "whether it is None.", sure=True),
        Wrong("on-the-previous", OnThePrevious,
              "Each loss was compared with that of the epoch before. The best loss stays until an "
              "epoch improves on it."),
        Wrong("numpy-kept", NumpyKept),
        Wrong("one-more", OneMore,
              "After a cut, it stops one epoch early. Loading is not an epoch: it must not change "
              "the count."),
        Wrong("nan-skipped", NanSkipped,
              "An epoch with a loss of nan did not count. It is an epoch without improvement."),
        Wrong("nan-best", NanBest,
              "A loss of nan counted as an improvement. Check whether the loss is smaller."),
        Wrong("nan-first", NanFirst,
              "A first loss of nan became the best one, and no number is lower than nan. Start "
              "with a best of inf, which nan does not beat."),
        Wrong("inf-first", InfFirst,
              "A loss of inf counted as an improvement, because there was no best one yet. Start "
              "with a best of inf, which inf does not beat."),
        Wrong("from-a-million", FromAMillion),
        Wrong("equal-improves", EqualImproves,
              "A loss that is lower by exactly min_delta, or equal, counted as an improvement."),
        Wrong("equal-delta", EqualDelta,
              "A loss that is lower by exactly min_delta counted as an improvement. It must be "
              "lower by more than that."),
        Wrong("delta-forgotten", DeltaForgotten,
              "An improvement of less than min_delta counted."),
        Wrong("late-stop", LateStop, "It stops one epoch late."),
        Wrong("not-reset", NotReset,
              "An improvement did not restart the count."),
        Wrong("only-once", OnlyOnce,
              "It said True, and then False one epoch later, although that epoch was no better."),
        Wrong("counts-again", CountsAgain,
              "It said True, then counted from 0 again without an improvement. Only an improvement "
              "restarts the count."),
        Wrong("stays-stopped", Frozen,
              "Once it had said True, it always said True, even after the loss had improved. "
              "Answer from the current count: an improvement restarts it."),
        Wrong("best-creeps", Creeping,
              "A loss that was lower by min_delta or less became the best one. Then a slow fall is "
              "never an improvement: update the best only if the epoch improves."),
        Wrong("as-text", AsText),
    ),
    right=(Stopper, AllLosses, InTensors, ByEpoch),
)  # fmt: skip
