"""Loss is not the metric: the loss is what the gradient can see, the metric is what we want.

Each case trains (or builds) models on real bundled data and measures their loss and metrics on the
same validation examples. The model that is better by the loss is not the one that is better by the
metric.

    print(imbalanced())     # accuracy and cross-entropy prefer the model that finds less
    for case in cases(): case.plot()

Source: Lecture 3, "Loss is not the metric"; ledger T23, N60, F101.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from html import escape
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from course.analysis.tables import as_csv
from course.tables import boxed
from course.whole import check_seed, whole_number

Better = Literal["min", "max"]


@dataclass(frozen=True)
class Case:
    """Several models on the same examples, compared by several measures."""

    title: str
    data: str
    measures: dict[str, Better]
    """Whether lower or higher is better, by measure; the training loss comes first."""
    models: dict[str, dict[str, float]]
    """Value of each measure, by model."""
    lesson: str
    """The lesson, in a sentence."""

    @property
    def loss(self) -> str:
        """Name of the first measure, the loss."""
        return next(iter(self.measures))

    def winner(self, measure: str) -> str | None:
        """The best model by this measure; None if the best two are equal."""
        if measure not in self.measures:
            raise ValueError(
                f"no measure {measure!r}; the measures are {', '.join(self.measures)}."
            )
        sign = 1 if self.measures[measure] == "min" else -1
        ranked = sorted(self.models, key=lambda name: sign * self.models[name][measure])
        first, second = (self.models[name][measure] for name in ranked[:2])
        return None if first == second else ranked[0]

    @property
    def disagree(self) -> tuple[str, ...]:
        """Measures that choose a different model than the loss does."""
        by_loss = self.winner(self.loss)
        return tuple(m for m in self.measures if self.winner(m) != by_loss)

    def plot(self) -> Any:
        """A Figure with bars for every measure."""
        from course.plots.errors import plot_case

        return plot_case(self)

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return {
            "title": self.title, "data": self.data, "measures": dict(self.measures),
            "models": {name: dict(values) for name, values in self.models.items()},
            "winners": {m: self.winner(m) for m in self.measures}, "lesson": self.lesson,
        }  # fmt: skip

    def to_csv(self) -> str:
        """One line per model, with a header."""
        rows = ({"model": name} | dict(values) for name, values in self.models.items())
        return as_csv(["model", *self.measures], rows)

    def __str__(self) -> str:
        width = max(map(len, self.models))
        heads = [f"{name} {'↓' if way == 'min' else '↑'}" for name, way in self.measures.items()]
        lines = [f"{self.title} ({self.data})", f"  {'':<{width}}  {'  '.join(heads)}"]
        for name, values in self.models.items():
            cells = (
                f"{values[m]:.4g}{'*' if self.winner(m) == name else ''}".rjust(len(head))
                for m, head in zip(self.measures, heads, strict=True)
            )
            lines.append(f"  {name:<{width}}  {'  '.join(cells)}")
        return "\n".join([*lines, "  * better by this measure", f"  {self.lesson}"])

    def _repr_html_(self) -> str:
        heads = "".join(
            f"<th>{escape(m)} {'↓' if way == 'min' else '↑'}</th>"
            for m, way in self.measures.items()
        )
        rows = ""
        for name, values in self.models.items():
            cells = (
                f"<td>{'<b>' if self.winner(m) == name else ''}{values[m]:.4g}"
                f"{'</b>' if self.winner(m) == name else ''}</td>"
                for m in self.measures
            )
            rows += f"<tr><td>{escape(name)}</td>{''.join(cells)}</tr>"
        table = f"<table><thead><tr><th></th>{heads}</tr></thead><tbody>{rows}</tbody></table>"
        return (
            f"<h4>{escape(self.title)}</h4><p>{escape(self.data)}</p>{boxed(table)}"
            f"<p>{escape(self.lesson)}</p>"
        )


def cases(seed: int = 0) -> Iterator[Case]:
    """All cases of the lecture's table, in its order.

    Args:
        seed: Seed for splits and weights.
    """
    for case in CASES.values():
        yield case(seed=seed)


# -- balanced: cross-entropy, accuracy, and the calibration that accuracy hides ----------------


def balanced(*, seed: int = 0) -> Case:
    """Upper halves of digits: one model, with its own logits and with logits five times as large.

    Accuracy cannot distinguish them, since no argmax changes; cross-entropy and calibration error
    can.

    Source: Lecture 3, "Loss is not the metric" (balanced: accuracy hides calibration); T23.
    """
    from course.analysis.scores import Predictions, calibration
    from course.data.datasets import load

    data = load("digits", seed=check_seed(seed))
    train, val = (x[:, :, :4].flatten(1) for x in (data.train_inputs, data.val_inputs))
    weight, bias = _fit(
        lambda z: F.cross_entropy(z, data.train_targets), train, 10, steps=100, seed=seed
    )
    models = {}
    for name, scale in (("as trained", 1.0), ("logits times 5", 5.0)):
        said = Predictions(
            scale * (val @ weight + bias), data.val_targets, tuple(map(str, range(10)))
        )
        measured = calibration(said)
        models[name] = {
            "cross-entropy": measured.nll, "accuracy": said.accuracy, "ECE": measured.ece,
        }  # fmt: skip
    return Case(
        "Balanced classes: accuracy hides calibration",
        "digits, upper halves, 10 classes",
        {"cross-entropy": "min", "accuracy": "max", "ECE": "min"},
        models,
        "No prediction changed, so accuracy is equal; only the probabilities got worse.",
    )


# -- imbalanced -------------------------------------------------------------------------------


def imbalanced(*, seed: int = 0, digit: int = 8) -> Case:
    """One digit against the nine others: about one example in ten is positive.

    A model that always says no is 90 % accurate but finds no positives. Plain and class-weighted
    cross-entropy train the same linear model; the plain one wins by loss and often by accuracy, but
    the weighted one finds more of the rare class.

    Args:
        seed: Seed for the split and the weights.
        digit: The rare class.

    Source: Lecture 3, "Loss is not the metric" (imbalanced: the majority wins); T23, N60, F101.
    """
    from sklearn import metrics

    from course.data.datasets import load

    digit = whole_number("digit", digit, 0, 9)
    data = load("digits", seed=check_seed(seed))
    train, val = data.train_inputs.flatten(1), data.val_inputs.flatten(1)
    rare, truth = (data.train_targets == digit).float(), (data.val_targets == digit).float()
    up_weight = (1 - rare).sum() / rare.sum()

    def trained(pos_weight: Tensor | None) -> Tensor:
        weight, bias = _fit(
            lambda z: F.binary_cross_entropy_with_logits(z[:, 0], rare, pos_weight=pos_weight),
            train, 1, steps=60, seed=seed,
        )  # fmt: skip
        return (val @ weight + bias)[:, 0]

    base_rate = torch.logit(rare.mean()).expand(len(val))
    models = {}
    for name, logits in (
        ("always no", base_rate), ("plain loss", trained(None)),
        ("weighted loss", trained(up_weight)),
    ):  # fmt: skip
        said, scores = (logits > 0).int().numpy(), torch.sigmoid(logits).numpy()
        models[name] = {
            "cross-entropy": float(F.binary_cross_entropy_with_logits(logits, truth)),
            "accuracy": float(metrics.accuracy_score(truth, said)),
            "F1": float(metrics.f1_score(truth, said, zero_division=0)),
            "recall": float(metrics.recall_score(truth, said)),
            "AUROC": float(metrics.roc_auc_score(truth, scores)),
            "AUPRC": float(metrics.average_precision_score(truth, scores)),
        }
    return Case(
        "A rare class: accuracy looks good although nothing is found",
        f"digits, {digit} against the rest: {truth.mean():.0%} positive",
        {
            "cross-entropy": "min", "accuracy": "max", "F1": "max", "recall": "max",
            "AUROC": "max", "AUPRC": "max",
        },
        models,
        f"Always no: accuracy {models['always no']['accuracy']:.3f}, F1 0. Read recall, F1 or "
        "AUPRC as well as accuracy, and choose the threshold on validation.",
    )  # fmt: skip


# -- regression -------------------------------------------------------------------------------


def regression(*, seed: int = 0) -> Case:
    """Diabetes: the same line fitted by squared and by absolute error, some targets mistyped.

    One training target in twenty is ten times too large, as if typed without its decimal point.
    Validation is clean. Squared error follows these few; absolute error does not.

    Args:
        seed: Seed for the split and for the choice of mistyped targets.

    Source: Lecture 3, "Loss is not the metric" (regression: how errors are weighted); T23, T05.
    """
    from sklearn import metrics
    from sklearn.datasets import load_diabetes
    from sklearn.linear_model import LinearRegression, QuantileRegressor
    from sklearn.model_selection import train_test_split

    seed = check_seed(seed)
    inputs, targets = load_diabetes(return_X_y=True)
    train, val, train_targets, truth = train_test_split(
        inputs, targets, test_size=0.3, random_state=seed
    )
    mistyped = np.random.default_rng(seed).choice(len(train), size=len(train) // 20, replace=False)
    train_targets = train_targets.copy()
    train_targets[mistyped] *= 10
    fits = {
        "least squares": LinearRegression(),
        "least absolute": QuantileRegressor(quantile=0.5, alpha=0.0, solver="highs"),
    }
    models = {}
    for name, model in fits.items():
        model.fit(train, train_targets)
        said = model.predict(val)
        models[name] = {
            "training MSE": float(metrics.mean_squared_error(train_targets, model.predict(train))),
            "training MAE": float(metrics.mean_absolute_error(train_targets, model.predict(train))),
            "RMSE": float(metrics.root_mean_squared_error(truth, said)),
            "MAE": float(metrics.mean_absolute_error(truth, said)),
            "R²": float(metrics.r2_score(truth, said)),
        }
    squares, absolutes = models.values()
    return Case(
        "Regression: the loss decides whose errors count",
        f"diabetes, {len(mistyped)} of {len(train)} training targets times 10",
        {"training MSE": "min", "training MAE": "min", "RMSE": "min", "MAE": "min", "R²": "max"},
        models,
        "Least squares has the lowest possible training MSE, but on clean validation data its "
        f"RMSE is {squares['RMSE']:.1f} against {absolutes['RMSE']:.1f}. Squared, an error ten "
        "times as large counts a hundred times as much.",
    )


# -- ranking ----------------------------------------------------------------------------------


def ranking(*, seed: int = 0, num_queries: int = 150) -> Case:
    """Digits as retrieval: one embedding, and the same at a tenth of its scale.

    All distances shrink by the same factor, so every list keeps its order: recall@1 and reciprocal
    rank stay equal to the last digit, while the contrastive loss with margin 1 changes a lot. A
    third embedding, with only two dimensions, is scaled to minimise the loss, and ranks worse.

    Args:
        seed: Seed for the split.
        num_queries: Number of validation digits used as queries on the training digits.

    Source: Lecture 3, "Loss is not the metric" (ranking: poor top-k); T23, T05.
    """
    from sklearn.decomposition import PCA

    from course.data.datasets import load

    data = load("digits", seed=check_seed(seed))
    num_queries = whole_number("num_queries", num_queries, 1, len(data.val_targets))
    gallery, labels = data.train_inputs.flatten(1), data.train_targets
    queries, truth = data.val_inputs.flatten(1)[:num_queries], data.val_targets[:num_queries]
    relevant = truth[:, None] == labels[None]

    def distances(dimensions: int) -> Tensor:
        pca = PCA(dimensions, random_state=seed).fit(gallery)
        points = [torch.from_numpy(pca.transform(x)).double() for x in (queries, gallery)]
        return torch.cdist(*points)

    wide, narrow = distances(30), distances(2)
    models = {
        name: _retrieval(scaled, relevant)
        for name, scaled in (
            ("30 numbers", wide), ("30 numbers / 10", wide / 10),
            ("2 numbers, fitted scale", narrow * _best_scale(narrow, relevant)),
        )
    }  # fmt: skip
    return Case(
        "Ranking: the loss sees distances, the metric sees the order",
        f"digits, {num_queries} queries in {len(labels)} examples",
        {"contrastive loss": "min", "recall@1": "max", "MRR": "max"},
        models,
        "Scaling changes the loss but no ranking; an embedding with a lower loss may put the wrong "
        "digit first. Monitor recall@k or MRR.",
    )


def _retrieval(distances: Tensor, relevant: Tensor) -> dict[str, float]:
    """Loss and torchmetrics' scores; the nearest comes first. `recall@1`: is the first relevant?"""
    from torchmetrics.functional.retrieval import retrieval_hit_rate, retrieval_reciprocal_rank

    # Above 0, because torchmetrics 1.9 treats scores of 0 or less as not retrieved.
    pairs = list(zip(1 - distances / (2 * distances.max()), relevant, strict=True))
    hits = [retrieval_hit_rate(nearness, same, top_k=1) for nearness, same in pairs]
    ranks = [retrieval_reciprocal_rank(nearness, same) for nearness, same in pairs]
    return {
        "contrastive loss": contrastive_loss(distances, relevant).item(),
        "recall@1": torch.stack(hits).mean().item(),
        "MRR": torch.stack(ranks).mean().item(),
    }


def contrastive_loss(distances: Tensor, same: Tensor, margin: float = 1.0) -> Tensor:
    """Mean of d² over same-class pairs and of max(0, margin − d)² over the others, half each.

    Args:
        distances: [Q, G] float, not negative.
        same: [Q, G] bool.
        margin: How far apart different classes should be.

    Source: Hadsell, Chopra and LeCun 2006; ledger T05.
    """
    near = distances[same].square().mean()
    far = (margin - distances[~same]).clamp(min=0).square().mean()
    return (near + far) / 2


def _best_scale(distances: Tensor, same: Tensor) -> float:
    """The factor at which the contrastive loss is lowest, among 60 from 0.001 to 10."""
    scales = torch.logspace(-3, 1, 60, dtype=distances.dtype).tolist()
    return min(scales, key=lambda scale: contrastive_loss(scale * distances, same).item())


def _fit(
    loss_of: Callable[[Tensor], Tensor], inputs: Tensor, outputs: int, *, steps: int, seed: int
) -> tuple[Tensor, Tensor]:
    """Weight [F, C] and bias [C] of a linear model after `steps` full-batch steps of Adam."""
    generator = torch.Generator().manual_seed(seed)
    weight = (0.01 * torch.randn(inputs.shape[1], outputs, generator=generator)).requires_grad_()
    bias = torch.zeros(outputs, requires_grad=True)
    optimizer = torch.optim.Adam([weight, bias], lr=0.02)
    for _ in range(steps):
        optimizer.zero_grad()
        loss_of(inputs @ weight + bias).backward()
        optimizer.step()
    return weight.detach(), bias.detach()


CASES: dict[str, Callable[..., Case]] = {
    "balanced": balanced,
    "imbalanced": imbalanced,
    "regression": regression,
    "ranking": ranking,
}
