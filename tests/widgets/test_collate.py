"""Batches against torch's own sampler and padding, and what an epoch may and may not change."""

import itertools

import pytest
import torch
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import WeightedRandomSampler

from course.widgets.collate.state import BATCH_SIZES, COMMON, NUM, RARE, STRATEGIES, Settings, frame


def members(shown: dict) -> list[int]:
    return list(itertools.chain.from_iterable(shown["batches"]))


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("batch_size", BATCH_SIZES)
@pytest.mark.parametrize("drop_last", [False, True])
def test_padding_is_that_of_torchs_pad_sequence(strategy, batch_size, drop_last):
    shown = frame(Settings(strategy=strategy, batch_size=batch_size, drop_last=drop_last, at=2))
    lengths, targets = shown["data"]["lengths"], shown["data"]["targets"]
    real = cells = 0
    for number, batch in enumerate(shown["batches"]):
        padded = pad_sequence([torch.ones(lengths[i]) for i in batch], batch_first=True)
        assert shown["widths"][number] == padded.shape[1]
        assert shown["rare"][number] == sum(targets[i] for i in batch)
        real, cells = real + int(padded.sum()), cells + padded.numel()
        if number == 1:
            assert shown["rows"] == padded.sum(dim=1).tolist()
            assert shown["padding"] == pytest.approx(1 - padded.mean().item(), abs=1e-6)
    mine = next(one for one in shown["compared"] if one["strategy"] == strategy)
    assert mine["padding"] == pytest.approx(1 - real / cells)
    sizes = {len(batch) for batch in shown["batches"]}
    assert sizes == {batch_size} if drop_last else sizes == {batch_size, NUM % batch_size}


@pytest.mark.parametrize("strategy", ["in order", "shuffled", "by length"])
def test_order_changes_and_membership_does_not(strategy):
    shown = frame(Settings(strategy=strategy))
    assert sorted(members(shown)) == list(range(NUM)) and set(shown["draws"]) == {1}
    assert (members(shown) == list(range(NUM))) == (strategy == "in order")
    again = frame(Settings(strategy=strategy, epoch=2))
    assert (members(again) != members(shown)) == (strategy == "shuffled")


def test_in_order_all_but_the_last_batches_hold_one_class():
    rare = frame(Settings(strategy="in order", batch_size=4))["rare"]
    assert rare[: COMMON // 4] == [0] * (COMMON // 4) and sum(rare) == RARE


def test_drop_last_loses_two_examples_and_other_ones_in_each_epoch():
    lost = [
        tuple(frame(Settings(strategy="shuffled", drop_last=True, epoch=epoch))["left_out"])
        for epoch in range(1, 5)
    ]
    assert all(len(one) == NUM % 8 == 2 for one in lost) and len(set(lost)) == 4
    always = frame(Settings(strategy="in order", drop_last=True, epoch=3))["left_out"]
    assert always == [NUM - 2, NUM - 1]


def test_weighting_balances_the_classes_repeats_some_and_skips_others():
    shares, missed = [], []
    for epoch in range(1, 5):
        shown = frame(Settings(strategy="weighted", epoch=epoch))
        shares.append(sum(shown["rare"]) / NUM)
        missed.append(shown["draws"].count(0))
        assert max(shown["draws"]) > 2 and sum(shown["draws"]) == NUM
    weights = [1 / COMMON] * COMMON + [1 / RARE] * RARE
    generator = torch.Generator().manual_seed(0)
    drawn = [list(WeightedRandomSampler(weights, NUM, generator=generator)) for _ in range(400)]
    torchs = [sum(index >= COMMON for index in one) / NUM for one in drawn]
    skipped = [NUM - len(set(one)) for one in drawn]
    assert min(torchs) <= min(shares) and max(shares) <= max(torchs)
    assert min(skipped) <= min(missed) and max(missed) <= max(skipped)
    assert abs(sum(shares) / 4 - 0.5) < 3 * 0.5 / (4 * NUM) ** 0.5


def test_batches_of_like_length_pad_less():
    padding = {one["strategy"]: one["padding"] for one in frame(Settings())["compared"]}
    assert padding["by length"] < 0.5 * padding["shuffled"]
