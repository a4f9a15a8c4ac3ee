"""Columns of every kind: equal where Python says so, and named where they cannot be compared."""

from __future__ import annotations

import datetime as dt
import json
import warnings

import numpy as np
import pytest
import torch
from scipy import stats

from course.data import (
    check_split,
    group_split,
    random_split,
    stratified_split,
    time_split,
)
from course.data.columns import NotComparable, as_array, in_order, key_of

RNG = np.random.default_rng(0)
X, X_VAL = RNG.normal(size=(240, 10)), RNG.normal(size=(80, 10))
Y, Y_VAL = RNG.integers(0, 3, 240), RNG.integers(0, 3, 80)


def leaked(make):
    """Both sides in another kind, the first 20 validation rows being training rows."""
    x_val = X_VAL.copy()
    x_val[:20] = X[100:120]
    return make(X), make(x_val)


def gappy(array):
    array = array.copy()
    array[::5, 2], array[::10, 4] = np.nan, np.inf
    return array


def words(array):
    return np.array([[f"w{round(cell, 3)}" for cell in row] for row in array])


def mixed(array):
    return np.array([["text", None, *row] for row in array], dtype=object)


def records(array):
    kind = [("size", "f8"), ("age", "i4")]
    return np.array([(row[0], int(1000 * row[1])) for row in array], dtype=kind)


KINDS = {
    "float64": np.asarray, "lists": np.ndarray.tolist, "float16": lambda a: a.astype(np.float16),
    "bfloat16": lambda a: torch.tensor(a).bfloat16(),
    "sparse": lambda a: torch.tensor(a).to_sparse(),
    "requires grad": lambda a: torch.tensor(a, requires_grad=True),
    "long double": lambda a: a.astype(np.longdouble), "huge": lambda a: a * 1e300,
    "huge integers": lambda a: 2**62 + (a * 2**57).astype(np.int64),
    "Python's integers": lambda a: np.array([[2**70 + int(1e6 * c) for c in r] for r in a], object),
    "complex": lambda a: a + 1j * a[:, ::-1],
    "conjugated": lambda a: torch.tensor(a + 1j * a).conj(),
    "with nan and inf": gappy, "text": words, "mixed objects": mixed, "records": records,
    "dates": lambda a: (a * 1e9).astype("datetime64[s]"),
    "ragged": lambda a: [list(row[: 5 + int(abs(row[0]) * 10) % 5]) for row in a],
}  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_rows_of_every_kind_are_found_on_both_sides_and_nothing_warns(kind):
    train, val = leaked(KINDS[kind])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        report = check_split((train, Y), (val, Y_VAL))
    assert report.figures["copies"] == 20 / 80
    assert {finding.id for finding in report.findings} == {"leak-overlap"}
    json.dumps(report.to_json(), allow_nan=False)


@pytest.mark.parametrize("kind", KINDS)
def test_sound_sides_of_every_kind_raise_no_alarm(kind):
    report = check_split((KINDS[kind](X), Y), (KINDS[kind](X_VAL), Y_VAL))
    assert report.passed and report.figures["copies"] == 0


def test_integers_that_float64_would_round_are_no_copies():
    """2**60 and 2**60 + 1 are one float64; uint64 and int64 meet in float64 under NumPy."""
    train = np.full((40, 8), 2**60, dtype=np.uint64) + np.arange(40, dtype=np.uint64)[:, None]
    val = np.full((40, 8), 2**60 + 100, dtype=np.int64) + np.arange(40)[:, None]
    assert train[0, 0].astype(np.float64) == val[0, 0].astype(np.float64)
    assert check_split((train, Y[:40]), (val, Y_VAL[:40])).figures["copies"] == 0
    val[:4] = train[:4]
    assert check_split((train, Y[:40]), (val, Y_VAL[:40])).figures["copies"] == 0.1


def test_zeros_and_nans_have_one_spelling():
    train, val = np.zeros((40, 2)), np.full((40, 2), -0.0)
    train[:, 1] = np.float64(np.nan)
    val[:, 1] = -np.float64(np.nan)  # another bit
    assert check_split((train, Y[:40]), (val, Y_VAL[:40])).figures["copies"] == 1


def test_gaps_on_one_side_only_are_a_shift_of_the_inputs():
    x, y = RNG.normal(size=(800, 10)), RNG.integers(0, 3, 800)
    x[400:600, 3] = np.nan
    report = check_split((x[:400], y[:400]), (x[400:], y[400:]))
    assert {finding.id for finding in report.findings} == {"covariate-shift"}
    assert report.figures["inputs_with_gaps_val"] == 0.5
    assert "inputs_with_gaps_train" not in report.figures


def test_images_with_gaps_still_have_their_look_alikes_found():
    images = RNG.random((240, 1, 12, 12)) + np.linspace(0, 1, 12)
    val = RNG.random((80, 1, 12, 12)) + np.linspace(0, 1, 12)
    val[:20] = 0.8 * np.roll(images[:20], 1, axis=3) + 0.1
    images[RNG.random(images.shape) < 0.01] = np.nan
    report = check_split((images, Y), (val, Y_VAL))
    assert report.figures["look_alikes"] >= 15 / 80


def test_text_against_numbers_is_named_and_not_compared():
    report = check_split((X, Y), (X_VAL.astype(str), Y_VAL.astype(str)))
    assert "copies: one side holds numbers and the other text" in report.not_checked
    assert "label shift: training targets are numbers and validation targets text" in (
        report.not_checked
    )


SPELLINGS = {
    "int": np.asarray, "float": lambda y: y * 1.0, "bfloat16": lambda y: torch.tensor(y).bfloat16(),
    "uint8": lambda y: y.astype(np.uint8), "huge": lambda y: y + 2**62,
    "text": lambda y: np.array(["cat", "cow", "dog"])[y],
    "bytes": lambda y: np.array([b"a", b"b", b"c"])[y],
    "objects": lambda y: np.array(["cat", 1, (2, 3)], dtype=object)[y],
    "Python's integers": lambda y: np.array([2**70, 2**71, 2**72], dtype=object)[y],
    "dates": lambda y: np.datetime64("2020-01-01") + y, "column": lambda y: y[:, None],
    "list of text": lambda y: [str(label) for label in y],
}  # fmt: skip


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_targets_of_every_kind_are_compared_as_their_numbers_are(spelling):
    """By hand: half the sum of the shares' differences, or the widest gap of their sums."""
    y_val = np.where(RNG.random(80) < 0.5, 2, Y_VAL)
    report = check_split((X, SPELLINGS[spelling](Y)), (X_VAL, SPELLINGS[spelling](y_val)))
    shares = [np.bincount(part, minlength=3) / len(part) for part in (Y, y_val)]
    by_class = abs(shares[0] - shares[1]).sum() / 2
    by_order = stats.ks_2samp(Y, y_val).statistic
    ordered = spelling in ("float", "bfloat16", "dates")
    assert report.figures["label_shift"] == pytest.approx(by_order if ordered else by_class)
    assert [finding.id for finding in report.findings] == ["label-shift"]
    json.dumps(report.to_json(), allow_nan=False)


def test_targets_that_are_nan_are_left_out_and_counted():
    holed = np.where(np.arange(240) % 4 == 0, np.nan, Y)
    report = check_split((X, holed), (X_VAL, Y_VAL * 1.0))
    kept = holed[~np.isnan(holed)]
    assert report.figures["label_shift"] == stats.ks_2samp(kept, Y_VAL).statistic
    assert report.figures["without_target_train"] == 0.25
    nothing = check_split((X, np.full(240, np.nan)), (X_VAL, Y_VAL))
    assert "label shift: every target of a side is nan or None" in nothing.not_checked


def test_complex_targets_are_named():
    report = check_split((X, Y * 1j), (X_VAL, Y_VAL * 1j))
    assert "label shift: targets are complex numbers, which cannot be ordered" in report.not_checked


def test_a_missing_class_is_named_in_its_own_words():
    names = np.array(["cat", "cow", (1, 2)], dtype=object)
    report = check_split((X, names[Y]), (X_VAL, names[Y_VAL % 2]))
    assert "validation lacks 1 of 3 classes, such as (1, 2)" in str(report)


# Groups and times


def test_unknown_groups_are_no_group():
    groups = ["a", None] * 120, [np.nan] * 80
    report = check_split((X, Y), (X_VAL, Y_VAL), groups=groups)
    assert report.passed
    assert "groups: the 200 examples whose group is nan or None" in report.not_checked
    with pytest.raises(ValueError, match="120 of 240 examples have no group"):
        group_split(groups[0])


@pytest.mark.parametrize(
    "name",
    [
        lambda i: (i, "a"), lambda i: [i, 1], lambda i: {"site": i}, lambda i: 2**70 + i,
        lambda i: torch.tensor([i]), lambda i: dt.date(2020, 1, 1) + dt.timedelta(i),
    ],
    ids=["tuple", "list", "dict", "huge", "tensor", "date"],
)  # fmt: skip
def test_groups_are_told_apart_whatever_they_are_named(name):
    train, val = ([name(i) for i in numbers] for numbers in (range(240), range(239, 319)))
    report = check_split((X, Y), (X_VAL, Y_VAL), groups=(train, val))
    assert report.figures["shared_groups"] == 1
    train, val = group_split([name(i // 3) for i in range(30)])
    assert set(train // 3).isdisjoint(val // 3) and len(val) == 6


def test_groups_1_and_the_text_1_are_two():
    report = check_split((X, Y), (X_VAL, Y_VAL), groups=([1, "a"] * 120, ["1", "b"] * 40))
    assert report.figures["shared_groups"] == 0


MOMENTS = {
    "ISO text": lambda i: f"2020-01-01T00:{i // 60:02}:{i % 60:02}",
    "datetime": lambda i: dt.datetime(2020, 1, 1) + dt.timedelta(seconds=i),
    "with a zone": lambda i: dt.datetime(2020, 1, 1, tzinfo=dt.UTC) + dt.timedelta(seconds=i),
    "date": lambda i: dt.date(2020, 1, 1) + dt.timedelta(i), "huge": lambda i: 2**61 + i,
}  # fmt: skip


@pytest.mark.parametrize("moment", MOMENTS)
def test_times_of_every_kind_are_put_in_order(moment):
    train, val = ([MOMENTS[moment](i) for i in part] for part in (range(240), range(230, 310)))
    report = check_split((X, Y), (X_VAL, Y_VAL), times=(train, val))
    assert report.figures["val_not_later"] == 10 / 80
    earlier, later = time_split([MOMENTS[moment](i) for i in (5, 1, 4, 2, 3)])
    assert (earlier.tolist(), later.tolist()) == ([1, 2, 3, 4], [0])


def test_times_that_are_nan_are_not_passed_over_in_silence():
    times = np.where(np.arange(240) == 7, np.nan, np.arange(240)), np.arange(80) + 100.0
    report = check_split((X, Y), (X_VAL, Y_VAL), times=times)
    assert report.figures["val_not_later"] == 1
    assert "times: the 1 examples whose time is nan or None" in report.not_checked
    with pytest.raises(ValueError, match="1 of 240 times are nan or None"):
        time_split(times[0])


@pytest.mark.parametrize(
    "times,reason",
    [
        (["noon", "midnight"], "text but not ISO dates, e.g. 'noon'"),
        ([1j, 2j], "complex numbers, which have no order"),
        ([dt.datetime(2020, 1, 1), dt.datetime(2020, 1, 1, tzinfo=dt.UTC)], "a time zone and some"),
        ([[1, 2], [3, 4]], r"times are \[2, 2\]"),
    ],
)
def test_times_without_an_order_are_named(times, reason):
    with pytest.raises(NotComparable, match=reason):
        in_order(times)


def test_groups_and_times_must_be_as_many_as_the_examples():
    with pytest.raises(ValueError, match="groups hold 1 and 80 entries for 240 training and 80"):
        check_split((X, Y), (X_VAL, Y_VAL), groups=([1], [2] * 80))
    with pytest.raises(ValueError, match="times hold 240 and 3"):
        check_split((X, Y), (X_VAL, Y_VAL), times=(Y, Y[:3]))
    with pytest.raises(ValueError, match="train holds a dict"):
        check_split(({"x": X}, Y), (X_VAL, Y_VAL))


# The splits themselves


def test_a_stratified_split_of_objects_keeps_shares_and_refuses_what_it_cannot_keep():
    labels = np.array(["cat"] * 90 + [(1, 2)] * 10 + ["x"], dtype=object)[:100]
    _, val = stratified_split(labels, 0.2)
    assert len(val) == 20 and sum(labels[i] == (1, 2) for i in val) == 2
    _, val = stratified_split(torch.tensor([[0]] * 90 + [[1]] * 10), 0.2)
    assert len(val) == 20
    with pytest.raises(ValueError, match=r"targets are \[6, 3\].*argmax"):
        stratified_split(np.eye(3)[[0, 1, 2, 0, 1, 2]])
    with pytest.raises(ValueError, match="1 of 4 targets are nan or None"):
        stratified_split([0.0, 0.0, 1.0, np.nan])


@pytest.mark.parametrize("num,share", [(10, float("nan")), (10.0, 0.2), (10, "a"), (None, 0.2)])
def test_a_share_that_is_none_is_refused_in_words(num, share):
    with pytest.raises(ValueError, match="expected a share between 0 and 1"):
        random_split(num, share)


# Single cells


def test_a_key_is_equal_where_python_says_equal():
    same = [(1, 1.0), (True, 1), ([1, 2], (1, 2)), (None, float("nan")), ({"a": [1]}, {"a": (1,)}),
            (np.array([1.0]), torch.tensor([1])), (np.datetime64("NaT"), None)]  # fmt: skip
    other = [(1, "1"), (1, 2), ([1], [1, 2]), ("a", b"a"), ({"a": 1}, {"a": 2})]
    assert all(key_of(one) == key_of(two) for one, two in same)
    assert not any(key_of(one) == key_of(two) for one, two in other)


def test_what_cannot_be_compared_says_so():
    class Unhashable:
        __hash__ = None

    cells = np.array([Unhashable() for _ in range(240)], dtype=object)
    report = check_split((cells, Y), (cells[:80], Y_VAL))
    assert "copies: Unhashable objects cannot be compared" in report.not_checked


@pytest.mark.parametrize(
    "values,kind",
    [([1, None, 2], "f"), ([True, False], "b"), ([1, "a"], "O"), ([2**70, 1], "O"),
     ([2**60, None], "O"), ([1.5, 2], "f"), (np.array([1, 2], dtype=object), "i"),
     (np.ma.array([1.0, 2.0], mask=[0, 1]), "f"), ([torch.ones(2), torch.ones(2)], "f"),
     ([torch.ones(2), torch.ones(3)], "O"), (["a", "b"], "U")],
    ids=str,
)  # fmt: skip
def test_objects_that_are_all_numbers_become_numbers_unless_digits_would_be_lost(values, kind):
    assert as_array(values).dtype.kind == kind
