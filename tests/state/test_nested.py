"""Nested tensors are moved, copied and counted wherever they are; `meta` is the other device."""

from __future__ import annotations

from collections import UserDict, namedtuple
from dataclasses import dataclass

import pytest
import torch
from torch.nn.utils.rnn import pack_sequence

from course.state import cloned, moved, num_examples, tensors_in

META = torch.device("meta")  # stands in for an accelerator
Pair = namedtuple("Pair", "inputs targets")


class OwnDict(dict):
    pass


@dataclass(frozen=True)
class Row:
    inputs: torch.Tensor
    name: str


class Graph:
    """An object that knows by itself how to move."""

    def __init__(self, nodes: torch.Tensor) -> None:
        self.nodes = nodes

    def to(self, device):
        return Graph(self.nodes.to(device))


def x() -> torch.Tensor:
    return torch.zeros(2, 3)


NESTED = {
    "tensor": lambda: x(),
    "tuple": lambda: (x(), x()),
    "namedtuple": lambda: Pair(x(), [x()]),
    "dict in a list": lambda: [{"a": x(), "name": "row"}],
    "a dictionary's subclass": lambda: OwnDict(a=x()),
    "another mapping": lambda: UserDict(a=x()),
    "dataclass": lambda: Row(x(), "row"),
    "none": lambda: (x(), None),
}


@pytest.mark.parametrize("name", NESTED)
def test_every_tensor_moves_and_the_containers_stay(name):
    value = NESTED[name]()
    there = moved(value, META)
    assert type(there) is type(value)
    found = list(tensors_in(there))
    assert found and all(tensor.is_meta for tensor in found)
    assert not any(tensor.is_meta for tensor in tensors_in(value))


@pytest.mark.parametrize("name", NESTED)
def test_a_copy_shares_no_memory(name):
    value = NESTED[name]()
    for one, other in zip(tensors_in(value), tensors_in(cloned(value)), strict=True):
        assert torch.equal(one, other) and one.data_ptr() != other.data_ptr()


@pytest.mark.parametrize("name", NESTED)
def test_examples_are_counted_by_the_first_tensor(name):
    assert num_examples(NESTED[name]()) == 2


def test_a_packed_sequence_moves_by_its_own_method():
    packed = pack_sequence([torch.zeros(3, 2), torch.zeros(2, 2)])
    there = moved((packed, torch.zeros(2)), META)[0]
    assert there.data.is_meta and there.batch_sizes.device.type == "cpu"
    assert num_examples(packed) == 2
    assert cloned(packed).data.data_ptr() != packed.data.data_ptr()


def test_an_object_with_a_method_to_is_moved_by_it():
    assert moved({"graph": Graph(x())}, META)["graph"].nodes.is_meta


def test_texts_before_the_tensors_do_not_stop_the_count():
    assert num_examples({"id": ["a", "b", "c"], "y": torch.zeros(3)}) == 3
    assert num_examples(["a", "b"]) == 2
    assert (
        num_examples({"id": "a"}) is None
        and num_examples(None) is None
        and num_examples({}) is None
    )


def test_a_tensor_that_is_there_already_is_not_copied():
    tensor = x()
    assert moved(tensor, torch.device("cpu")) is tensor


def images(num: int) -> list[torch.Tensor]:
    return [torch.zeros(3, 4, 4 + i) for i in range(num)]


@pytest.mark.parametrize("num", [1, 3, 4])
@pytest.mark.parametrize(
    "field",
    [
        lambda num: [{"boxes": torch.zeros(3, 4), "labels": torch.zeros(3)}] * num,
        lambda num: [torch.tensor(1)] * num,
        lambda num: [0] * num,
        lambda num: ["a"] * num,
        lambda num: torch.zeros(num),
        lambda num: tuple(torch.zeros(5 + i) for i in range(num)),
    ],
    ids=["dictionaries", "0-d", "numbers", "texts", "tensor", "of other lengths"],
)
def test_lists_have_an_entry_for_each_example(field, num):
    for batch in ((images(num), field(num)), {"images": images(num), "targets": field(num)}):
        assert num_examples(batch) == num


def test_a_list_of_dictionaries_is_counted_where_their_tensors_differ_in_length():
    assert num_examples([{"boxes": torch.zeros(n, 4)} for n in (7, 1, 2)]) == 3
    assert num_examples([{"image": torch.zeros(3, 4, 4), "label": torch.tensor(0)}]) == 1
    assert num_examples([torch.tensor(0), torch.tensor(1)]) == 2


@pytest.mark.parametrize("temperature", [(), (torch.tensor(2.0),)], ids=["alone", "with a 0-d"])
def test_lists_of_fields_have_the_rows_of_their_tensors(temperature):
    """As `default_collate` makes them from a data set of several inputs or targets."""
    two = [torch.zeros(5, 3), torch.zeros(5, 2)]
    for batch in ([two, torch.zeros(5)], [two, two], [{"a": two[0]}, {"a": two[1]}], two):
        assert num_examples([*batch, *temperature]) == 5
