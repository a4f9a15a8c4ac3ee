"""Padding changes no real value, and the mask leaves exactly the padding out."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional as F
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader

from course.data.collate import by_length, pad_collate


@settings(deadline=None)
@given(st.lists(st.integers(0, 9), min_size=1, max_size=6), st.sampled_from([(), (3,), (2, 2)]))
def test_padding_agrees_with_pad_sequence(lengths, item):
    parts = [torch.randn(length, *item) for length in lengths]
    batch = pad_collate([(part, 0) for part in parts], pad_value=-7)
    torch.testing.assert_close(
        batch.inputs, pad_sequence(parts, batch_first=True, padding_value=-7)
    )
    assert batch.mask.dtype == torch.bool
    assert batch.mask.sum(1).tolist() == lengths


def test_the_lecture_batch_wastes_35_of_94_cells():
    batch = pad_collate([(torch.ones(12), 0), (torch.ones(47), 1)])
    assert batch.inputs.shape == (2, 47)
    assert (~batch.mask).sum() == 35
    assert batch.targets.dtype == torch.long


def test_targets_of_padded_tokens_do_not_count_in_the_loss():
    tokens = [(torch.arange(n), torch.arange(n) % 3) for n in (2, 5)]
    batch = pad_collate(tokens, per_token=True)
    logits = torch.randn(2, 5, 3)
    loss = F.cross_entropy(logits.flatten(0, 1), batch.targets.flatten())
    expected = F.cross_entropy(logits[batch.mask], batch.targets[batch.mask])
    torch.testing.assert_close(loss, expected)


@pytest.mark.parametrize("target, dtype", [
    (1, torch.long), (0.5, torch.float32), (torch.tensor([1.0, 0.0, 1.0]), torch.float32),
])  # fmt: skip
def test_one_target_an_example_is_stacked(target, dtype):
    batch = pad_collate([([1.5], target), ([2.5, 3.5], target)])
    assert len(batch.targets) == 2 and batch.targets.dtype == dtype
    assert batch.inputs.dtype == torch.float32


def test_it_serves_a_data_loader():
    data = [(list(range(n)), n) for n in (1, 4, 2, 3)]
    shapes = [b.inputs.shape for b in DataLoader(data, 2, collate_fn=pad_collate)]
    assert shapes == [(2, 4), (2, 3)]
    sorted_shapes = [
        b.inputs.shape
        for b in DataLoader(
            data, batch_sampler=list(by_length([1, 4, 2, 3], 2)), collate_fn=pad_collate
        )
    ]
    assert sorted_shapes == [(2, 2), (2, 4)]


@pytest.mark.parametrize("examples, message", [
    ([], "at least 1"),
    ([(torch.ones(2, 3), 0), (torch.ones(2, 4), 0)], "expected a single shape"),
    ([(3.0, 0)], "single number"),
])  # fmt: skip
def test_what_cannot_be_padded_is_refused(examples, message):
    with pytest.raises(ValueError, match=message):
        pad_collate(examples)


def test_as_many_targets_as_tokens_are_asked_for():
    with pytest.raises(ValueError, match="one per token"):
        pad_collate([([1, 2, 3], [0, 1])], per_token=True)


def test_whole_numbers_first_do_not_make_the_others_whole():
    batch = pad_collate([([1, 2], 1), ([1.5, 2.5, 3], 0)])
    assert batch.inputs.tolist() == [[1.0, 2.0, 0.0], [1.5, 2.5, 3.0]]
