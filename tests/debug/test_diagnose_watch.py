"""watch listens to the user's own loop, names its bugs, and leaves no trace."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from course.debug import watch


def run(steps=24, *, clear=True, clip="none", watched=True, mode=True):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Dropout(0.1), nn.Linear(16, 3))
    optimizer = torch.optim.SGD(model.parameters(), 0.05)
    model.train(mode)

    def loop():
        for _ in range(steps):
            x = torch.randn(32, 8)
            if clear:
                optimizer.zero_grad()
            loss = F.cross_entropy(model(x), x[:, :3].argmax(1))
            if clip == "before":
                nn.utils.clip_grad_norm_(model.parameters(), 0.5)
            loss.backward()
            if clip == "right":
                nn.utils.clip_grad_norm_(model.parameters(), 0.5)
            optimizer.step()

    if not watched:
        loop()
        return model, None
    with watch(model, optimizer, every=20) as seen:
        loop()
    return model, seen


@pytest.mark.parametrize(
    ("words", "wanted"),
    [
        ({"clear": False}, "missing-zero-grad"),
        ({"clip": "before"}, "clip-misplaced"),
        ({"mode": False}, "eval-mode-in-training"),
    ],
)
def test_a_bug_of_the_loop_is_named(words, wanted):
    _, seen = run(**words)
    assert seen.report.alarms[0].id == wanted, str(seen.report)


@pytest.mark.parametrize("clip", ["none", "right"])
def test_a_sound_loop_raises_no_alarm(clip):
    _, seen = run(60, clip=clip)
    assert seen.report.ok, str(seen.report)
    assert "clearing" in seen.report.checked


def test_the_training_is_the_same_bit_for_bit_and_nothing_stays_installed():
    backward = torch.autograd.backward
    watched, _ = run(50)
    alone, _ = run(50, watched=False)
    for a, b in zip(watched.parameters(), alone.parameters(), strict=True):
        assert torch.equal(a, b)
    assert torch.autograd.backward is backward


def test_an_exception_of_the_loop_passes_and_the_watch_ends():
    model = nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    backward = torch.autograd.backward
    with pytest.raises(KeyError), watch(model, optimizer):
        raise KeyError("x")
    assert torch.autograd.backward is backward
    assert not optimizer._optimizer_step_post_hooks


def test_watching_every_step_is_refused():
    with pytest.raises(ValueError, match="Try every=2000"):
        watch(nn.Linear(1, 1), None, every=1)


def test_a_watch_without_an_optimizer_is_refused():
    with pytest.raises(ValueError, match="optimizer is None, expected a torch"):
        watch(nn.Linear(2, 2), None)
