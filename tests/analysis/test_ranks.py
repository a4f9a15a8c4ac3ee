"""Ranks played in one process do what DistributedDataParallel does in several."""

import pytest
import torch
from torch import nn

from course.analysis import ranks
from course.analysis.ranks import gap, joined, mean_gradient, play_ranks, run_ranks, shares

CRITERION = nn.CrossEntropyLoss()


def setup(norm):
    torch.manual_seed(0)
    layers = [nn.Linear(5, 8), nn.BatchNorm1d(8)] if norm else [nn.Linear(5, 8)]
    model = nn.Sequential(*layers, nn.Tanh(), nn.Linear(8, 3)).double()
    return model, (torch.randn(16, 5, dtype=torch.float64), torch.randint(0, 3, (16,)))


def gap_of(norm, sizes, **how):
    model, batch = setup(norm)
    (joined,) = play_ranks(model, CRITERION, [batch])
    return gap(mean_gradient(play_ranks(model, CRITERION, shares(batch, sizes)), **how),
               joined.grads)  # fmt: skip


def test_equal_shares_average_to_the_joined_gradient():
    assert gap_of(False, [4, 4, 4, 4]) < 1e-12


def test_unequal_shares_do_so_only_by_their_counts():
    assert gap_of(False, [12, 4]) > 0.05
    assert gap_of(False, [12, 4], by_count=True) < 1e-12


def test_no_average_brings_back_the_batch_that_batch_norm_saw():
    assert gap_of(True, [8, 8], by_count=True) > 0.05


def test_the_model_is_left_alone_and_sizes_must_add_up():
    model, batch = setup(True)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    play_ranks(model, CRITERION, shares(batch, [8, 8]))
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert all(p.grad is None for p in model.parameters())
    with pytest.raises(ValueError, match=r"\[8, 9\] examples, but the batch holds 16"):
        shares(batch, [8, 9])


@pytest.mark.slow
def test_two_processes_hold_what_was_played():
    model, batch = setup(True)
    batches = shares(batch, [12, 4])
    played, done = play_ranks(model, CRITERION, batches), run_ranks(model, CRITERION, batches)
    for mine, theirs in zip(done, played, strict=True):
        assert (mine.count, mine.loss) == (theirs.count, pytest.approx(theirs.loss))
        assert gap(mine.grads, mean_gradient(played)) < 1e-12
        for name, value in theirs.buffers.items():
            torch.testing.assert_close(mine.buffers[name], value)


@pytest.mark.parametrize(
    ("does", "says"),
    [("echo first >&2; echo last words >&2; exit 1", "failed: last words"),
     ("exit 0", "failed: nothing")],
)  # fmt: skip
def test_a_rank_that_fails_or_brings_nothing_is_said(does, says, tmp_path, monkeypatch):
    """The second as in a sandbox, where a process may start and may do nothing."""
    python = tmp_path / "python"
    python.write_text(f"#!/bin/sh\n{does}\n")
    python.chmod(0o755)
    monkeypatch.setattr(ranks.sys, "executable", str(python))
    model, batch = setup(False)
    with pytest.raises(RuntimeError, match=f"rank 0 of 1 {says}"):
        run_ranks(model, CRITERION, [batch])


def test_reports_join_to_what_the_whole_batch_gives():
    model, (inputs, targets) = setup(False)
    cut = [slice(0, 0), slice(0, 11), slice(11, 16)]
    reports = []
    for at in cut:
        (step,) = play_ranks(model, CRITERION, [(inputs[at], targets[at])])
        correct = int((model(inputs[at]).argmax(1) == targets[at]).sum())
        reports.append({"count": step.count, "loss": step.loss, "correct": correct,
                        "grads": step.grads | {"unused": None}})  # fmt: skip
    assert reports[0]["loss"] != reports[0]["loss"]  # nan: a mean over nothing
    (whole,) = play_ranks(model, CRITERION, [(inputs, targets)])
    found = joined(reports)
    assert found["loss"] == pytest.approx(whole.loss)
    assert found["accuracy"] == (model(inputs).argmax(1) == targets).double().mean().item()
    assert found["grads"].pop("unused") is None
    assert gap(found["grads"], whole.grads) < 1e-12
