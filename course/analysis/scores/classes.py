"""Which classes are confused, and precision, recall and F1 of each; by scikit-learn.

Source: Lecture 3, "Loss is not the metric" and "Error analysis"; ledger T23, T24.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from html import escape
from typing import Any

import numpy as np

from course.analysis.scores.predicting import Predictions, expect_predictions
from course.whole import whole_number


@dataclass(frozen=True)
class Confusion:
    """How often each class was predicted as each other class."""

    matrix: np.ndarray
    """[C, C] counts: row = true class, column = predicted class."""
    class_names: tuple[str, ...]

    def worst(self, n: int = 5) -> list[tuple[str, str, int]]:
        """The most frequent confusions: (true, predicted, count), largest first."""
        n = whole_number("n", n)
        off = self.matrix - np.diag(np.diag(self.matrix))
        order = np.argsort(-off, axis=None, kind="stable")[:n]
        pairs = [np.unravel_index(i, off.shape) for i in order]
        names = self.class_names
        return [(names[r], names[c], int(off[r, c])) for r, c in pairs if off[r, c]]

    def plot(self) -> Any:
        """A Figure of the matrix, coloured by share of the true class."""
        from course.plots.errors import plot_confusion

        return plot_confusion(self)

    def to_json(self) -> dict[str, Any]:
        """Plain lists."""
        return {"matrix": self.matrix.tolist(), "class_names": list(self.class_names)}

    def __str__(self) -> str:
        lines = [f"  {true} predicted as {said}: {count}" for true, said, count in self.worst()]
        return "\n".join(["most frequent confusions:", *(lines or ["  none"])])


def confusion(predictions: Predictions) -> Confusion:
    """Count pairs of true and predicted classes (scikit-learn's `confusion_matrix`).

    Source: Lecture 3, "Error analysis"; ledger T24 (label shift: look per class).
    """
    from sklearn.metrics import confusion_matrix

    predictions = expect_predictions(predictions)
    matrix = confusion_matrix(
        predictions.targets.numpy(),
        predictions.predicted.numpy(),
        labels=range(predictions.num_classes),
    )
    return Confusion(matrix, predictions.class_names)


@dataclass(frozen=True)
class ClassScore:
    """The row of one class."""

    name: str
    precision: float
    """Share of the predictions of this class that are right; nan if there are none."""
    recall: float
    """Share of the examples of this class that are found; nan if validation has none."""
    f1: float
    """Harmonic mean of both; nan if validation has no examples of the class."""
    support: int
    """Examples of the class."""


@dataclass(frozen=True)
class PerClass:
    """Precision, recall and F1 of every class."""

    classes: tuple[ClassScore, ...]
    accuracy: float
    macro_f1: float
    """Mean F1 over the classes in validation: each counts the same, however rare."""

    @property
    def missing(self) -> tuple[str, ...]:
        """Classes without examples: nothing is known about them."""
        return tuple(c.name for c in self.classes if not c.support)

    @property
    def note(self) -> str:
        """A warning, or an empty string."""
        if not self.missing:
            return ""
        return (
            f"no examples of class {', '.join(self.missing)}: its recall is unknown, not 0, and "
            "macro F1 leaves it out. Split stratified by class."
        )

    def to_json(self) -> dict[str, Any]:
        """Plain values; None if a score is not defined."""
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

    predictions = expect_predictions(predictions)
    targets, predicted = predictions.targets.numpy(), predictions.predicted.numpy()
    labels = range(predictions.num_classes)
    columns = precision_recall_fscore_support(
        targets, predicted, labels=labels, zero_division=np.nan
    )
    rows = []
    for name, precision, recall, f1, support in zip(predictions.class_names, *columns, strict=True):
        f1 = float(f1) if support else math.nan  # scikit-learn gives 0 if the class is missing
        rows.append(ClassScore(name, float(precision), float(recall), f1, int(support)))
    known = [index for index, row in enumerate(rows) if row.support]
    macro_f1 = f1_score(targets, predicted, labels=known, average="macro")
    return PerClass(tuple(rows), predictions.accuracy, float(macro_f1))
