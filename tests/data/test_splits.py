"""Splits keep what they promise, and the sceptic finds each planted leak and no other."""

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits

from course.data import (
    check_split,
    group_split,
    random_split,
    stratified_split,
    takes,
    time_split,
)


@pytest.fixture(scope="module")
def digits():
    images, targets = load_digits(return_X_y=True)
    return images / 16, targets


def ids(report):
    return {finding.id for finding in report.findings}


def halves(digits, split):
    x, y = digits
    return tuple((x[part], y[part]) for part in split)


@pytest.mark.parametrize("make", [
    lambda y: random_split(len(y), 0.3, seed=1),
    lambda y: stratified_split(y, 0.3, seed=1),
    lambda y: group_split(np.arange(len(y)) // 7, 0.3, seed=1),
    lambda y: time_split(np.arange(len(y))[::-1], 0.3),
])  # fmt: skip
def test_every_example_is_on_one_side(digits, make):
    train, val = make(digits[1])
    assert sorted([*train, *val]) == list(range(len(digits[1])))
    assert abs(len(val) / len(digits[1]) - 0.3) < 0.01


def test_a_seed_repeats_the_split_and_another_changes_it():
    assert (random_split(50, seed=3)[1] == random_split(50, seed=3)[1]).all()
    assert (random_split(50, seed=3)[1] != random_split(50, seed=4)[1]).any()


def test_stratified_keeps_each_class_share():
    targets = torch.tensor([0] * 900 + [1] * 100)
    _, val = stratified_split(targets, 0.2)
    assert targets[val].bincount().tolist() == [180, 20]


def test_groups_stay_whole_and_validation_is_later():
    groups = np.repeat([f"patient {i}" for i in range(20)], 5)
    train, val = group_split(groups)
    assert not set(groups[train]) & set(groups[val])
    times = np.random.default_rng(0).integers(0, 30, 200)
    train, val = time_split(times)
    assert times[train].max() < times[val].min()


@pytest.mark.parametrize("make, message", [
    (lambda: random_split(3, 0.0), "both sides need at least 1"),
    (lambda: stratified_split([0, 0, 1]), "class 1 has 1 example"),
    (lambda: group_split(["a", "a"]), "at least 2"),
    (lambda: time_split([1, 2, 2, 2, 2], 0.4), "no example is later"),
])  # fmt: skip
def test_impossible_splits_are_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()


@pytest.mark.slow
def test_honest_random_splits_of_digits_raise_no_alarm(digits):
    for seed in range(20):
        report = check_split(*halves(digits, random_split(1797, seed=seed)), seed=seed)
        assert report.passed, report


def test_copies_are_found(digits):
    train, val = halves(digits, random_split(1797))
    x, y = (np.concatenate([a[:20], b]) for a, b in zip(train, val, strict=True))
    report = check_split(train, (x, y))
    assert ids(report) == {"leak-overlap"}
    assert report.figures["copies"] == pytest.approx(20 / len(x))


def test_near_copies_are_found(digits):
    train, val = halves(digits, random_split(1797))
    rng = np.random.default_rng(0)
    jittered = train[0][:20] + 1e-3 * rng.standard_normal((20, 64))
    report = check_split(
        train, (np.concatenate([jittered, val[0]]), np.concatenate([train[1][:20], val[1]]))
    )
    assert "leak-overlap" in ids(report)
    assert report.figures["near_copies"] == pytest.approx(20 / (len(val[0]) + 20))


def test_a_brighter_copy_of_an_image_is_found(digits):
    (x, y), (x_val, y_val) = halves(digits, random_split(1797))
    bright = np.concatenate([x[:30] * 1.2 + 0.1, x_val]).reshape(-1, 1, 8, 8)
    report = check_split((x.reshape(-1, 1, 8, 8), y), (bright, np.concatenate([y[:30], y_val])))
    assert report.figures["near_copies"] == pytest.approx(30 / len(bright))
    assert "leak-overlap" in ids(report)


def test_shared_groups_and_early_validation_are_found(digits):
    split = random_split(1797)
    groups, times = np.arange(1797) // 10, np.arange(1797)
    report = check_split(
        *halves(digits, split),
        groups=tuple(groups[p] for p in split),
        times=tuple(times[p] for p in split),
    )
    assert ids(report) == {"leak-group", "leak-time"}
    apart = group_split(groups)
    report = check_split(*halves(digits, apart), groups=tuple(groups[p] for p in apart))
    assert not ids(report) & {"leak-group"}


def test_statistics_of_both_sides_are_told_from_statistics_of_training(digits):
    x, y = digits
    x = x[:, x.std(0) > 0.05]
    train, val = random_split(1797)
    for fitted_on, expected in ((np.arange(1797), {"leak-preprocessing"}), (train, set())):
        z = (x - x[fitted_on].mean(0)) / x[fitted_on].std(0)
        report = check_split((z[train], y[train]), (z[val], y[val]))
        assert ids(report) == expected


def test_a_missing_class_and_shifted_labels_are_found(digits):
    x, y = digits
    train, val = random_split(1797)
    val = val[y[val] != 3]
    assert "missing-class" in ids(check_split((x[train], y[train]), (x[val], y[val])))
    val = val[(y[val] < 3) | (np.arange(len(val)) % 4 == 0)]
    assert "label-shift" in ids(check_split((x[train], y[train]), (x[val], y[val])))


def test_inputs_that_are_preprocessed_otherwise_are_found(digits):
    train, (x, y) = halves(digits, random_split(1797))
    report = check_split(train, (x * 0.8, y))
    assert ids(report) == {"covariate-shift"}
    assert report.figures["covariate_shift_p"] < 1e-3


def test_what_was_not_looked_at_is_said():
    report = check_split(([[1.0], [2.0]], [0, 1]), ([[3.0], [4.0]], [1, 0]))
    text = str(report)
    assert "not checked: groups" in text and "not checked: covariate shift" in text
    with pytest.raises(ValueError, match="the same number of both"):
        check_split(([[1.0]], [0, 1]), ([[1.0]], [0]))


def test_groups_may_be_tuples():
    groups = [("ada", 1), ("ada", 2), ("ben", 1), ("ben", 2), ("ben", 2)]
    train, val = group_split(groups, 0.5)
    assert sorted([*train.tolist(), *val.tolist()]) == [0, 1, 2, 3, 4]
    assert not {groups[i] for i in train} & {groups[i] for i in val}


def test_copies_of_another_dtype_are_copies():
    x, y = np.random.default_rng(0).normal(size=(300, 4)).astype("f4"), np.arange(300) % 3
    report = check_split((x, y), (x[:100].astype("f8"), y[:100]))
    assert "are also in training" in str(report)


def test_rows_that_repeat_by_nature_are_no_leak_and_an_oversampled_class_is_one():
    rng = np.random.default_rng(0)
    few = rng.integers(0, 3, size=(600, 3))  # 27 rows in all
    y = rng.integers(0, 2, 600)
    assert "leak-overlap" not in ids(check_split((few[:400], y[:400]), (few[400:], y[400:])))
    tokens = rng.integers(0, 50, size=(400, 10))
    y = (np.arange(400) % 10 == 0).astype(int)
    rows = np.concatenate([np.arange(400), *[np.flatnonzero(y)] * 6])
    rows = rng.permutation(np.concatenate([rows, rng.choice(np.flatnonzero(y == 0), 12)]))
    train, val = rows[:450], rows[450:]
    report = check_split((tokens[train], y[train]), (tokens[val], y[val]), only=["copies"])
    assert "class 1" in str(report) and ids(report) == {"leak-overlap"}
    train, val = np.split(np.arange(400), [300])
    train = np.concatenate([train, *[train[y[train] == 1]] * 6])  # in training alone
    report = check_split((tokens[train], y[train]), (tokens[val], y[val]), only=["copies"])
    assert report.passed


def test_a_class_of_few_possible_rows_is_not_said_to_be_oversampled():
    """Two tokens of nine are 81 rows, four are 6561: the short ones repeat by nature."""
    rng = np.random.default_rng(0)
    rows = rng.integers(3, 12, size=(1200, 4))
    length = rng.integers(2, 5, size=1200)
    rows[np.arange(4) >= length[:, None]] = 0
    sides = (rows[:1000], length[:1000]), (rows[1000:], length[1000:])
    report = check_split(*sides, only=["copies"])
    assert report.passed and report.figures["copies"] > 0.3
    assert "class 2 repeat" in " ".join(report.not_checked)


def test_only_some_checks_are_made_where_only_some_are_asked_for():
    x, y = np.random.default_rng(0).normal(size=(300, 4)), np.arange(300) % 3
    report = check_split((x, y), (x[:100], y[:100]), only=["preprocessing"])
    assert report.passed and not report.not_checked
    with pytest.raises(ValueError, match=r"only = \['copy'\]: expected names from copies"):
        check_split((x, y), (x, y), only=["copy"])


def test_scans_of_few_pages_that_share_a_label_are_no_label_shift():
    """Labels drawn at random per page, four scans of each: a test per row would find a shift."""
    draw = np.random.default_rng(0)
    shifted = alone = 0
    for _ in range(20):
        pages, labels = np.repeat(np.arange(100), 4), np.repeat(draw.integers(10, size=100), 4)
        inputs, val = draw.normal(size=(400, 3)), pages % 4 == 0
        sides = (inputs[~val], labels[~val]), (inputs[val], labels[val])
        groups = pages[~val], pages[val]
        alone += any(f.id == "label-shift" for f in check_split(*sides).findings)
        shifted += any(f.id == "label-shift" for f in check_split(*sides, groups=groups).findings)
    assert shifted == 0
    assert alone >= 5


@pytest.mark.parametrize("flat", [False, True], ids=["images", "rows"])
def test_takes_of_objects_that_are_on_one_side_are_no_shift(flat):
    """Trees that have seen another take of an object know its side: that is recognition."""
    for seed in range(5):
        found = takes(600, name="digits", seed=seed)
        train, val = group_split(found.groups.numpy(), seed=seed)
        inputs = found.images.float().unsqueeze(1)
        inputs = inputs.flatten(1) if flat else inputs
        sides = [[inputs[rows], found.labels[rows].long()] for rows in (train, val)]
        for groups in (None, (found.groups[train], found.groups[val])):
            assert ids(check_split(*sides, groups=groups)) == set()
        sides[1][0] = sides[1][0] * 0.7
        assert "covariate-shift" in ids(check_split(*sides))


def test_groups_that_are_not_alike_to_the_eye_are_compared_one_row_of_each():
    """Rows of a patient share three of twelve numbers: no near copies, but trees recognise them."""
    draw = np.random.default_rng(0)
    who = np.repeat(np.arange(300), 5)
    rows = draw.normal(size=(1500, 12))
    rows[:, :3] = draw.normal(size=(300, 3))[who]
    train, val = group_split(who, 0.3)
    sides = [(rows[part], np.zeros(len(part), dtype=int)) for part in (train, val)]
    assert ids(check_split(*sides)) == {"covariate-shift"}
    assert check_split(*sides, groups=(who[train], who[val])).passed


def test_data_sets_in_place_of_pairs_are_refused():
    rows = torch.utils.data.TensorDataset(torch.randn(8, 2), torch.arange(8) % 2)
    with pytest.raises(ValueError, match=r"train is a TensorDataset: .*dataset\.tensors"):
        check_split(rows, rows)
    check_split(rows.tensors, rows.tensors, only=["copies"])
