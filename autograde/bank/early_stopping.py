"""03a.early-stopping: a class that says when to stop and keeps the best weights."""

from __future__ import annotations

import copy
import inspect
import math

import torch
from torch import nn

from autograde.bank.harness import Watch
from autograde.exercise import Answer, AnswerError, Case, Draw, Exercise, Part, Wrong, as_attribute
from course.engine.stopping import EarlyStopping


def draw(source: Draw, part: str) -> Case:
    """Validation losses, one per epoch, with what the part asks about in them.

    The best epoch whose weights come back is another one in each case.
    """
    low = source.uniform(0.4, 0.8)
    rise = source.uniform(0.3, 0.5)
    falls = 1 + source.index + 2 * source.integer(0, 1) if part == "weights" else 1
    losses = [low + rise * i for i in range(falls, 0, -1)] + [low]
    patience = source.integer(2, 3)
    if part == "stop":  # worse, better at the last moment, then worse until it is time
        worse = [low + source.uniform(0.02, 0.2) for _ in range(patience - 1)]
        losses += [*worse, low - 0.1]
    # never better than the best, one as good, and the others better than the one before
    losses += [losses[-1] + 0.3 - 0.02 * i for i in range(patience + 4)]
    losses[-patience - 3] = min(losses)
    min_delta = 0.0
    if part == "delta":  # falls of less than counts and of exactly as much; exact in binary
        low, min_delta = source.integer(32, 64) / 64, source.integer(1, 3) / 64
        falls = [0, 0.25, 1, 0.5, 1.25, 1.75, *(1.375 for _ in range(2 * patience + 2))]
        losses = [low - fall * min_delta for fall in falls]
    if part == "nan":
        first = [math.nan] * (patience if source.index == 1 else 1)
        losses = [*first, losses[0], low, math.nan, math.nan, math.nan, math.nan]
    by_name = part == "stop" and source.index == 1
    if part == "stop" and source.index == 0:
        losses = [1e10 * loss for loss in losses]  # above any number that `best` may begin with
    return {"losses": losses, "patience": patience, "min_delta": min_delta, "by_name": by_name}


def run(function, case: Case, device: torch.device) -> Answer:
    """Epoch by epoch until it stops, and two more; the weights and buffers of epoch e are e + 1.

    Where it stops before any loss was a number, it goes on: there is nothing to restore.

    `restore` is given another model, so that one that puts nothing back is not taken for one that
    puts back what the trained model holds now; and a third once the second has trained on.
    """
    stopper = _made(function, case)
    for name in ("update", "restore"):
        if not callable(getattr(stopper, name, None)):
            raise AnswerError(f"EarlyStopping(patience, min_delta) has no method {name}().")
    model, *others = (nn.Sequential(nn.Linear(2, 1), nn.BatchNorm1d(1)).to(device) for _ in "123")
    said: list[bool] = []
    disturbed: list[str] = []

    def update(loss: float) -> None:
        watch = Watch(model)
        stop = stopper.update(loss, model)
        disturbed.extend(watch.changed())
        if not isinstance(stop, bool):
            raise AnswerError(
                f"update() returned {type(stop).__name__}; return True to stop, else False."
            )
        said.append(stop)

    for epoch, loss in enumerate(case["losses"]):
        _fill(model, epoch + 1.0)
        update(loss)
        if said[-1] and not all(map(math.isnan, case["losses"][: len(said)])):
            break
    best = as_attribute(stopper, "best")
    seen = [loss for loss in case["losses"][: len(said)] if not math.isnan(loss)]
    if best == 0:  # no loss of a case is
        raise AnswerError(
            f"best is 0, but the lowest loss so far is {min(seen, default=math.nan):.4g}. "
            'Begin with float("inf"), so that the first loss is an improvement.'
        )
    epochs, stopped = (said.index(True) + 1 if any(said) else len(said)), said[-1]
    update(case["losses"][0] + 1)
    _fill(others[0], -3.0)
    stays = said[-1] == stopped
    lowest = case["losses"].index(min(seen)) if seen else -1
    _made(function, case).update(1.0, others[0])  # a run next to this one
    _fill(model, -1.0)
    watch, first = Watch(others[0]), list(others[0].parameters())
    restored = _restored(stopper, others[0], -2.0)
    replaced = sum(a is not b for a, b in zip(first, others[0].parameters(), strict=True))
    disturbed += watch.changed(frozenset({"weights", "buffers"}))
    _fill(others[0], -3.0)  # it trains on
    twice = _restored(stopper, others[1], -4.0)
    said_before, best_after = said[-1], as_attribute(stopper, "best")
    update(case["losses"][0] + 1)
    unmoved = said[-1] == said_before and (best_after == best or best_after != best_after)
    update(min(seen, default=1.0) / 2)
    too_little = case["min_delta"] > 0 and bool((restored["weight"] == lowest + 1).all())
    return {
        "epochs": epochs,
        "stopped": stopped,
        "stays": "the same as before" if stays else "different",
        "goes_on": said[-1],
        "best": best,
        "lowest": "those of a loss that fell too little"
        if too_little
        else "those of an improvement",
        "counted": restored["counted"],
        "replaced": replaced,
        "restored": restored["weight"],
        "buffers": restored["mean"],
        "twice": twice,
        "unmoved": "as before it" if unmoved else "changed",
        "disturbed": disturbed,
    }


def _restored(stopper, model: nn.Module, number: float) -> dict[str, torch.Tensor]:
    """What restore() puts into a model that holds a number everywhere."""
    _fill(model, number)
    stopper.restore(model)
    return {
        "weight": model[0].weight.detach().cpu().clone(),
        "mean": model[1].running_mean.detach().cpu().clone(),
        "counted": model[1].num_batches_tracked.item(),
    }


def _made(function, case: Case):
    """The student's object; where the case says so, made of the patience alone, by its name."""
    if not case["by_name"]:
        return function(case["patience"], case["min_delta"])
    try:
        inspect.signature(function).bind(patience=case["patience"])
    except TypeError:
        raise AnswerError(
            "EarlyStopping(patience=5) cannot be called. Keep the names and the default: "
            "__init__(self, patience, min_delta=0.0)."
        ) from None
    return function(patience=case["patience"])


@torch.no_grad()
def _fill(model: nn.Module, number: float) -> None:
    """Set all weights and buffers in place, as training does."""
    for tensor in (*model.parameters(), *model.buffers()):
        tensor.fill_(number)


class Reference:
    """The course's rule, with a copy of the best weights."""

    def __init__(self, patience: int, min_delta: float = 0.0) -> None:
        self.rule, self.weights = EarlyStopping(patience, min_delta=min_delta), None

    def update(self, val_loss: float, model: nn.Module) -> bool:
        stop = self.rule.update(val_loss)
        if self.rule.waited == 0:
            self.best, self.weights = self.rule.best, copy.deepcopy(model.state_dict())
        return stop

    def restore(self, model: nn.Module) -> None:
        model.load_state_dict(self.weights)


def reference(patience: int, min_delta: float = 0.0) -> Reference:
    """What `run` builds."""
    return Reference(patience, min_delta)


class Counting:
    """A right answer; the wrong ones change one method of it."""

    def __init__(self, patience, min_delta=0.0):
        self.patience, self.min_delta = patience, min_delta
        self.best, self.waited, self.weights = math.inf, 0, None

    def improves(self, val_loss):
        return val_loss < self.best - self.min_delta

    def is_over(self):
        return self.waited >= self.patience

    def keep(self, model):
        self.weights = {name: value.clone() for name, value in model.state_dict().items()}

    def update(self, val_loss, model):
        if self.improves(val_loss):
            self.best, self.waited = val_loss, 0
            self.keep(model)
        else:
            self.waited += 1
        return self.is_over()

    def restore(self, model):
        if self.weights is not None:
            model.load_state_dict(self.weights)


class Alias(Counting):
    def keep(self, model):
        self.weights = model.state_dict()


class OneTooLate(Counting):
    def is_over(self):
        return self.waited > self.patience


class NeverReset(Counting):
    def update(self, val_loss, model):
        if self.improves(val_loss):
            self.best = val_loss
            self.keep(model)
        else:
            self.waited += 1
        return self.is_over()


class DeltaIgnored(Counting):
    def improves(self, val_loss):
        return val_loss < self.best


class AgainstTheLast(Counting):
    last = math.inf

    def improves(self, val_loss):
        better, self.last = val_loss < self.last - self.min_delta, val_loss
        return better


class LastKept(Counting):
    def update(self, val_loss, model):
        stop = super().update(val_loss, model)
        self.keep(model)
        return stop


class OneTooEarly(Counting):
    def is_over(self):
        return self.waited >= self.patience - 1


class EqualImproves(Counting):
    def improves(self, val_loss):
        return val_loss <= self.best - self.min_delta


class NotHigherImproves(Counting):
    """The test turned round, so that nan improves as well."""

    def improves(self, val_loss):
        return not val_loss > self.best - self.min_delta


class NotAboveTheBestImproves(Counting):
    """The same without min_delta."""

    def improves(self, val_loss):
        return not val_loss > self.best


class UpToTheBestImproves(Counting):
    def improves(self, val_loss):
        return val_loss <= self.best


class BelowTheBestOrNanImproves(Counting):
    def improves(self, val_loss):
        return not val_loss >= self.best


class TrueOnce(Counting):
    def is_over(self):
        return self.waited == self.patience


class ParametersOnly(Counting):
    def keep(self, model):
        self.weights = {name: value.detach().clone() for name, value in model.named_parameters()}

    def restore(self, model):
        model.load_state_dict(self.weights, strict=False)


class LowestKept(Counting):
    lowest = math.inf

    def update(self, val_loss, model):
        self.keep, keep = lambda model: None, self.keep
        stop = super().update(val_loss, model)
        del self.keep
        if val_loss < self.lowest:
            self.lowest = val_loss
            keep(model)
        return stop


class FloatsOnly(Counting):
    def restore(self, model):
        kept = {k: v for k, v in self.weights.items() if v.is_floating_point()}
        model.load_state_dict(kept, strict=False)


class DictReplaced(Counting):
    def keep(self, model):
        self.weights = copy.deepcopy(model)

    def restore(self, model):
        model.__dict__.update(copy.deepcopy(self.weights).__dict__)


class NotLoaded(Counting):
    def restore(self, model):
        return self.weights


class BestFollows(Counting):
    """`best` read as the lowest loss of all, though only some falls count."""

    def update(self, val_loss, model):
        stop = super().update(val_loss, model)
        self.best = min(self.best, val_loss)
        return stop


class FromZero(Counting):
    def __init__(self, patience, min_delta=0.0):
        super().__init__(patience, min_delta)
        self.best = 0.0


class SharedByAll(Counting):
    shared: dict = {}  # noqa: RUF012

    def keep(self, model):
        self.shared.update(copy.deepcopy(model.state_dict()))

    def restore(self, model):
        model.load_state_dict(self.shared)


class DeltaAdded(Counting):
    def improves(self, val_loss):
        return val_loss < self.best + self.min_delta


class TrainsTheKept(Counting):
    def restore(self, model):
        model.load_state_dict(self.weights, assign=True)


class NeverAgain(Counting):
    """Once it has said True it says nothing else, also after an improvement."""

    over = False

    def is_over(self):
        self.over = self.over or super().is_over()
        return self.over


class NoDefault(Counting):
    def __init__(self, patience, min_delta):
        super().__init__(patience, min_delta)


class NoBest(Counting):
    """Holds it under another name."""

    def __init__(self, patience, min_delta=0.0):
        super().__init__(patience, min_delta)
        self.lowest = vars(self).pop("best")

    def update(self, val_loss, model):
        self.best = self.lowest
        stop = super().update(val_loss, model)
        self.lowest = vars(self).pop("best")
        return stop


class FromTen(Counting):
    def __init__(self, patience, min_delta=0.0):
        super().__init__(patience, min_delta)
        self.best = 10.0


class HigherImproves(Counting):
    def __init__(self, patience, min_delta=0.0):
        super().__init__(patience, min_delta)
        self.best = -math.inf

    def improves(self, val_loss):
        return val_loss > self.best + self.min_delta


class RelativeDelta(Counting):
    def improves(self, val_loss):
        return val_loss < self.best * (1 - self.min_delta)


class BestIsLast(Counting):
    mark = math.inf

    def update(self, val_loss, model):
        self.best = self.mark
        stop = super().update(val_loss, model)
        self.mark, self.best = self.best, val_loss
        return stop


class FirstKept(Counting):
    def keep(self, model):
        if self.weights is None:
            super().keep(model)


class Replaces(Counting):
    """Puts new tensors in the place of the model's own."""

    def restore(self, model):
        model.load_state_dict(copy.deepcopy(self.weights), assign=True)


class TrainsTheData(Counting):
    def restore(self, model):
        for name, tensor in (*model.named_parameters(), *model.named_buffers()):
            tensor.data = self.weights[name]


class RestoresOnce(Counting):
    def restore(self, model):
        if self.weights is not None:
            super().restore(model)
        self.weights = None


class RestoreForgets(Counting):
    def restore(self, model):
        super().restore(model)
        self.best, self.waited = math.inf, 0


class RestoresItself(Counting):
    def update(self, val_loss, model):
        stop = super().update(val_loss, model)
        if stop:
            self.restore(model)
        return stop


class RestoresInEval(Counting):
    def restore(self, model):
        super().restore(model)
        model.eval()


class NanStops(Counting):
    def update(self, val_loss, model):
        return super().update(val_loss, model) or math.isnan(val_loss)


class NanRaises(Counting):
    def update(self, val_loss, model):
        if math.isnan(val_loss):
            raise ValueError("the loss is nan")
        return super().update(val_loss, model)


class Rounds(Counting):
    def update(self, val_loss, model):
        return super().update(round(val_loss, 2), model)


class NanSkipped(Counting):
    def update(self, val_loss, model):
        return False if math.isnan(val_loss) else super().update(val_loss, model)


class NanImproves(Counting):
    def improves(self, val_loss):
        return not val_loss >= self.best - self.min_delta


class WithDeepcopy:
    def __init__(self, patience, min_delta=0.0):
        self.patience, self.min_delta, self.best, self.bad = patience, min_delta, None, 0

    def update(self, val_loss, model):
        if math.isfinite(val_loss) and (self.best is None or self.best - val_loss > self.min_delta):
            self.best, self.kept, self.bad = val_loss, copy.deepcopy(model), 0
            return False
        self.bad += 1
        return self.bad >= self.patience

    def restore(self, model):
        model.load_state_dict(self.kept.state_dict())


class ByHistory:
    def __init__(self, patience, min_delta=0.0):
        self.patience, self.min_delta = patience, min_delta
        self.best, self.epoch, self.best_epoch, self.kept = float("inf"), -1, -1, []

    def update(self, val_loss, model):
        self.epoch += 1
        if self.best - val_loss > self.min_delta:
            self.best, self.best_epoch = val_loss, self.epoch
            self.kept = [value.clone() for value in model.state_dict().values()]
        return self.epoch - self.best_epoch >= self.patience

    @torch.no_grad()
    def restore(self, model):
        for tensor, value in zip(model.state_dict().values(), self.kept, strict=True):
            tensor.copy_(value)


EXERCISE = Exercise(
    id="03a.early-stopping",
    title="stop early, keep the best weights",
    source='Chapter 3, "Early stopping"; Lecture 3, "Training and validation curves"',
    kind="class",
    ledger=("C13", "N53", "F111", "B39"),
    minutes=15,
    difficulty=2,
    read=("course.engine.EarlyStopping", "N53", "B39"),
    hints=(
        "When an epoch is better, three things change together: which ones?",
        "state_dict() returns the model's own tensors: what do they hold three epochs later?",
        "Better means val_loss < best - min_delta. If so, keep val_loss as best, clone every "
        "tensor and reset the count to 0; otherwise count one more, and stop when the count "
        "reaches patience.",
    ),
    signature="EarlyStopping(patience, min_delta)",
    parts=(
        Part(
            "stop",
            "the epoch at which it stops",
            points=1,
            fields=("epochs", "stopped", "stays", "goes_on", "unmoved", "disturbed"),
        ),
        Part(
            "delta",
            "improvements of less than min_delta",
            points=1,
            fields=("epochs", "best", "lowest"),
        ),
        Part(
            "weights",
            "the best epoch's weights and buffers, restored",
            points=1,
            fields=("restored", "buffers", "counted", "replaced", "twice"),
        ),
        Part("nan", "losses that are nan", points=1, hidden=True),
    ),
    reference=reference,
    draw=draw,
    run=run,
    says={
        "epochs": "the number of epochs until it stops",
        "stopped": "update() at the last epoch",
        "stays": "what update() returns after one more epoch that is no better",
        "goes_on": "update() at a later, better loss",
        "best": "best",
        "twice": "after restore() into a second model, in the second:",
        "unmoved": "after restore(), best and what update() returns",
        "restored": "after restore(), the weight",
        "buffers": "after restore(), the running mean",
        "counted": "after restore(), num_batches_tracked",
        "replaced": "after restore(), the number of parameters that are different objects than "
        "before:",
        "lowest": "the weights restored",
    },
    by_hand=(EarlyStopping.update,),
    wrong=(
        Wrong(
            "alias-kept",
            Alias,
            "restore() gave back what the trained model holds now, not what it held at its best: "
            "state_dict() returns the model's own tensors, which training goes on changing. Keep a "
            "clone of each.",
            sure=True,
        ),
        Wrong(
            "lowest-kept",
            LowestKept,
            "It stops at the right epoch, but restores the epoch of the lowest loss, which was "
            "lower by less than min_delta. Keep a copy exactly when the count is reset.",
            sure=True,
        ),
        Wrong(
            "floats-only",
            FloatsOnly,
            "The weights and the running mean came back, but the integer num_batches_tracked did "
            "not. Keep and load all of state_dict().",
            sure=True,
        ),
        Wrong(
            "parameters-replaced",
            DictReplaced,
            "After restore() the model's parameters are new objects, but an optimizer still holds "
            "the old ones. Copy the numbers into the existing tensors, as load_state_dict() does.",
            sure=True,
        ),
        Wrong("parameters-replaced", Replaces),
        Wrong(
            "restores-once",
            RestoresOnce,
            "The first restore() was right, but the second changed nothing. Keep the weights: both "
            "methods may be called again.",
            sure=True,
        ),
        Wrong(
            "restore-forgets",
            RestoreForgets,
            "restore() reset the best loss or the count. It must change only the model.",
            sure=True,
        ),
        Wrong(
            "restores-itself",
            RestoresItself,
            "update() put the best weights into the model. It should only count and keep; putting "
            "them back is the job of restore().",
            sure=True,
        ),
        Wrong("restores-in-eval", RestoresInEval),
        Wrong(
            "best-from-a-number",
            FromTen,
            "Large losses never counted as an improvement, not even the first one. Begin best with "
            'float("inf"), since every number is lower than that.',
            sure=True,
        ),
        Wrong(
            "higher-improves",
            HigherImproves,
            "A higher loss counted as an improvement. Lower is better: val_loss < best - "
            "min_delta, and best begins at inf.",
        ),
        Wrong(
            "relative-delta",
            RelativeDelta,
            "min_delta was treated as a fraction of the best loss. It is a difference: val_loss < "
            "best - min_delta.",
        ),
        Wrong(
            "best-is-last",
            BestIsLast,
            "It stops where it should, but best holds the loss of the last epoch. Set it only when "
            "an epoch improves.",
        ),
        Wrong(
            "first-kept",
            FirstKept,
            "restore() brought back the first epoch that improved. Keep a new copy at every "
            "improvement.",
            sure=True,
        ),
        Wrong(
            "nan-stops",
            NanStops,
            "update() returned True at a loss of nan, before the count had reached patience. It is "
            "an epoch without improvement, like any other.",
            sure=True,
        ),
        Wrong("nan-raises", NanRaises),
        Wrong(
            "one-too-late",
            OneTooLate,
            "It stops one epoch late. With patience 3 the third epoch in a row without improvement "
            "is the last.",
        ),
        Wrong(
            "never-reset",
            NeverReset,
            "An improvement did not reset the count: patience counts epochs in a row.",
        ),
        Wrong(
            "delta-ignored",
            DeltaIgnored,
            "An improvement of less than min_delta counted. Better means val_loss < best - "
            "min_delta.",
        ),
        Wrong(
            "one-too-early",
            OneTooEarly,
            "It stops one epoch early. With patience 3 the third epoch in a row without "
            "improvement is the last.",
        ),
        Wrong("delta-ignored", DeltaAdded),
        Wrong("delta-ignored", BelowTheBestOrNanImproves),
        Wrong(
            "equal-improves",
            EqualImproves,
            "A loss that is lower by exactly min_delta (or equal to the best, if min_delta is 0) "
            "counted as an improvement. It must be lower by more: val_loss < best - min_delta, "
            "neither <= nor `not ... > ...`.",
        ),
        Wrong("equal-improves", NotHigherImproves),
        Wrong(
            "not-worse-improves",
            UpToTheBestImproves,
            "A loss counted as an improvement because it was not higher than the best: an equal "
            "one, and one lower by less than min_delta. Better means val_loss < best - min_delta, "
            "neither <= nor `not ... > ...`.",
        ),
        Wrong("not-worse-improves", NotAboveTheBestImproves),
        Wrong(
            "true-once",
            TrueOnce,
            "update() returned True, then False one epoch later, though that epoch was no better. "
            "Check whether the count is at least patience.",
            sure=True,
        ),
        Wrong(
            "buffers-missing",
            ParametersOnly,
            "The weights came back, but BatchNorm's running mean did not: it is a buffer, not a "
            "parameter. Keep and load all of state_dict().",
            sure=True,
        ),
        Wrong(
            "not-loaded",
            NotLoaded,
            "restore() did not change the model it was given. Put the weights you kept into it "
            "with load_state_dict().",
            sure=True,
        ),
        Wrong(
            "best-follows",
            BestFollows,
            "best was set to a loss that was lower by no more than min_delta. It should be the "
            "loss of the last epoch that improved.",
        ),
        Wrong(
            "trains-the-kept",
            TrainsTheKept,
            "The first restore() was right, but the second brought back weights from an epoch in "
            "between: after the first, the model went on training in the kept tensors themselves. "
            "Copy them into it, as load_state_dict() does without assign.",
            sure=True,
        ),
        Wrong("trains-the-kept", TrainsTheData),
        Wrong(
            "never-again",
            NeverAgain,
            "update() also returned True at a later epoch that improved. An improvement resets the "
            "count, whenever it comes.",
            sure=True,
        ),
        Wrong("no-default", NoDefault),
        Wrong("no-best", NoBest),
        Wrong("rounds", Rounds),
        Wrong("best-from-zero", FromZero),
        Wrong(
            "shared-by-all",
            SharedByAll,
            "Two objects shared one place for their weights, so one restored what the other had "
            "kept. Keep the weights in self, from __init__ on.",
            sure=True,
        ),
        Wrong(
            "against-the-last",
            AgainstTheLast,
            "Each loss was compared with the one before it. Compare it with the best so far.",
        ),
        Wrong(
            "last-kept",
            LastKept,
            "The last epoch's weights were kept. Keep them only when the loss is better.",
        ),
        Wrong(
            "nan-skipped",
            NanSkipped,
            "An epoch whose loss was nan did not count. It is an epoch without improvement: count "
            "it, so that a run of nan losses ends.",
            sure=True,
        ),
        Wrong(
            "nan-improves",
            NanImproves,
            "A loss of nan counted as an improvement. Every comparison with nan is False: test "
            "whether the loss is smaller, not whether it is not larger.",
        ),
    ),
    right=(Counting, WithDeepcopy, ByHistory),
)
