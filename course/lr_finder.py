"""The learning-rate range test: try each rate once, from far too small to far too large.

    curve = lr_find(model, criterion, optimizer, train_loader)
    curve.suggestion            # the rate, the rule that chose it, and why
    curve.plot()

Five steps, as in the lecture: 1 save everything; 2 start tiny; 3 after each update multiply the
rate by the same factor; 4 stop when the loss explodes; 5 read the rate off the smoothed curve and
restore everything.

The lecture's rule, a decade below the rate of the lowest loss, lands within half a decade of the
best rate. So the default continues from there: it trains for a while with five rates around it and
longer with the best three, judges them on `val_loader` if there is one, and takes the lowest rate
that trains as well as any.
Sweep and trials together make at most 300 updates. `rule="decade", sweeps=1, hold=1` is the
lecture's test alone.

Source: Lecture 3, "The learning-rate finder"; Smith 2017 (arXiv:1506.01186); ledger C26, S18, N22.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from html import escape
from itertools import pairwise
from numbers import Integral, Real
from statistics import median
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parameter import UninitializedTensorMixin
from torch.optim import Optimizer
from torch.utils.data import DataLoader

from course.data.loading import length_of
from course.engine.callbacks import somebody_is_watching
from course.engine.errors import EngineError, NonFiniteError
from course.engine.evaluation import evaluate
from course.engine.loss_of import LossOf, OwnLoss, PairLoss, as_loss_of
from course.engine.placement import check_device
from course.engine.precision import Precision
from course.engine.preflight import check_accum_steps, check_is_optimizer, check_loader, check_model
from course.engine.step import train_step
from course.engine.window import Batch, Criterion
from course.state import Snapshot, train_mode_
from course.tables import Markup, html_table

RULES = ("trials", "decade", "halfway", "steepest", "valley")
DECADE = 10.0
DOWN = 0.65
"""The rule `halfway` takes the rate at which this share of the fall is done."""
TRIALS = tuple(10 ** (half / 2) for half in range(-1, 4))
"""Rates that the rule `trials` tries, in units of what the rule `decade` suggests."""
MOST_UPDATES = 300
"""Updates that the default may cost: a plain range test's hundred, and twice as many for trials."""
FINALISTS = 3
"""Rates that are tried out to the end: a longer trial of the best tells more than a short one of
all."""
SHORT = len(TRIALS) - FINALISTS
"""Rates that are given up before."""
HEAT = 5
"""All rates are tried out for one part in so many of a trial; the best then go on."""
ALIKE = 0.3
"""Losses at most this much above the lowest, as a share of it, count as equally low."""
ALIKE_VALIDATED = 0.15
"""The same of losses on `val_loader`, which are not those of the last few batches alone."""
FEWEST = 5
"""Losses below which no curve is read."""
ONE_CYCLE_PEAK = 1.9
"""Peak of a one-cycle schedule over its mean (cosine, from peak / 25 up at 30 % and down to 0)."""


class LRFinderError(EngineError):
    """The range test cannot be run; the message says what to change."""


@dataclass(frozen=True)
class Suggestion:
    """A learning rate, the rule that chose it, and the reason in a sentence."""

    lr: float | None
    """None if the curve does not support any rate."""
    rule: str
    reason: str

    def __str__(self) -> str:
        chosen = "no suggestion" if self.lr is None else f"lr = {self.lr:.2e}"
        return f"{chosen} ({self.rule}): {self.reason}"


@dataclass(frozen=True)
class LRCurve:
    """Losses over learning rates, and the suggestions that follow from them."""

    lrs: tuple[float, ...]
    """Rates tried, ascending. With several parameter groups, the largest of their rates."""
    losses: tuple[float, ...]
    """Mean loss right after the updates with each rate, on the windows that follow or on all of
    `val_loader`; the median if there are several sweeps."""
    start_loss: float
    """The loss before the first update."""
    smoothing: float
    """Weight of the past in the running mean; 0 leaves the losses unchanged."""
    diverge_at: float
    stopped: str
    """Why the sweep ended: `end`, `diverged` or `non-finite`."""
    rule: str = "decade"
    """Which rule `suggestion` uses."""
    peak: float = 1.0
    """Factor by which the peak of an attached schedule may exceed a constant rate."""
    notes: tuple[str, ...] = ()
    """Remarks on how the test was run."""
    trials: tuple[tuple[float, float], ...] = ()
    """Rates of the trials, ascending, and the loss that each led to (inf if it diverged)."""
    dropped: tuple[tuple[float, float], ...] = ()
    """Of the trials that were given up after their first updates: rate, and the loss by then."""
    trial_steps: int = 0
    """Updates of a trial that went to its end."""
    validated: bool = False
    """Whether the trials were judged on `val_loader`."""

    @property
    def smoothed(self) -> list[float]:
        """Exponential running mean, with bias correction (like Adam's moments, N30)."""
        return running_mean(self.losses, self.smoothing)

    @property
    def suggestion(self) -> Suggestion:
        """The suggestion of the curve's own rule; its `lr` is None if the curve supports none."""
        return self.suggest(self.rule)

    def suggest(self, rule: str) -> Suggestion:
        """The suggestion of a given rule.

        Args:
            rule: `decade`: a tenth of the rate at the lowest smoothed loss (the lecture's).
                `steepest`: where the smoothed loss falls fastest per decade. `valley`: two thirds
                down the longest descent. `halfway` (ours): where 65 % of the fall is done. `trials`
                (ours): the lowest rate that trains as well as any, if rates were tried out.

        Raises:
            ValueError: The rule is unknown, or it is `trials` but there were none.
        """
        if rule not in RULES:
            raise ValueError(f"rule = {rule!r}: expected one of {', '.join(RULES)}.")
        if rule == "trials" and self.rule != "trials":
            raise ValueError(
                "rule = 'trials': no rates were tried out. Call lr_find(rule='trials')."
            )
        if reason := self._no_ground():
            return Suggestion(None, rule, reason)
        return _RULE[rule](self)

    def _no_ground(self) -> str:
        """Why nothing can be suggested; empty if the curve descends."""
        if len(self.losses) < FEWEST and self.stopped == "end":
            return (
                f"only {len(self.losses)} rates were swept, and a curve needs at least {FEWEST} to "
                "be read. Try steps=100."
            )
        if len(self.losses) < FEWEST:
            return (
                f"only {len(self.losses)} finite losses: the run diverged at lr = "
                f"{self.lrs[-1]:.1e}. Start lower, and check data and loss first."
                if self.lrs
                else "the very first loss is inf or nan: check data and loss first."
            )
        smoothed = self.smoothed
        lowest = min(smoothed)
        before = smoothed[: smoothed.index(lowest) + 1]
        spread = _noise(self.losses)
        fall = max(before) - lowest
        # The highest and the lowest of a hundred values of pure noise are five deviations apart.
        noise = 5 * spread * math.sqrt((1 - self.smoothing) / (1 + self.smoothing))
        if fall <= max(noise, 0.02 * abs(max(before))):
            return (
                f"the loss never falls by more than its noise ({max(before):.4g} to {lowest:.4g}): "
                "does the optimizer hold the model's parameters, and is the range wide enough?"
            )
        return ""

    @property
    def _rules(self) -> list[str]:
        """The rules that this curve can answer."""
        return [rule for rule in RULES if rule != "trials" or self.rule == "trials"]

    def plot(self) -> Any:
        """A Figure with minimum, steepest zone, suggestion and divergence marked."""
        from course.plots.lr import plot_lr_curve

        return plot_lr_curve(self)

    def to_json(self) -> dict[str, Any]:
        """Everything as plain values."""
        suggestions = {rule: self.suggest(rule) for rule in self._rules}
        return {
            "lrs": list(self.lrs), "losses": list(self.losses), "smoothed": self.smoothed,
            "start_loss": self.start_loss, "stopped": self.stopped, "notes": list(self.notes),
            "rule": self.rule,
            "trials": [[lr, loss if math.isfinite(loss) else None] for lr, loss in self.trials],
            "dropped": [list(trial) for trial in self.dropped],
            "suggestions": {r: {"lr": s.lr, "reason": s.reason} for r, s in suggestions.items()},
        }  # fmt: skip

    def __str__(self) -> str:
        reached = f" from {self.lrs[0]:.1e} to {self.lrs[-1]:.1e}" if self.lrs else ""
        head = f"{len(self.lrs)} rates{reached}, stopped: {self.stopped}"
        return "\n".join([head, str(self.suggestion), *self.notes])

    def _repr_html_(self) -> str:
        rows = (
            (
                Markup(f"<b>{rule}</b>") if rule == self.rule else rule,
                "none" if s.lr is None else f"{s.lr:.2e}",
                s.reason,
            )
            for rule in self._rules
            for s in [self.suggest(rule)]
        )
        table = html_table(("rule", "lr", "reason"), rows)
        return f"{table}<p>{escape(' '.join(self.notes))}</p>"


def lr_find(
    model: nn.Module,
    criterion: Criterion | None = None,
    optimizer: Optimizer | None = None,
    loader: Iterable[Batch] | None = None,
    *,
    loss_of: LossOf | None = None,
    start: float = 1e-7,
    end: float = 10.0,
    steps: int = 100,
    val_loader: Iterable[Batch] | None = None,
    accum_steps: int = 1,
    precision: str = "fp32",
    sweeps: int | None = None,
    hold: int | None = None,
    smoothing: float = 0.9,
    diverge_at: float = 4.0,
    rule: str = "trials",
    trial_steps: int | None = None,
    progress: bool | str = "auto",
    device: torch.device | str | None = None,
) -> LRCurve:
    """Sweep the learning rate from `start` to `end` in equal ratios, with one update at each.

    Model, gradients, modes, optimizer (state and rates), scheduler, loader order and all random
    number generators are restored bit for bit, even after an exception or Ctrl-C.

    Args:
        model: Trained in train mode during the sweep.
        criterion: Mean- or sum-reduced loss of outputs and targets.
        optimizer: Any optimizer whose step needs no closure. Its groups keep the ratios of their
            rates; under a schedule, the ratios of the rates that it started from.
        loader: Pairs of inputs [B, ...] and targets, or whatever `loss_of` takes; restarted
            whenever it ends.
        loss_of: In place of `criterion`: a function of (model, batch) that returns a `Loss`.
        start: First rate.
        end: Last rate; the sweep usually diverges earlier.
        steps: Updates between the two.
        val_loader: Judge rates by the loss on this loader. Under `trials`, each trial is judged at
            its end, while the sweep reads the training loss. Under the other rules, each rate of
            the sweep is judged, which is smoother but `steps` times as expensive.
        accum_steps: Micro-batches per update.
        precision: `fp32`, `bf16` or `fp16`.
        sweeps: How often the range is swept, each time from the same weights but on other batches;
            taking the median makes one lucky batch harmless. By default once under `trials`, three
            times under the other rules.
        hold: Updates at each rate; by default one under `trials`, two under the other rules.
            `sweeps=1, hold=1` is the plain range test.
        smoothing: Weight of the past in the running mean, 0 <= smoothing < 1.
        diverge_at: Stop when the smoothed loss is this many times its lowest. A loss that may be
            negative is counted from its lowest, in units of its largest size until then.
        rule: Which rule `suggestion` uses. `trials` trains with a few rates around the lecture's,
            from the same weights on the same batches; the others only read the curve.
        trial_steps: Updates of each trial that goes to its end, as the best three do; the others
            end after a fifth of them. By default as many as 300 updates in all allow.
        progress: Whether to print the maximum cost of the search first; `"auto"`: if a terminal or
            a notebook shows it.
        device: Where to compute; the model's by default.

    Returns:
        The curve as far as it got; a loss of inf or nan ends it and is left out.

    Raises:
        LRFinderError: `start >= end`, fewer than 2 steps, a loader that is empty or can be read
        only once, an optimizer that needs a closure, or no trainable weight.

    Source: Lecture 3, "The learning-rate finder"; ledger C26, N22.
    """
    sweeps = (1 if rule == "trials" else 3) if sweeps is None else sweeps
    hold = (1 if rule == "trials" else 2) if hold is None else hold
    _check(start, end, steps, sweeps, hold, smoothing, diverge_at, rule, trial_steps, optimizer)
    if trial_steps is None:
        left = max(MOST_UPDATES - sweeps * hold * (steps + 1), 100)
        trial_steps = int(left / (FINALISTS + SHORT / HEAT))
    check_accum_steps(accum_steps)
    _check_parts(model, loader, val_loader)
    own = criterion if loss_of is None else loss_of
    loss_of = as_loss_of(criterion, loss_of)
    if progress is True or (progress == "auto" and somebody_is_watching()):
        print(budget(loader, steps, sweeps, hold, rule, trial_steps, accum_steps))
    data = [getattr(part, "dataset", None) for part in (loader, val_loader)]
    snapshot = Snapshot(model, own, optimizer, loader, val_loader, only_read=data)  # 1
    between = Snapshot(model, own, optimizer, rng=False)
    try:
        sweep = _Sweep(
            model,
            loss_of,
            optimizer,
            _own_workers(loader),
            _own_workers(val_loader),
            accum_steps,
            precision,
            device,
        )
        rates = [start * (end / start) ** (i / (steps - 1)) for i in range(steps)]
        runs = []
        for _ in range(sweeps):
            between.restore()
            runs.append(sweep.run(rates, hold, smoothing, diverge_at, judged=rule != "trials"))
        curve = _joined(rates, runs, smoothing, diverge_at, rule, sweep)
        if rule == "trials" and (centre := curve.suggest("decade").lr) is not None:
            rates = _around(centre / curve.peak, start, end)
            tried, dropped = sweep.trials(rates, trial_steps, snapshot.restore)
            curve = replace(curve, trials=tried, dropped=dropped, trial_steps=trial_steps,
                            validated=val_loader is not None)  # fmt: skip
    finally:
        snapshot.restore()  # 5
    return curve


def budget(
    loader: Any, steps: int, sweeps: int, hold: int, rule: str, trial_steps: int, accum_steps: int
) -> str:
    """The maximum cost of a search, in a sentence."""
    swept = sweeps * hold * (steps + 1)
    heat = _heat(trial_steps)
    tried = FINALISTS * trial_steps + SHORT * heat if rule == "trials" else 0
    length = length_of(loader)
    passes = (
        f", {(swept + tried) * accum_steps / length:.1f} passes over the data" if length else ""
    )
    return (
        f"lr_find: at most {swept + tried} updates ({swept} to sweep the range"
        + (f", {FINALISTS} rates for {trial_steps} each, {SHORT} for {heat}" if tried else "")
        + f"){passes}; everything is restored afterwards."
    )


def _heat(trial_steps: int) -> int:
    """Updates that every rate is tried out for before the best go on."""
    return max(1, trial_steps // HEAT)


def _around(centre: float, start: float, end: float) -> list[float]:
    """Rates to try out, none beyond what was swept, but always the centre."""
    rates = (centre * factor for factor in TRIALS)
    return [lr for lr in rates if start <= lr <= end] or [centre]


@dataclass(frozen=True)
class _RangeTest:
    """One sweep."""

    losses: list[float]
    start_loss: float
    stopped: str


@dataclass(eq=False)
class _Trial:
    """A short training run at one rate."""

    lr: float
    precision: Precision
    """With a loss scaler of its own."""
    losses: list[float] = field(default_factory=list)
    loss: float = math.inf
    """What it is judged by, as far as it got."""
    so_far: Snapshot | None = None
    """Where it goes on."""


class _Sweep:
    """The middle three of the five steps."""

    def __init__(
        self,
        model: nn.Module,
        loss_of: PairLoss | OwnLoss,
        optimizer: Optimizer,
        loader: Iterable[Batch],
        val_loader: Iterable[Batch] | None,
        accum_steps: int,
        precision: str,
        device: torch.device | str | None,
    ) -> None:
        self.model, self.loss_of, self.optimizer = model, loss_of, optimizer
        self.val_loader = val_loader
        self.device = check_device(model, device)
        self.precision = precision
        self.windows = _Windows(loader, accum_steps)
        groups = optimizer.param_groups
        rates = [_own_rate(group) for group in groups]
        self.no_ratios = max(rates) <= 0
        self.shares = [1.0 if self.no_ratios else rate / max(rates) for rate in rates]
        self.peak = ONE_CYCLE_PEAK if all("max_lr" in group for group in groups) else 1.0

    def run(
        self,
        rates: Sequence[float],
        hold: int,
        smoothing: float,
        diverge_at: float,
        *,
        judged: bool,
    ) -> _RangeTest:
        """Losses by rate, as far as it goes.

        The loss at the start of an update is the result of the updates before it, so the losses of
        each rate are read while the next rate takes its steps.
        """
        precision = Precision(self.precision, self.device)  # its own scaler
        judged = judged and self.val_loader is not None
        losses: list[float] = []
        train_mode_(self.model)
        start_loss = math.nan
        for position, lr in enumerate([*rates, rates[-1]]):  # 2, 3
            before = []
            for _ in range(hold):
                try:
                    before.append(self._update(lr, precision))
                except NonFiniteError:
                    return _RangeTest(losses, start_loss, "non-finite")
                if position == 0 and len(before) == 1:
                    start_loss = before[0]
            if position == 0 and not judged:
                continue
            loss = self._val_loss() if judged else sum(before) / len(before)
            if not math.isfinite(loss):
                return _RangeTest(losses, start_loss, "non-finite")
            losses.append(loss)
            if len(losses) == len(rates):
                break
            if _exploded(losses, start_loss, smoothing, diverge_at):  # 4
                return _RangeTest(losses, start_loss, "diverged")
        return _RangeTest(losses, start_loss, "end")

    def trials(
        self, rates: Sequence[float], steps: int, from_start: Callable[[], None]
    ) -> tuple[tuple[tuple[float, float], ...], tuple[tuple[float, float], ...]]:
        """The losses to which constant rates lead, each from the same weights, on the same batches.

        Args:
            rates: Ascending.
            steps: Updates of a trial.
            from_start: Puts everything back to where a trial begins.

        Returns:
            (rate, loss) of those that went to their end or diverged, and of those given up before.
        """
        heat = steps if len(rates) <= FINALISTS else _heat(steps)
        begun: list[_Trial] = []
        for lr in rates:
            from_start()
            self._restart_windows()
            begun.append(trial := _Trial(lr, Precision(self.precision, self.device)))
            self._train(trial, heat)
            order = sorted(begun, key=lambda trial: trial.loss)
            if heat < steps and math.isfinite(trial.loss) and trial in order[:FINALISTS]:
                trial.so_far = Snapshot(self.model, self.loss_of, self.optimizer)
            for behind in order[FINALISTS:]:
                behind.so_far = None
        for trial in begun:
            if trial.so_far is not None:
                from_start()
                self._restart_windows()
                for _ in range(heat):  # the batches that it has had
                    next(self.windows)
                trial.so_far.restore()
                trial.so_far = None
                self._train(trial, steps - heat)
        ended = [t for t in begun if len(t.losses) == steps or t.loss == math.inf]
        dropped = [t for t in begun if t not in ended]
        return tuple((t.lr, t.loss) for t in ended), tuple((t.lr, t.loss) for t in dropped)

    def _restart_windows(self) -> None:
        self.windows = _Windows(self.windows.loader, self.windows.accum_steps)

    def _train(self, trial: _Trial, steps: int) -> None:
        """Go on with a trial, and judge it: on validation, or by the last quarter of its losses."""
        train_mode_(self.model)
        try:
            for _ in range(steps):
                trial.losses.append(self._update(trial.lr, trial.precision))
        except NonFiniteError:
            trial.loss = math.inf
            return
        late = trial.losses[-max(1, len(trial.losses) // 4) :]
        loss = self._val_loss() if self.val_loader is not None else sum(late) / len(late)
        trial.loss = loss if math.isfinite(loss) else math.inf

    def _set_rate(self, lr: float) -> None:
        for group, share in zip(self.optimizer.param_groups, self.shares, strict=True):
            if isinstance(group["lr"], Tensor):
                group["lr"].fill_(lr * share)
            else:
                group["lr"] = lr * share

    def _update(self, lr: float, precision: Precision) -> float:
        self._set_rate(lr)  # before each: a schedule in a hook of the optimizer sets its own after
        report = train_step(
            self.model, next(self.windows), optimizer=self.optimizer, loss_of=self.loss_of,
            precision=precision, device=self.device, measure_norm=False,
        )  # fmt: skip
        return report.loss

    def _val_loss(self) -> float:
        found = evaluate(self.model, self.val_loader, loss_of=self.loss_of, device=self.device)
        return found["loss"]


def _own_rate(group: dict[str, Any]) -> float:
    """The rate that the author gave a group: a schedule stores it before it applies its first
    factor.

    During a warm-up all current rates may be 0, so their ratios would be lost.
    """
    return float(group.get("initial_lr", group["lr"]))


class _Windows:
    """Endless windows of micro-batches: the loader is restarted whenever it ends."""

    def __init__(self, loader: Iterable[Batch], accum_steps: int) -> None:
        self.loader, self.accum_steps = loader, accum_steps
        self.notes: list[str] = []
        self._batches = self._endless()

    def __next__(self) -> list[Batch]:
        return [next(self._batches) for _ in range(self.accum_steps)]

    def _endless(self) -> Iterator[Batch]:
        passes = 0
        while True:
            count = 0
            for batch in self.loader:
                count += 1
                yield batch
            passes += 1
            if not count:
                raise LRFinderError(
                    "the loader yields no batch. Is the data set empty, or smaller than batch_size "
                    "with drop_last=True?"
                )
            if count == 1 and passes == 1:
                self.notes.append(
                    "The loader holds one batch, which was used for every update: the curve shows "
                    "how fast it is memorised."
                )


def _joined(
    rates: Sequence[float],
    runs: Sequence[_RangeTest],
    smoothing: float,
    diverge_at: float,
    rule: str,
    sweep: _Sweep,
) -> LRCurve:
    """The median of the sweeps, up to where more than half of them got."""
    lengths = sorted(len(run.losses) for run in runs)
    length = lengths[(len(lengths) - 1) // 2]
    losses = [median([run.losses[i] for run in runs if i < len(run.losses)]) for i in range(length)]
    ended = next(run for run in runs if len(run.losses) == length)
    notes = list(sweep.windows.notes)
    if sweep.no_ratios and len(sweep.shares) > 1:
        notes.append(
            f"All {len(sweep.shares)} parameter groups have lr = 0, so one rate was swept for all. "
            "To set your own ratios, give the groups rates above 0 before you create the "
            "schedule."
        )
    if sweep.peak > 1:
        notes.append(
            f"A one-cycle schedule is attached: its peak may be {sweep.peak:g} times a constant "
            "rate, since its mean is lower by that factor."
        )
    return LRCurve(
        tuple(rates[:length]), tuple(losses), median([run.start_loss for run in runs]), smoothing,
        diverge_at, ended.stopped, rule, sweep.peak, tuple(notes),
    )  # fmt: skip


def running_mean(values: Sequence[float], smoothing: float) -> list[float]:
    """Exponential running mean, divided by the sum of its weights so far.

    >>> running_mean([2.0, 2.0, 2.0], 0.9)
    [2.0, 2.0, 2.0]
    """
    mean = 0.0
    means = []
    for count, value in enumerate(values, start=1):
        mean = smoothing * mean + (1 - smoothing) * value
        means.append(round(mean / (1 - smoothing**count), 12))
    return means


def _exploded(
    losses: Sequence[float], start_loss: float, smoothing: float, diverge_at: float
) -> bool:
    """Far above the lowest loss, and above the first: a loss near 0 may jump.

    A negative loss has no zero to be counted from: four times -1 is lower, not higher. Then the
    rise is measured in sizes of the losses before the lowest, of the first few at least.
    """
    means = running_mean(losses, smoothing)
    lowest = min(means)
    if min(start_loss, *losses) >= 0:
        return means[-1] > max(diverge_at * lowest, start_loss)
    before = losses[: max(means.index(lowest) + 1, FEWEST)]
    size = max(abs(loss) for loss in (start_loss, *before))
    return means[-1] > lowest + (diverge_at - 1) * size


def _noise(losses: Sequence[float]) -> float:
    """Standard deviation of the loss from window to window, with the trend removed."""
    steps = sorted(abs(b - a) for a, b in pairwise(losses))
    return steps[len(steps) // 2] / (0.6745 * math.sqrt(2)) if steps else 0.0


def _decade(curve: LRCurve) -> Suggestion:
    smoothed = curve.smoothed
    lowest = smoothed.index(min(smoothed))
    return Suggestion(
        curve.lrs[lowest] / DECADE * curve.peak, "decade",
        f"a tenth of {curve.lrs[lowest]:.1e}, where the smoothed loss is lowest "
        f"({smoothed[lowest]:.3g})"
        + (f"; multiplied by {curve.peak:g} for a peak." if curve.peak > 1 else "."),
    )  # fmt: skip


def _steepest(curve: LRCurve) -> Suggestion:
    smoothed = curve.smoothed
    lowest = smoothed.index(min(smoothed))
    width = max(1, len(smoothed) // 20)
    slopes = {
        i: (smoothed[min(i + width, lowest)] - smoothed[max(i - width, 0)])
        / math.log10(curve.lrs[min(i + width, lowest)] / curve.lrs[max(i - width, 0)])
        for i in range(width, max(lowest, width + 1))
        if min(i + width, lowest) > max(i - width, 0)
    }
    at = min(slopes, key=slopes.__getitem__)
    return Suggestion(
        curve.lrs[at], "steepest",
        f"the smoothed loss falls fastest here, by {-slopes[at]:.3g} per decade.",
    )  # fmt: skip


def _valley(curve: LRCurve) -> Suggestion:
    """Two thirds along the longest run over which the smoothed loss keeps falling."""
    smoothed = curve.smoothed
    best = length = begin = 0
    for i in range(1, len(smoothed) + 1):
        if i == len(smoothed) or smoothed[i] > smoothed[i - 1]:
            if i - begin > length:
                best, length = begin, i - begin
            begin = i
    at = best + (2 * length) // 3
    return Suggestion(
        curve.lrs[at], "valley",
        f"two thirds down the longest descent, {curve.lrs[best]:.1e} to "
        f"{curve.lrs[best + length - 1]:.1e}.",
    )  # fmt: skip


def _halfway(curve: LRCurve) -> Suggestion:
    """The rate at which most of the fall is done: below it little is learned, above it is the edge.

    It uses the whole descent, not just the lowest point, which noise can move by half a decade.
    """
    smoothed = curve.smoothed
    lowest = smoothed.index(min(smoothed))
    first = median(curve.losses[: max(5, len(smoothed) // 10)])
    level = first - DOWN * (first - smoothed[lowest])
    at = max((i for i in range(lowest + 1) if smoothed[i] >= level), default=0)
    return Suggestion(
        curve.lrs[at] * curve.peak, "halfway",
        f"{DOWN:.0%} of the fall from {first:.3g} to {smoothed[lowest]:.3g} is done at "
        f"{curve.lrs[at]:.1e}"
        + (f"; multiplied by {curve.peak:g} for a peak." if curve.peak > 1 else "."),
    )  # fmt: skip


def _trials(curve: LRCurve) -> Suggestion:
    """The lowest rate that trains (nearly) as well as any: any gain above it is luck."""
    lowest = min(loss for _, loss in curve.trials)
    if not math.isfinite(lowest):
        return Suggestion(None, "trials", "every trial diverged: check data and loss first.")
    if len(curve.trials) > 1 and len({loss for _, loss in curve.trials}) == 1:
        return Suggestion(
            None, "trials",
            f"the loss never falls: all {len(curve.trials)} trials end at the same {lowest:.4g}. "
            "Does the optimizer hold the model's parameters?",
        )  # fmt: skip
    alike = ALIKE_VALIDATED if curve.validated else ALIKE
    level = lowest + max(alike * lowest, 0.005 * (curve.start_loss - lowest))
    lr, loss = next((lr, loss) for lr, loss in curve.trials if loss <= level)
    best = next(rate for rate, reached in curve.trials if reached == lowest)
    found = f"{lr:.1e} has the lowest loss, {loss:.3g}"
    if lr < best:
        found = (
            f"{lr:.1e} is the lowest whose loss, {loss:.3g}, counts as equal to the best, "
            f"{lowest:.3g} at {best:.1e}: up to {level:.3g} may be luck"
        )
    if best == max(curve.trials + curve.dropped)[0]:
        found += ". No rate above the best was tried"
    if curve.peak > 1:
        found += f"; multiplied by {curve.peak:g} for a peak"
    return Suggestion(lr * curve.peak, "trials", f"{_tried(curve)}. {found}.")


def _tried(curve: LRCurve) -> str:
    """How many rates were tried out, and for how long."""
    dropped = len(curve.dropped)
    diverged = sum(math.isinf(loss) for _, loss in curve.trials)
    said = [f"{len(curve.trials) - diverged} for {curve.trial_steps} updates"]
    said += [f"{dropped} for {_heat(curve.trial_steps)}"] if dropped else []
    said += [f"{diverged} diverged"] if diverged else []
    return f"{len(curve.trials) + dropped} rates tried out: {', '.join(said)}"


_RULE = {
    "trials": _trials, "decade": _decade, "halfway": _halfway, "steepest": _steepest,
    "valley": _valley,
}  # fmt: skip


def _check(
    start: float, end: float, steps: int, sweeps: int, hold: int, smoothing: float,
    diverge_at: float, rule: str, trial_steps: int | None, optimizer: Optimizer,
) -> None:  # fmt: skip
    trial_steps = 1 if trial_steps is None else trial_steps
    numbers = {"start": start, "end": end, "smoothing": smoothing, "diverge_at": diverge_at}
    counts = {"steps": steps, "sweeps": sweeps, "hold": hold, "trial_steps": trial_steps}
    for name, value in (numbers | counts).items():
        kind = Real if name in numbers else Integral
        if not isinstance(value, kind) or isinstance(value, bool):
            expected = "a number" if name in numbers else "a whole number"
            raise LRFinderError(f"{name} = {value!r}: expected {expected}.")
    if isinstance(optimizer, (list, tuple, Mapping)):
        raise LRFinderError(
            f"optimizer is a {type(optimizer).__name__} of {len(optimizer)}: one sweep finds the "
            "rate of one optimizer. Give one of them, and with loss_of=... the loss that it lowers."
        )
    if not 0 < start < end or not math.isfinite(end):
        raise LRFinderError(
            f"start = {start:g}, end = {end:g}: expected 0 < start < end, e.g. 1e-7 and 10."
        )
    if steps < 2:
        raise LRFinderError(f"steps = {steps}: a sweep needs at least 2, and 100 to be readable.")
    if min(sweeps, hold, trial_steps) < 1:
        raise LRFinderError(
            f"sweeps = {sweeps}, hold = {hold}, trial_steps = {trial_steps}: each is at least 1."
        )
    if not 0 <= smoothing < 1:
        raise LRFinderError(f"smoothing = {smoothing}: expected 0 (none) up to below 1.")
    if not diverge_at > 1:
        raise LRFinderError(f"diverge_at = {diverge_at}: expected more than 1, e.g. 4.")
    if rule not in RULES:
        raise LRFinderError(f"rule = {rule!r}: expected one of {', '.join(RULES)}.")
    if type(optimizer).__name__ == "LBFGS":
        raise LRFinderError(
            "LBFGS searches its own step length and needs a closure: there is no rate to sweep."
        )
    check_is_optimizer(optimizer)


def _check_parts(model: nn.Module, loader: object, val_loader: object) -> None:
    check_model(model)
    check_loader("loader", loader)
    for name, batches in (("loader", loader), ("val_loader", val_loader)):
        if hasattr(batches, "__next__"):  # before a batch is drawn, since that cannot be undone
            raise LRFinderError(
                f"{name} is a {type(batches).__name__}, which can be read only once. Pass a "
                "DataLoader or a list, which can be restarted."
            )
    if any(isinstance(parameter, UninitializedTensorMixin) for parameter in model.parameters()):
        raise LRFinderError(
            "the model has lazy parameters without a shape, so there is nothing to restore. Call "
            "it on one batch first, and then create the optimizer."
        )
    if not any(parameter.requires_grad for parameter in model.parameters()):
        raise LRFinderError(
            "no parameter of the model has requires_grad=True, so no rate can change the loss. "
            "Unfreeze what should be trained."
        )


def _own_workers(loader: Any) -> Any:
    """A copy of a DataLoader with its own workers.

    Persistent workers keep their random states from epoch to epoch, and these cannot be restored,
    so the sweep must not use the user's workers.
    """
    if not isinstance(loader, DataLoader) or not loader.persistent_workers:
        return loader
    twin = object.__new__(type(loader))
    vars(twin).update(vars(loader) | {"_iterator": None})
    return twin
