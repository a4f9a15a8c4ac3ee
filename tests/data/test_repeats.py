"""Rows of a few possible ones stand on both sides of an honest split now and then."""

import numpy as np
import pytest

from course.data.repeats import chance_of_shared
from course.data.split_check import check_split


def texts(rng, number: int) -> np.ndarray:
    """Rows of 3 to 7 tokens of 12, with zeros behind."""
    rows = rng.integers(2, 14, (number, 8))
    return rows * (np.arange(8) < rng.integers(3, 8, (number, 1)))


@pytest.mark.parametrize("sizes", [(400, 90), (400, 400)])
def test_short_texts_drawn_at_random_are_no_leak(sizes):
    found = 0
    for seed in range(60):
        train, val = (texts(np.random.default_rng([seed, side]), n) for side, n in enumerate(sizes))
        report = check_split(
            (train, np.zeros(len(train))), (val, np.zeros(len(val))), only=["copies"]
        )
        found += bool(report.findings)
    assert not found


def test_the_same_texts_put_on_both_sides_are_one():
    rng = np.random.default_rng(0)
    train = texts(rng, 400)
    val = np.concatenate([texts(rng, 80), train[:12]])
    report = check_split((train, np.zeros(400)), (val, np.zeros(len(val))), only=["copies"])
    assert [f.id for f in report.findings] == ["leak-overlap"]


def test_the_share_across_is_that_of_pairs():
    rows = [*"abcdefgh", "a"]
    assert chance_of_shared(rows, ["x", "y"]) == 1.0
    assert chance_of_shared(rows, ["a", "y"]) == pytest.approx(1 - (37 / 55) ** 2)
