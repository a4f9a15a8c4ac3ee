"""The functions behind some examples, against oracles that we did not write."""

import math
from itertools import pairwise

import pytest
import torch
from sklearn.metrics import f1_score
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from course.worked import compute
from course.worked.overfit import final_losses
from course.worked.production import count_lines, production_loop
from course.worked.schedules import cosine_rates
from course.worked.seeded import seeded
from course.worked.stopping import stop_index


def blobs(num: int = 60) -> TensorDataset:
    """Three well separated clouds of points, so that a few epochs learn them."""
    generator = torch.Generator().manual_seed(0)
    targets = torch.arange(num) % 3
    centres = torch.tensor([[0.0, 3.0], [3.0, -3.0], [-3.0, -3.0]])
    return TensorDataset(centres[targets] + torch.randn(num, 2, generator=generator), targets)


def run_production_loop(path, epochs, **changes):
    data = blobs()
    config = {
        "seed": 0, "device": "cpu", "lr": 0.05, "epochs": epochs, "accum_steps": 4,
        "bf16": False, "max_norm": 1.0, "min_delta": 1e-4, "patience": 3, "checkpoint": path,
    } | changes  # fmt: skip
    torch.manual_seed(1)
    model, log = nn.Linear(2, 3), []

    def evaluate(model):
        with torch.no_grad():
            return nn.functional.cross_entropy(model(data.tensors[0]), data.tensors[1]).item()

    before = evaluate(model)
    best = production_loop(model, DataLoader(data, 8), evaluate, config, log.append)
    return before, best, log


def test_the_rebuilt_production_loop_learns_and_keeps_its_best(tmp_path):
    before, best, log = run_production_loop(tmp_path / "best.pt", epochs=10)
    assert best < before / 5
    state = torch.load(tmp_path / "best.pt", weights_only=True)
    assert state["best"] == best == min(entry["val_loss"] for entry in log)


def test_the_rebuilt_production_loop_resumes_at_the_next_epoch(tmp_path):
    path = tmp_path / "best.pt"
    run_production_loop(path, epochs=4)
    _, _, log = run_production_loop(path, epochs=6)
    assert [entry["epoch"] for entry in log] == [4, 5]


def test_the_rebuilt_production_loop_stops_when_nothing_improves(tmp_path):
    _, _, log = run_production_loop(tmp_path / "best.pt", epochs=50, lr=0.0, patience=3)
    assert len(log) == 4  # the first epoch sets the best, three do not improve on it


def test_lines_are_counted_without_blanks_comments_and_docstrings():
    source = '''
    def f(x):
        """Two lines
        of text."""

        # a comment
        y = x  # code, with a comment
        return y
    '''
    assert count_lines(source) == (6, 3)


def test_the_stacked_networks_train_as_each_does_alone():
    losses = final_losses(2, 12, (4, 16, 3), lr=0.05, steps=50, seed=3)
    for i in range(2):
        with seeded(3 * 2 + i):
            model = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 3))
            inputs, targets = torch.randn(12, 4), torch.randint(0, 3, (12,))
        optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
        for _ in range(50):
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(inputs), targets).backward()
            optimizer.step()
        alone = nn.functional.cross_entropy(model(inputs), targets)
        torch.testing.assert_close(losses[i], alone.detach(), rtol=1e-3, atol=1e-5)


def test_f1_is_that_of_scikit_learn():
    targets = [0] * 900 + [1] * 100
    steps = {step.what: step.computed for step in compute("N60").steps}
    assert steps["F1 of the minority class"] == f1_score(targets, [0] * 1000, zero_division=0)


@pytest.mark.parametrize("patience", [1, 2, 5])
def test_stopping_comes_after_patience_epochs_without_improvement(patience):
    losses = [1.0, 0.5] + [0.5] * 20
    assert stop_index(losses, patience, 0.0) == 1 + patience
    assert stop_index([math.nan] * 20, patience, 0.0) == patience - 1
    assert stop_index([1 / (i + 1) for i in range(50)], patience, 0.0) is None


def test_the_cosine_falls_to_t_max_and_climbs_after_it():
    rates = cosine_rates(0.1, 10, 0.01, 20)
    assert all(later < earlier for earlier, later in pairwise(rates[:11]))
    assert all(later > earlier for earlier, later in pairwise(rates[10:]))
    assert rates[10] == pytest.approx(0.01) and rates[20] == pytest.approx(0.1)


def test_one_healthy_start_in_two_thousand_misses_the_thresholds_of_n62():
    (loss,) = final_losses(1, 12, (4, 16, 3), lr=0.05, steps=200, seed=243)
    assert 0.03 < loss < 0.1  # 0.061 where it was found
