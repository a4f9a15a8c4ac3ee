"""The tape of single numbers gives torch's gradients, whatever the graph."""

import operator
import random

import pytest
import torch

from course.from_scratch.tape import Value


def programme(make, seed: int, nodes: int = 25):
    """A random graph: 4 leaves, then sums, products and relus of any two values so far."""
    draw = random.Random(seed)
    values = [make(draw.uniform(-1.5, 1.5)) for _ in range(4)]
    leaves = values.copy()
    for _ in range(nodes):
        a, b = draw.choice(values[-6:]), draw.choice(values)
        operation = draw.choice([operator.add, operator.mul, lambda one, _: one.relu()])
        values.append(operation(a, b))
    return leaves, values


def leaf(number: float) -> torch.Tensor:
    return torch.tensor(number, dtype=torch.float64, requires_grad=True)


@pytest.mark.parametrize("seed", range(20))
def test_random_graphs_have_torchs_values_and_gradients_also_after_two_passes(seed):
    ours, values = programme(Value, seed)
    theirs, tensors = programme(leaf, seed)
    assert [value.data for value in values] == pytest.approx([t.item() for t in tensors])
    for at in (-1, -3, -1):
        values[at].backward()
        tensors[at].backward(retain_graph=True)
    assert [v.grad for v in ours] == pytest.approx([float(t.grad or 0.0) for t in theirs])


def test_a_chain_of_ten_thousand_and_a_diamond_of_two_to_the_sixty_paths_are_walked_once():
    x = Value(1.0)
    long = x
    for _ in range(10_000):
        long = long + x
    long.backward()
    assert x.grad == 10_001
    y = doubled = Value(1.0)
    for _ in range(60):
        doubled = doubled + doubled
    doubled.backward()
    assert y.grad == 2.0**60


def test_relu_has_slope_zero_at_zero_as_in_torch():
    x = Value(0.0)
    x.relu().backward()
    assert x.grad == 0.0
