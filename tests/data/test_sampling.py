"""An order keyed by (seed, epoch): complete, repeatable, entered anywhere, shared by processes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from course.data.sampling import ResumableBatchSampler, epoch_order, key_seed, num_batches

sizes = st.integers(1, 60), st.integers(1, 20)


@given(*sizes, st.integers(0, 99), st.integers(0, 5))
def test_each_example_comes_once_an_epoch(num, batch_size, seed, epoch):
    sampler = ResumableBatchSampler(num, batch_size, seed=seed)
    sampler.set_position(epoch)
    batches = list(sampler)
    assert sorted(index for batch in batches for index in batch) == list(range(num))
    assert all(len(batch) == batch_size for batch in batches[:-1])
    assert len(batches) == len(sampler) == num_batches(num, batch_size)


@given(*sizes, st.integers(0, 5), st.data())
def test_an_epoch_entered_anywhere_goes_on_as_the_whole_one(num, batch_size, epoch, data):
    sampler = ResumableBatchSampler(num, batch_size, seed=3)
    sampler.set_position(epoch)
    whole, after = list(sampler), list(sampler)
    start = data.draw(st.integers(0, len(whole)))
    sampler.set_position(epoch, start)
    assert list(sampler) == whole[start:]
    assert list(sampler) == after  # and the next epoch is the next


@given(st.integers(2, 60), st.integers(2, 20), st.integers(2, 4))
def test_processes_share_each_batch_without_overlap(num, batch_size, num_ranks):
    if min(num % batch_size or batch_size, batch_size) < num_ranks:
        with pytest.raises(ValueError, match="the smallest batch has"):
            ResumableBatchSampler(num, batch_size, num_ranks=num_ranks)
        return
    whole = list(ResumableBatchSampler(num, batch_size, seed=1))
    shares = [
        list(ResumableBatchSampler(num, batch_size, seed=1, rank=rank, num_ranks=num_ranks))
        for rank in range(num_ranks)
    ]
    for number, batch in enumerate(whole):
        assert sorted(i for share in shares for i in share[number]) == sorted(batch)


def test_the_lectures_counts():
    """N01, N04, N06."""
    assert num_batches(10_000, 32) == 313 and num_batches(10_000, 32, drop_last=True) == 312
    assert num_batches(50_000, 256) == 196 and num_batches(50_000, 256, drop_last=True) == 195
    assert [len(b) for b in ResumableBatchSampler(100, 16)] == [16] * 6 + [4]
    assert [len(b) for b in ResumableBatchSampler(100, 16, drop_last=True)] == [16] * 6


def test_epochs_and_seeds_differ_and_repeat():
    orders = [epoch_order(50, seed=s, epoch=e).tolist() for s in (0, 1) for e in (0, 1)]
    assert len({tuple(order) for order in orders}) == 4
    assert epoch_order(50, seed=1, epoch=1).tolist() == orders[3]
    assert epoch_order(5, seed=0, epoch=0, shuffle=False).tolist() == [0, 1, 2, 3, 4]


def test_near_keys_give_far_seeds():
    seeds = {key_seed(s, e, i) for s in range(10) for e in range(10) for i in range(100)}
    assert len(seeds) == 10_000 and all(0 <= seed < 2**63 for seed in seeds)
    assert key_seed(1, 11) != key_seed(11, 1)


def test_keyed_batches_say_their_epoch():
    sampler = ResumableBatchSampler(3, 2, shuffle=False, keyed=True)
    sampler.set_position(4)
    assert list(sampler) == [[(4, 0), (4, 1)], [(4, 2)]]


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        ((0, 4), {}, "empty"),
        ((4, 0), {}, "batch_size = 0"),
        ((3, 4), {"drop_last": True}, "leaves no batch.*at most 3"),
    ],
)
def test_what_gives_no_batch_is_refused(arguments, options, message):
    with pytest.raises(ValueError, match=message):
        ResumableBatchSampler(*arguments, **options)
