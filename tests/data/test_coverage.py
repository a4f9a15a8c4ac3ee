"""Weighted draws follow their weights, are entered anywhere, and their coverage is counted."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from sklearn.utils.class_weight import compute_sample_weight
from torch.utils.data import (
    DistributedSampler,
    RandomSampler,
    TensorDataset,
    WeightedRandomSampler,
)

from course.data.coverage import count_draws
from course.data.loading import InMemoryLoader, make_loader
from course.data.sampling import (
    ResumableBatchSampler,
    WeightedBatchSampler,
    class_weights,
    weighted_order,
)

RARE = torch.tensor([0] * 900 + [1] * 100)  # N07


def test_balanced_weights_are_scikit_learns():
    targets = np.random.default_rng(0).choice(4, 500, p=[0.6, 0.25, 0.1, 0.05])
    theirs = compute_sample_weight("balanced", targets)
    ours = class_weights(targets)
    torch.testing.assert_close(ours / ours.sum(), torch.tensor(theirs / theirs.sum()))
    assert ours.dtype == torch.float64


def test_powers_and_shares_set_the_class_mass():
    def mass(**options):
        weights = class_weights(RARE, **options)
        return (weights[RARE == 1].sum() / weights.sum()).item()

    assert mass() == pytest.approx(0.5) and mass(power=0) == pytest.approx(0.1)
    assert mass(power=0.5) == pytest.approx(10 / 40)  # sqrt(100) of sqrt(900) + sqrt(100)
    assert mass(shares={0: 3, 1: 1}) == pytest.approx(0.25)
    assert mass(shares={0: 1, 1: 0}) == 0


@pytest.mark.parametrize(("options", "message"), [
    ({"power": 2}, "power = 2"),
    ({"shares": {0: 1}}, r"for the classes \[0, 1\]"),
    ({"shares": {0: 2, 1: -1}}, "none negative"),
    ({"shares": {0: 0, 1: 0}}, "not all 0"),
])  # fmt: skip
def test_shares_that_cannot_be_meant_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        class_weights(RARE, **options)
    with pytest.raises(ValueError, match=r"expected class indices"):
        class_weights(torch.eye(3))


@pytest.mark.parametrize(("weights", "message"), [
    ([1.0, -1.0], r"weights\[1\] = -1"),
    ([1.0, torch.nan], "finite"),
    ([0.0, 0.0], "not all 0"),
    ([], "one number per example"),
    ([[1.0]], "one number per example"),
])  # fmt: skip
def test_weights_that_cannot_be_meant_are_refused(weights, message):
    with pytest.raises(ValueError, match=message):
        WeightedBatchSampler(weights, 2)


def test_draws_follow_their_weights():
    """Chi-square of 200,000 draws against the weights, and none of weight 0."""
    weights = torch.tensor([0.0, 1, 2, 3, 4, 0], dtype=torch.float64)
    counts = weighted_order(weights, 200_000, seed=3, epoch=1).bincount(minlength=6)
    assert counts[0] == counts[5] == 0
    expected = weights[1:5] / weights.sum() * 200_000
    assert stats.chisquare(counts[1:5], expected).pvalue > 1e-3


def test_a_uniform_number_at_the_very_end_draws_no_weight_of_zero(monkeypatch):
    ends = torch.tensor([0.0, 1 - 2.0**-53], dtype=torch.float64)
    monkeypatch.setattr(torch, "rand", lambda *_, **__: ends)
    weights = torch.tensor([0.0, 0.1, 0.2, 0.3, 0.0], dtype=torch.float64)
    assert weighted_order(weights, 2, seed=0, epoch=0).tolist() == [1, 3]


@given(st.integers(2, 40), st.integers(1, 15), st.integers(0, 4), st.data())
def test_a_weighted_epoch_entered_anywhere_goes_on_as_the_whole_one(num, size, epoch, data):
    sampler = WeightedBatchSampler(torch.arange(1.0, num + 1), size, seed=5)
    sampler.set_position(epoch)
    whole, after = list(sampler), list(sampler)
    start = data.draw(st.integers(0, len(whole)))
    sampler.set_position(epoch, start)
    assert list(sampler) == whole[start:] and list(sampler) == after
    assert sum(map(len, whole)) == num


def test_processes_share_each_weighted_batch():
    whole = list(WeightedBatchSampler(class_weights(RARE), 50, seed=2))
    shares = [
        list(WeightedBatchSampler(class_weights(RARE), 50, seed=2, rank=rank, num_ranks=2))
        for rank in range(2)
    ]
    for number, batch in enumerate(whole):
        assert shares[0][number] == batch[::2] and shares[1][number] == batch[1::2]


def test_so_many_draws_as_asked():
    sampler = WeightedBatchSampler(class_weights(RARE), 32, num_draws=100, keyed=True)
    assert [len(batch) for batch in sampler] == [32, 32, 32, 4] and len(sampler) == 4
    assert {epoch for batch in sampler for epoch, _ in batch} == {1}


def test_loaders_draw_by_weight_and_agree():
    inputs, weights = torch.arange(1000.0)[:, None], class_weights(RARE)
    loader = make_loader(TensorDataset(inputs, RARE), 64, weights=weights, seed=4)
    memory = InMemoryLoader(inputs, RARE, 64, weights=weights, seed=4)
    for _ in range(2):
        ours, theirs = list(memory), list(loader)
        assert all(torch.equal(a[0], b[0]) for a, b in zip(ours, theirs, strict=True))
    rare = torch.cat([targets for _, targets in ours]).double().mean()
    assert abs(rare - 0.5) < 4.5 * 0.0158
    for make in (
        lambda **more: make_loader(TensorDataset(inputs, RARE), 64, **more),
        lambda **more: InMemoryLoader(inputs, RARE, 64, **more),
    ):
        with pytest.raises(ValueError, match="3 weights for 1000 examples"):
            make(weights=weights[:3])
        with pytest.raises(ValueError, match="shuffle=True with weights"):
            make(weights=weights, shuffle=True)


def test_the_lectures_coverage():
    """N07: 1,000 draws touch 383.70 of 900 and 99.33 of 100 examples, 16 ± 2.83 of a batch."""
    sampler = WeightedBatchSampler(class_weights(RARE), 32)
    report = count_draws(sampler, RARE)
    assert [row.expected_seen for row in report.classes] == pytest.approx([383.70, 99.33], abs=0.01)
    assert [row.expected for row in report.classes] == pytest.approx([500, 500])
    seen = [[row.num_seen for row in count_draws(
        WeightedBatchSampler(class_weights(RARE), 32, seed=seed), RARE).classes]
        for seed in range(200)]  # fmt: skip
    assert np.mean(seen, axis=0) == pytest.approx([383.70, 99.33], rel=0.01)


def test_counts_are_those_of_the_batches():
    sampler = WeightedBatchSampler(class_weights(RARE), 32, seed=1, drop_last=True)
    drawn = torch.tensor([index for _ in range(3) for batch in sampler for index in batch])
    sampler.set_position(5, 2)
    report = count_draws(sampler, RARE, epochs=3)
    assert torch.equal(report.draws, drawn.bincount(minlength=1000))
    assert report.num_draws == 3 * 992 and (sampler.epoch, sampler.start) == (5, 2)
    assert torch.equal(report.never_drawn, (report.draws == 0).nonzero().flatten())
    assert report.classes[1].most_draws == report.draws[900:].max()
    mine = [
        count_draws(WeightedBatchSampler(class_weights(RARE), 32, rank=rank, num_ranks=2), RARE)
        for rank in (0, 1)
    ]
    both = count_draws(WeightedBatchSampler(class_weights(RARE), 32), RARE)
    assert torch.equal(mine[0].draws + mine[1].draws, both.draws)


@pytest.mark.parametrize("epochs", [1, 4])
@pytest.mark.parametrize("drop_last", [False, True])
def test_a_shuffle_deals_each_example_at_most_once_an_epoch(epochs, drop_last):
    size = 300  # drop_last leaves 100 of 1,000 out
    rows = [
        count_draws(
            ResumableBatchSampler(1000, size, seed=seed, drop_last=drop_last), RARE, epochs=epochs
        ).classes[1]
        for seed in range(300)
    ]
    assert np.mean([row.drawn for row in rows]) == pytest.approx(rows[0].expected, rel=0.01)
    assert np.std([row.drawn for row in rows]) == pytest.approx(rows[0].sd, rel=0.15)
    assert np.mean([row.num_seen for row in rows]) == pytest.approx(rows[0].expected_seen, rel=0.01)
    if not drop_last:
        assert rows[0].sd == 0 and rows[0].num_seen == 100


def test_honest_samplers_raise_no_alarm_and_misplaced_weights_do():
    weights = class_weights(RARE)
    for seed in range(300):
        assert not count_draws(WeightedBatchSampler(weights, 32, seed=seed), RARE).far_off
    swapped = count_draws(WeightedBatchSampler(weights.flip(0), 32), RARE, weights=weights)
    assert [row.label for row in swapped.far_off] == [0, 1]
    assert "are the weights in the order of the data set" in str(swapped)
    unreplaced = WeightedRandomSampler(weights, 1000, replacement=False)  # F87
    assert count_draws(unreplaced, RARE).far_off


def test_samplers_of_torch_are_counted_and_left_alone():
    own = torch.Generator().manual_seed(1)
    distributed = DistributedSampler(range(1000), num_replicas=3, rank=1)
    distributed.set_epoch(7)
    state, own_state = torch.get_rng_state(), own.get_state()
    assert count_draws(WeightedRandomSampler(class_weights(RARE), 1000), RARE).expected is not None
    assert count_draws(RandomSampler(range(1000), generator=own), RARE).num_draws == 1000
    assert count_draws(distributed, RARE, epochs=2).num_draws == 2 * 334
    assert torch.equal(torch.get_rng_state(), state) and torch.equal(own.get_state(), own_state)
    assert distributed.epoch == 7


def test_the_report_says_what_was_never_drawn():
    report = count_draws(WeightedBatchSampler([1.0, 0, 1, 0], 2), [0, 0, 1, 1], epochs=20)
    assert report.never_drawn.tolist() == [1, 3]
    text = str(report)
    assert "2 examples (50%) were never drawn, such as number 1." in text
    assert "2 examples have weight 0" in text and "80 draws of 4 examples in 20 epochs" in text
    assert "<td>0</td>" in report._repr_html_() and "<th>never</th>" in report._repr_html_()
    assert report.to_json()["num_never_drawn"] == 2
    assert count_draws(ResumableBatchSampler(10, 3)).classes[0].num_seen == 10


@pytest.mark.parametrize(("sampler", "options", "message"), [
    ([0, 1], {}, "number of examples is unknown"),
    ([0, 5], {"num_rows": 3}, "draws 0 .. 5 of 3 examples"),
    ([0], {"targets": [0, 1], "num_rows": 3}, "expected one number"),
    ([0], {"num_rows": 3, "epochs": 0}, "epochs = 0"),
])  # fmt: skip
def test_a_report_that_cannot_be_made_is_refused(sampler, options, message):
    with pytest.raises(ValueError, match=message):
        count_draws(sampler, **options)
