"""What exercises share to look at answers."""

import numpy as np
import pytest
import torch

from autograde.bank.harness import borrowed

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
