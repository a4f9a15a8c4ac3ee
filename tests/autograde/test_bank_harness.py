"""What exercises share to look at answers."""

import subprocess
import sys

import numpy as np
import pytest
import torch

from autograde.bank.harness import Graphs, Watch, borrowed

X = torch.randn(2, 3)


@pytest.mark.parametrize(
    "returned",
    [X, X[1], X.numpy(), X.numpy()[0].reshape(3, 1), {"a": (torch.ones(2), X.view(-1))}],
    ids=["itself", "a view", "its array", "a view of its array", "inside"],
)
def test_what_comes_back_in_borrowed_memory_is_found(returned):
    assert borrowed(returned, {"y": torch.ones(2), "x": [X]}) == ["x"]


@pytest.mark.parametrize("returned", [X.clone(), X.numpy() + 0, X[:0].clone(), 3.0, None])
def test_what_has_memory_of_its_own_is_not(returned):
    assert borrowed(returned, {"x": X, "none": torch.ones(0), "array": np.ones(3)}) == []


def test_a_changed_argument_is_called_by_its_name_and_anything_else_by_its_description():
    inputs, first = torch.zeros(3), {"lr": 0.1}
    watch = Watch(data={"inputs": inputs, "the dictionary changes['lr']": first})
    inputs += 1
    assert watch.changed() == ["its argument inputs"]
    inputs -= 1
    first["hidden"] = 8
    assert watch.changed() == ["the dictionary changes['lr']"]


def test_a_graph_counts_until_it_is_dropped_and_a_step_too_early_is_still_an_error():
    layers = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Tanh(), torch.nn.Linear(4, 1))
    with Graphs() as graphs:
        for _ in range(5):
            out = layers(X).sum()
        one = graphs.now
        assert graphs.most == 2 * one > 0
        with torch.no_grad():
            layers[2].weight.mul_(2)
        with pytest.raises(RuntimeError, match="inplace operation"):
            out.backward()
        layers(X).sum().backward()
        del out
    assert graphs.now == 0 and layers[0].weight.grad.abs().sum() > 0


FIRST_IMPORT = """
import random
from autograde.bank.harness import Watch
watch = Watch()
import sklearn.metrics
assert watch.changed() == [], watch.changed()
random.random()
watch = Watch()
random.random()
assert watch.changed() == ["the state of Python's random numbers"], watch.changed()
"""


def test_the_first_import_of_scikit_learn_is_no_use_of_random_numbers():
    subprocess.run([sys.executable, "-c", FIRST_IMPORT], check=True)
