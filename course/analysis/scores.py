"""Scores of a classifier: confusion, per class, threshold, calibration, and how sure each is.

Everything starts from `predict`, which runs the model once over a loader. The metrics themselves
are scikit-learn's and torchmetrics'; here they get the checks and the words around them.

    predictions = predict(model, val_loader)
    print(per_class(predictions))
    confusion(predictions).plot()

Source: Lecture 3, "Loss is not the metric" and "Error analysis"; ledger T23, T28, N60, F101.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from html import escape
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from course.engine.evaluation import evaluation_mode
from course.engine.placement import check_device, to_device

Metric = Callable[[np.ndarray, np.ndarray], float]
"""Of targets [N] and predicted classes [N]."""
MOST_THRESHOLDS = 200
TUNED_ON = (
    "chosen on these very examples, so its score here is too good: take the threshold from "
    "validation, then score once on a test set that chose nothing"
)


@dataclass(frozen=True)
class Predictions:
    """What a model says about every example, and what is true; on the CPU."""

    logits: Tensor
    """[N, C] float; C = 2 also where the model has one output a example: (0, logit)."""
    targets: Tensor
    """[N] class indices, long."""
    class_names: tuple[str, ...]

    @property
    def num_classes(self) -> int:
        """Outputs of the model."""
        return self.logits.shape[1]

    @property
    def probabilities(self) -> Tensor:
        """[N, C] softmax of the logits."""
        return self.logits.softmax(dim=1)

    @property
    def predicted(self) -> Tensor:
        """[N] the class with the largest logit."""
        return self.logits.argmax(dim=1)

    @property
    def confidence(self) -> Tensor:
        """[N] probability of the predicted class."""
        return self.probabilities.amax(dim=1)

    @property
    def right(self) -> Tensor:
        """[N] bool: the predicted class is the target."""
        return self.predicted == self.targets

    @property
    def accuracy(self) -> float:
        """Share of right predictions."""
        from sklearn.metrics import accuracy_score

        return float(accuracy_score(self.targets.numpy(), self.predicted.numpy()))

    def __len__(self) -> int:
        return len(self.targets)


def predict(
    model: nn.Module,
    loader: Iterable[tuple[Tensor, Tensor]],
    *,
    device: torch.device | str | None = None,
    class_names: Sequence[str] | None = None,
) -> Predictions:
    """Run the model once over a loader, in eval mode, without a graph.

    Args:
        model: Gives logits [B, C], or one logit an example ([B] or [B, 1]) for yes and no. Every
            module comes back in its own mode.
        loader: Pairs of inputs [B, ...] and class indices [B].
        device: Where to compute; the model's own by default.
        class_names: One a class; the indices by default.

    Raises:
        ValueError: No example, shapes that do not fit, targets outside the classes, or logits that
            are nan or inf.

    Source: Lecture 3, "Error analysis"; ledger C03.
    """
    device = check_device(model, device)
    logits, targets = [], []
    with evaluation_mode(model):
        for inputs, batch_targets in to_device(loader, device):
            batch_logits, batch_targets = check_batch(model(inputs), batch_targets, len(targets))
            logits.append(batch_logits)
            targets.append(batch_targets)
    if not targets:
        raise ValueError(
            "the loader gives no batch: there is nothing to score. Is the data set empty, or "
            "drop_last=True with fewer examples than a batch?"
        )
    return predictions(torch.cat(logits), torch.cat(targets), class_names=class_names)


def predictions(
    logits: Tensor, targets: Tensor, *, class_names: Sequence[str] | None = None
) -> Predictions:
    """The same from logits that are already there.

    Args:
        logits: [N, C], or [N] and [N, 1] for yes and no.
        targets: [N] class indices.
        class_names: One a class.

    Raises:
        ValueError: As `predict`.
    """
    logits, targets = check_batch(logits, targets, 0)
    names = tuple(map(str, class_names or range(logits.shape[1])))
    if len(names) != logits.shape[1]:
        raise ValueError(
            f"{len(names)} class_names for {logits.shape[1]} classes: give one a class, in the "
            "order of the logits."
        )
    return Predictions(logits, targets, names)


def check_batch(logits: Tensor, targets: Tensor, batch: int) -> tuple[Tensor, Tensor]:
    """Logits [B, C] as float and targets [B] as long, both on the CPU; or what is wrong."""
    where = f"batch {batch}: logits {list(logits.shape)} and targets {list(targets.shape)}"
    logits, targets = logits.detach().cpu(), targets.detach().cpu()
    if logits.ndim == 2 and logits.shape[1] == 1:
        logits = logits[:, 0]
        targets = targets[:, 0] if targets.ndim == 2 and targets.shape[1] == 1 else targets
    if targets.ndim == 2:
        raise ValueError(
            f"{where}: one class index an example is expected, shape [B]. One-hot targets become "
            "indices with targets.argmax(dim=1); several labels an example need a threshold each."
        )
    if logits.ndim not in (1, 2) or targets.ndim != 1 or len(logits) != len(targets):
        raise ValueError(
            f"{where}: expected logits [B, C] and targets [B]. For pixels or tokens flatten first: "
            "logits.flatten(2).transpose(1, 2).flatten(0, 1) and targets.flatten()."
        )
    if not torch.isfinite(logits).all():
        first = int((~torch.isfinite(logits)).flatten(1 if logits.ndim > 1 else 0).nonzero()[0][0])
        raise ValueError(
            f"{where}: nan or inf in the logits, first at example {first} of the batch. Look at "
            "that input, then at the weights: the training may have diverged."
        )
    if logits.ndim == 1:  # yes and no: sigmoid(z) is softmax of (0, z)
        logits = torch.stack([torch.zeros_like(logits), logits], dim=1)
    return logits.float(), _class_indices(targets, logits.shape[1], where)


def _class_indices(targets: Tensor, num_classes: int, where: str) -> Tensor:
    if targets.is_floating_point() and len(parts := targets[targets != targets.round()]):
        raise ValueError(
            f"{where}: targets hold {parts[0]:g}, which is no class index. A regression has no "
            "mistakes to count: look at the largest residuals instead."
        )
    targets = targets.long()
    outside = targets[(targets < 0) | (targets >= num_classes)]
    if len(outside):
        raise ValueError(
            f"{where}: target {int(outside[0])} with {num_classes} classes: 0 to {num_classes - 1} "
            "are expected. Drop masked targets (-100) first; labels from 1 need a minus 1."
        )
    return targets


# -- confusion and per-class scores -----------------------------------------------------------


@dataclass(frozen=True)
class Confusion:
    """How often each class was taken for which."""

    matrix: np.ndarray
    """[C, C] counts: row = true class, column = predicted class."""
    class_names: tuple[str, ...]

    def worst(self, n: int = 5) -> list[tuple[str, str, int]]:
        """The most frequent mix-ups: (true, predicted, count), the largest first."""
        off = self.matrix - np.diag(np.diag(self.matrix))
        order = np.argsort(-off, axis=None, kind="stable")[:n]
        pairs = [np.unravel_index(i, off.shape) for i in order]
        names = self.class_names
        return [(names[r], names[c], int(off[r, c])) for r, c in pairs if off[r, c]]

    def plot(self) -> Any:
        """The matrix as a Figure, coloured by share of the true class."""
        from course.plots.errors import plot_confusion

        return plot_confusion(self)

    def to_json(self) -> dict[str, Any]:
        """Plain lists."""
        return {"matrix": self.matrix.tolist(), "class_names": list(self.class_names)}

    def __str__(self) -> str:
        lines = [f"  {true} taken for {said}: {count}" for true, said, count in self.worst()]
        return "\n".join(["most frequent mix-ups:", *(lines or ["  none"])])


def confusion(predictions: Predictions) -> Confusion:
    """Count true against predicted classes (scikit-learn's `confusion_matrix`).

    Source: Lecture 3, "Error analysis"; ledger T24 (label shift: look per class).
    """
    from sklearn.metrics import confusion_matrix

    matrix = confusion_matrix(
        predictions.targets.numpy(),
        predictions.predicted.numpy(),
        labels=range(predictions.num_classes),
    )
    return Confusion(matrix, predictions.class_names)


@dataclass(frozen=True)
class ClassScore:
    """One class's row."""

    name: str
    precision: float
    """Of those called so, the share that is; nan where none was called so."""
    recall: float
    """Of those that are so, the share found; nan where validation has none."""
    f1: float
    """Harmonic mean of both; nan where validation has none of the class."""
    support: int
    """Examples of the class."""


@dataclass(frozen=True)
class PerClass:
    """Precision, recall and F1 of every class."""

    classes: tuple[ClassScore, ...]
    accuracy: float
    macro_f1: float
    """Mean F1 of the classes that validation has: each counts the same, however rare."""

    @property
    def missing(self) -> tuple[str, ...]:
        """Classes without an example: nothing is known about them."""
        return tuple(c.name for c in self.classes if not c.support)

    @property
    def note(self) -> str:
        """A warning, or nothing."""
        if not self.missing:
            return ""
        return (
            f"no example of class {', '.join(self.missing)}: its recall is unknown, not 0, and "
            "macro F1 leaves it out. Split stratified by class."
        )

    def to_json(self) -> dict[str, Any]:
        """Plain values; None where a score is not defined."""
        rows = [
            {k: None if isinstance(v, float) and math.isnan(v) else v for k, v in vars(c).items()}
            for c in self.classes
        ]
        return {
            "classes": rows, "accuracy": self.accuracy, "macro_f1": self.macro_f1,
            "note": self.note,
        }  # fmt: skip

    def __str__(self) -> str:
        width = max(5, *(len(c.name) for c in self.classes))
        lines = [f"{'class':<{width}}  precision  recall     f1  support"]
        lines += [
            f"{c.name:<{width}}  {c.precision:9.3f}  {c.recall:6.3f}  {c.f1:5.3f}  {c.support:7d}"
            for c in self.classes
        ]
        lines.append(f"accuracy {self.accuracy:.3f}, macro F1 {self.macro_f1:.3f}")
        return "\n".join([*lines, *([self.note] if self.note else [])])

    def _repr_html_(self) -> str:
        rows = "".join(
            f"<tr><td>{escape(c.name)}</td><td>{c.precision:.3f}</td><td>{c.recall:.3f}</td>"
            f"<td>{c.f1:.3f}</td><td>{c.support}</td></tr>"
            for c in self.classes
        )
        return (
            "<table><thead><tr><th>class</th><th>precision</th><th>recall</th><th>F1</th>"
            f"<th>support</th></tr></thead><tbody>{rows}</tbody></table>"
            f"<p>accuracy {self.accuracy:.3f}, macro F1 {self.macro_f1:.3f}</p>"
            f"<p>{escape(self.note)}</p>"
        )


def per_class(predictions: Predictions) -> PerClass:
    """Precision, recall, F1 and support of each class, by scikit-learn.

    Source: Lecture 3, "Loss is not the metric"; ledger T23, T24.
    """
    from sklearn.metrics import f1_score, precision_recall_fscore_support

    targets, predicted = predictions.targets.numpy(), predictions.predicted.numpy()
    labels = range(predictions.num_classes)
    columns = precision_recall_fscore_support(
        targets, predicted, labels=labels, zero_division=np.nan
    )
    rows = []
    for name, precision, recall, f1, support in zip(predictions.class_names, *columns, strict=True):
        f1 = float(f1) if support else math.nan  # scikit-learn says 0 where the class is missing
        rows.append(ClassScore(name, float(precision), float(recall), f1, int(support)))
    known = [index for index, row in enumerate(rows) if row.support]
    macro_f1 = f1_score(targets, predicted, labels=known, average="macro")
    return PerClass(tuple(rows), predictions.accuracy, float(macro_f1))


# -- how sure: bootstrap ----------------------------------------------------------------------


@dataclass(frozen=True)
class Interval:
    """A number with its bootstrap interval."""

    value: float
    low: float
    high: float
    confidence: float = 0.95

    def __str__(self) -> str:
        return f"{self.value:.4g} [{self.low:.4g}, {self.high:.4g}]"


def bootstrap(
    statistic: Callable[..., Any],
    *samples: Any,
    paired: bool = True,
    vectorized: bool = False,
    confidence: float = 0.95,
    resamples: int = 1000,
    seed: int = 0,
) -> Interval:
    """Percentile bootstrap interval of any statistic, by `scipy.stats.bootstrap`.

    It says how far the number would move with other validation examples of the same kind. It does
    not know of other seeds of the training, nor of examples that differ from these.

    Args:
        statistic: Of the samples; a score as `f1_score(targets, predicted)`. With `vectorized` it
            takes `axis` and is much faster.
        samples: Arrays or tensors; with `paired`, one entry an example in each.
        paired: Draw the same examples from every sample.
        vectorized: `statistic` takes `axis`.
        confidence: Of the interval, in (0, 1).
        resamples: Draws with replacement.
        seed: Of the draws.

    Raises:
        ValueError: Fewer than two examples, samples of different lengths, or a `confidence` or
            `resamples` out of range.

    Source: Efron and Tibshirani, An Introduction to the Bootstrap, ch. 13.
    """
    from scipy import stats

    arrays = [np.asarray(sample) for sample in samples]
    lengths = [len(array) for array in arrays]
    if not lengths or min(lengths) < 2:
        raise ValueError(f"samples of {lengths} examples: an interval needs at least 2 in each.")
    if paired and len(set(lengths)) > 1:
        raise ValueError(f"samples of {lengths} examples: paired ones have the same length.")
    if not 0 < confidence < 1 or resamples < 1:
        raise ValueError(
            f"confidence = {confidence}, resamples = {resamples}: take a confidence between 0 and "
            "1, as 0.95, and at least 1 resample, as 1000."
        )
    value = float(statistic(*arrays, axis=-1) if vectorized else statistic(*arrays))
    with np.errstate(invalid="ignore"):
        drawn = stats.bootstrap(
            arrays, statistic, paired=paired, vectorized=vectorized, n_resamples=resamples,
            confidence_level=confidence, method="percentile", batch=50,
            random_state=np.random.default_rng(seed),  # `rng` only since SciPy 1.15
        ).bootstrap_distribution  # fmt: skip
    tail = (1 - confidence) / 2
    low, high = np.nanquantile(drawn, [tail, 1 - tail])  # a draw may lack a class: nan there
    return Interval(value, float(low), float(high), confidence)


def accuracy_interval(predictions: Predictions, **options: Any) -> Interval:
    """Accuracy with its bootstrap interval; options as of `bootstrap`.

    Where every prediction is right the bootstrap can draw no mistake, and the interval has no
    width; up to 3 / N mistakes are then still plausible (rule of three).
    """
    return bootstrap(np.mean, predictions.right.numpy().astype(float), vectorized=True, **options)


# -- threshold --------------------------------------------------------------------------------


@dataclass(frozen=True)
class Threshold:
    """The threshold that scores best on the examples that chose it."""

    threshold: float
    """Call it 1 where the score is at least this."""
    metric: str
    tuned: Interval
    """The metric at this threshold, on the examples that chose it: too good, see `warning`."""
    default: float
    """The metric at 0.5, on the same examples."""
    candidates: tuple[tuple[float, float], ...]
    """(threshold, metric) of all that were tried, the thresholds rising."""
    measure: Metric

    warning: str = TUNED_ON

    def score(self, scores: Any, targets: Any) -> float:
        """The metric at this threshold on other examples: what to report, from the test set.

        Args:
            scores: [N] probabilities of class 1.
            targets: [N] of 0 and 1.
        """
        scores, targets = _check_scores(scores, targets)
        return float(self.measure(targets, (scores >= self.threshold).astype(int)))

    def plot(self) -> Any:
        """Metric over threshold as a Figure."""
        from course.plots.errors import plot_threshold

        return plot_threshold(self)

    def __str__(self) -> str:
        return (
            f"threshold {self.threshold:.3f}: {self.metric} {self.tuned} against "
            f"{self.default:.4g} at 0.5\n  {self.warning}"
        )


def tune_threshold(
    scores: Any, targets: Any, *, metric: str | Metric = "f1", seed: int = 0
) -> Threshold:
    """The threshold on validation scores at which a metric is best.

    Never on the test set: the best of many thresholds fits the noise of the examples that choose
    it. Ties go to the threshold nearest 0.5.

    Args:
        scores: [N] probabilities of class 1, of the validation set.
        targets: [N] of 0 and 1.
        metric: `f1`, `balanced_accuracy`, `accuracy`, `mcc`, or a function of targets and predicted
            classes.
        seed: Of the bootstrap interval.

    Raises:
        ValueError: Another metric, scores that are no probabilities, or one class only.

    Source: Lecture 3, "From bucket to action" (threshold: tune on validation); ledger T28.
    """
    scores, targets = _check_scores(scores, targets)
    if len(set(targets.tolist())) < 2:
        raise ValueError(
            f"all {len(targets)} targets are {targets[0]}: without both classes no threshold is "
            "better than another. Split stratified by class."
        )
    name, measure = _measure(metric)
    tried = []
    for threshold in _thresholds(scores):
        tried.append((threshold, float(measure(targets, (scores >= threshold).astype(int)))))
    best = max(value for _, value in tried)
    if math.isnan(best):
        raise ValueError(f"{name} is nan at every threshold: choose another metric.")
    chosen = min((t for t, value in tried if value == best), key=lambda t: abs(t - 0.5))
    tuned = bootstrap(measure, targets, (scores >= chosen).astype(int), resamples=200, seed=seed)
    default = float(measure(targets, (scores >= 0.5).astype(int)))
    return Threshold(chosen, name, tuned, default, tuple(tried), measure)


def _thresholds(scores: np.ndarray) -> list[float]:
    """Halfway between neighbouring scores, thinned to quantiles where there are many; and 0.5."""
    values = np.unique(scores)
    halfway = (values[1:] + values[:-1]) / 2
    if len(halfway) > MOST_THRESHOLDS:
        halfway = np.quantile(halfway, np.linspace(0, 1, MOST_THRESHOLDS), method="nearest")
    return sorted({0.5, *map(float, halfway)})


def _measure(metric: str | Metric) -> tuple[str, Metric]:
    from sklearn import metrics

    known: dict[str, Metric] = {
        "f1": partial(metrics.f1_score, zero_division=0),
        "balanced_accuracy": _balanced_accuracy,
        "accuracy": metrics.accuracy_score,
        "mcc": metrics.matthews_corrcoef,
    }
    if callable(metric):
        return getattr(metric, "__name__", "metric"), metric
    if metric not in known:
        raise ValueError(
            f"metric = {metric!r}: known are {', '.join(known)}; or give a function of targets and "
            "predicted classes."
        )
    return metric, known[metric]


def _balanced_accuracy(targets: np.ndarray, predicted: np.ndarray) -> float:
    """Mean recall of the classes that are there; quiet where a bootstrap draw lacks one."""
    from sklearn.metrics import recall_score

    present = sorted(set(targets.tolist()))
    return float(recall_score(targets, predicted, labels=present, average="macro"))


def _check_scores(scores: Any, targets: Any) -> tuple[np.ndarray, np.ndarray]:
    scores = np.asarray(scores, dtype=float)
    targets = np.asarray(targets)
    if scores.shape != targets.shape or scores.ndim != 1:
        raise ValueError(
            f"scores {list(scores.shape)} and targets {list(targets.shape)}: both are [N], one "
            "score an example. Of [N, 2] probabilities take column 1; of more classes tune one "
            "class against the rest."
        )
    if not len(scores):
        raise ValueError("no scores: there is nothing to tune on.")
    if not (np.isfinite(scores).all() and scores.min() >= 0 and scores.max() <= 1):
        raise ValueError(
            f"scores from {scores.min():.3g} to {scores.max():.3g}: probabilities between 0 and 1 "
            "are expected. Logits become probabilities with torch.sigmoid."
        )
    if not set(targets.tolist()) <= {0, 1}:
        raise ValueError(f"targets hold {sorted(set(targets.tolist()))[:5]}: 0 and 1 are expected.")
    return scores, targets.astype(int)


# -- calibration ------------------------------------------------------------------------------


@dataclass(frozen=True)
class Calibration:
    """Whether a confidence of 80 % is right 80 % of the time."""

    ece: float
    """Expected calibration error (torchmetrics, L1, equal bins): the mean gap, weighed by count."""
    nll: float
    """Mean cross-entropy."""
    confidence: tuple[float, ...]
    """Mean confidence in each bin that holds examples."""
    accuracy: tuple[float, ...]
    """Share of right predictions there (scikit-learn's `calibration_curve`)."""
    mean_confidence: float
    overall_accuracy: float
    temperature: float = 1.0
    """By what the logits were divided."""

    @property
    def verdict(self) -> str:
        """Over- or underconfident, by the means."""
        gap = self.mean_confidence - self.overall_accuracy
        if abs(gap) < 0.01:
            return "confident as it should be, on average"
        return "overconfident" if gap > 0 else "underconfident"

    def plot(self) -> Any:
        """Reliability diagram as a Figure."""
        from course.plots.errors import plot_reliability

        return plot_reliability(self)

    def __str__(self) -> str:
        return (
            f"{self.verdict}: mean confidence {self.mean_confidence:.3f}, accuracy "
            f"{self.overall_accuracy:.3f}; ECE {self.ece:.4f}, NLL {self.nll:.4f} at temperature "
            f"{self.temperature:.3g}"
        )


def calibration(
    predictions: Predictions, *, temperature: float = 1.0, bins: int = 10
) -> Calibration:
    """Expected calibration error and the reliability diagram's points.

    Args:
        predictions: Of the model on validation or test examples.
        temperature: Divide the logits by it first.
        bins: Equal bins of confidence.

    Raises:
        ValueError: `temperature` not above 0, or fewer than one bin.

    Source: Guo et al. 2017; Lecture 3, "Loss is not the metric" (accuracy hides calibration).
    """
    from sklearn.calibration import calibration_curve
    from torch.nn.functional import cross_entropy
    from torchmetrics.functional.classification import multiclass_calibration_error

    if not (temperature > 0 and math.isfinite(temperature)) or bins < 1:
        raise ValueError(
            f"temperature = {temperature}, bins = {bins}: the temperature must be above 0 (1 "
            "leaves the logits alone) and there is at least 1 bin; 10 to 15 are usual."
        )
    logits = predictions.logits / temperature
    probabilities = logits.softmax(dim=1)
    confidence = probabilities.amax(dim=1).double().clamp(0, 1)
    ece = multiclass_calibration_error(
        probabilities, predictions.targets, num_classes=predictions.num_classes, n_bins=bins,
        norm="l1",
    )  # fmt: skip
    right = predictions.right.numpy()
    accuracy, mean = calibration_curve(
        right.astype(int), confidence.numpy(), pos_label=1, n_bins=bins
    )
    return Calibration(
        ece=float(ece),
        nll=float(cross_entropy(logits, predictions.targets)),
        confidence=tuple(map(float, mean)),
        accuracy=tuple(map(float, accuracy)),
        mean_confidence=float(confidence.mean()),
        overall_accuracy=predictions.accuracy,
        temperature=float(temperature),
    )


def fit_temperature(predictions: Predictions) -> float:
    """The temperature at which validation cross-entropy is lowest.

    Dividing all logits by one number changes no prediction, only how sure they sound.

    Args:
        predictions: Of the validation set, not of the test set.

    Raises:
        ValueError: Every prediction is right (the best temperature is 0), or the logits do not
            speak for the targets at all (it is infinite): there is nothing to fit.

    Source: Guo et al. 2017, "On Calibration of Modern Neural Networks".
    """
    from scipy.optimize import minimize_scalar
    from torch.nn.functional import cross_entropy

    logits, targets = predictions.logits.double(), predictions.targets
    of_target = logits.gather(1, targets[:, None])[:, 0]
    end = ""
    if (of_target == logits.amax(dim=1)).all():
        end = "0: every prediction is right"
    elif of_target.mean() <= logits.mean():  # slope of the loss over 1 / T, at 1 / T = 0
        end = "infinity: the logits speak no louder for the target than for the rest"
    if end:
        raise ValueError(
            f"the best temperature runs to {end}, on these {len(predictions)} examples. Fit it on "
            "more, or harder, validation examples."
        )

    def nll(log_temperature: float) -> float:
        return float(cross_entropy(logits / math.exp(log_temperature), targets))

    found = minimize_scalar(nll, bounds=(-7.0, 7.0), method="bounded", options={"xatol": 1e-6})
    return math.exp(float(found.x))
