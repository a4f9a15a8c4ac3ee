"""The cost of choosing on the test set: how far the reported score exceeds the true one.

    cost = cost_of_choosing()
    print(cost); plot_choosing(cost)

Many candidates, each a little different, are scored on three small parts of one data set; all other
rows stand for the real world in which the model is used. The best of many scores is partly the
luckiest, so the part that chooses reports too high a score. A part that chose nothing does not.

Source: Engineering module, §4; ledger B41, K38.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from course.whole import check_seed, whole_number

PART = 60
"""Examples in each of training, validation and test: a small study."""
FEATURES = 3
"""Columns that a candidate uses: enough to be useful, few enough that candidates differ."""


@dataclass(frozen=True, kw_only=True)
class Cost:
    """Mean accuracies by number of candidates; each list has one entry per number."""

    num_candidates: tuple[int, ...]
    chosen_on_test: tuple[float, ...]
    """Test accuracy of the candidate with the best test accuracy: what is reported."""
    its_truth: tuple[float, ...]
    """That candidate's accuracy on the rest of the data."""
    chosen_on_val: tuple[float, ...]
    """Test accuracy of the candidate with the best validation accuracy."""
    val_truth: tuple[float, ...]
    """That candidate's accuracy on the rest of the data."""
    val_score: tuple[float, ...]
    """Its validation accuracy, by which it was chosen."""

    @property
    def optimism(self) -> tuple[float, ...]:
        """Reported minus true accuracy if the test set chose."""
        return tuple(a - b for a, b in zip(self.chosen_on_test, self.its_truth, strict=True))

    @property
    def honest_gap(self) -> tuple[float, ...]:
        """The same if validation chose and the test set was used once."""
        return tuple(a - b for a, b in zip(self.chosen_on_val, self.val_truth, strict=True))

    def __str__(self) -> str:
        lines = ["candidates  test chooses: reported, true   validation chooses: reported, true"]
        for i, num in enumerate(self.num_candidates):
            lines.append(
                f"{num:10}  {self.chosen_on_test[i]:22.3f}, {self.its_truth[i]:.3f}"
                f"   {self.chosen_on_val[i]:28.3f}, {self.val_truth[i]:.3f}"
            )
        return "\n".join(lines)


def cost_of_choosing(
    num_candidates: tuple[int, ...] = (1, 3, 10, 30, 100), *, num_splits: int = 100, seed: int = 0
) -> Cost:
    """Choose among candidates by the test set and by validation, on the breast-cancer data.

    A candidate classifies by the nearest class mean in three random columns, scaled by training.

    Args:
        num_candidates: Numbers of candidates to choose from, ascending.
        num_splits: Number of splits to average over.
        seed: Seed for splits and columns.
    """
    from sklearn.datasets import load_breast_cancer

    inputs, targets = load_breast_cancer(return_X_y=True)
    num_splits = whole_number("num_splits", num_splits, 1)
    rng = np.random.default_rng(check_seed(seed))
    most = max(num_candidates)
    found = np.zeros((5, len(num_candidates)))
    for _ in range(num_splits):
        parts = np.split(rng.permutation(len(targets)), [PART, 2 * PART, 3 * PART])
        columns = np.array([rng.permutation(inputs.shape[1])[:FEATURES] for _ in range(most)])
        scores = np.array([_scores(inputs[:, c], targets, parts) for c in columns])
        found += np.array([_chosen(scores[:num]) for num in num_candidates]).T
    rows = [tuple(map(float, row)) for row in found / num_splits]
    return Cost(
        num_candidates=tuple(num_candidates), chosen_on_test=rows[0], its_truth=rows[1],
        chosen_on_val=rows[2], val_truth=rows[3], val_score=rows[4],
    )  # fmt: skip


def _scores(inputs: np.ndarray, targets: np.ndarray, parts: list[np.ndarray]) -> list[float]:
    """Accuracy of the nearest training class mean on validation, test and the rest."""
    train, *others = parts
    rows = inputs / inputs[train].std(0)
    means = [rows[train][targets[train] == label].mean(0) for label in (0, 1)]
    distances = [np.square(rows - mean).sum(1) for mean in means]
    right = (distances[1] < distances[0]) == targets
    return [float(right[part].mean()) for part in others]


def _chosen(scores: np.ndarray) -> list[float]:
    """From the candidates' scores [K, 3]: the scores of those that test and validation choose."""
    by_test, by_val = scores[scores[:, 1].argmax()], scores[scores[:, 0].argmax()]
    return [by_test[1], by_test[2], by_val[1], by_val[2], by_val[0]]
