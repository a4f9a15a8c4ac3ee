"""What a diagnosis costs, counted in rows that go forward, and what it must not save."""

import itertools

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.modules.module import register_module_forward_pre_hook
from torch.utils.data import DataLoader, TensorDataset

from course.debug import diagnose
from course.debug.probes.relation import Guesses, relate
from course.debug.probes.session import STEPS, NotChecked, Session
from course.debug.probes.setup import as_setup
from course.debug.relations.program import program_of

MOST_BATCHES = 75
"""Batches' worth of rows that go through the model in one diagnosis of a plain classifier."""


def plain(**more):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 36, 4))
    x, y = torch.randn(192, 1, 8, 8), torch.randint(0, 4, (192,))
    return dict(
        model=model, loss_fn=nn.CrossEntropyLoss(), num_classes=4,
        optimizer=torch.optim.SGD(model.parameters(), 0.01),
        train_loader=DataLoader(TensorDataset(x, y), 16, shuffle=True),
    ) | more  # fmt: skip


def test_a_plain_classifier_costs_few_forwards_beside_its_own_loop():
    setup, rows = plain(), []

    def count(module, args):
        if module is setup["model"]:
            rows.append(len(args[0]))

    hook = register_module_forward_pre_hook(count)
    try:
        assert diagnose(setup).ok
    finally:
        hook.remove()
    assert STEPS * 16 < sum(rows) < MOST_BATCHES * 16


@pytest.mark.parametrize("reads", ["nothing", "a generator", "a live iterator"])
def test_a_loss_is_steady_only_if_a_second_step_says_so(reads):
    """No seed changes a step that does not draw; what it reads may still go on."""
    setup, weights = plain(), itertools.count(1)
    own = torch.Generator().manual_seed(0)  # put back after each step

    def step(batch):
        x, y = batch
        weight = {"nothing": 1.0, "a generator": float(torch.rand((), generator=own)),
                  "a live iterator": next(weights)}[reads]  # fmt: skip
        setup["optimizer"].zero_grad()
        loss = weight * F.cross_entropy(setup["model"](x), y)
        loss.backward()
        setup["optimizer"].step()
        return loss.item()

    program = program_of(Session(as_setup(setup | {"train_step": step})))
    if reads == "a live iterator":
        with pytest.raises(NotChecked, match="random"):
            program.steady_loss(program.batches[0])
    else:
        assert program.steady_loss(program.batches[0]) == program.first().loss


def test_a_plain_step_is_kept_and_one_that_is_changed_or_asked_for_anew_is_not():
    program = program_of(Session(as_setup(plain())))
    first, batch = program.first(), program.batches[0]
    assert program.step(batch) is first and first.slopes[0].shape == first.outputs[0].shape
    assert program.step(batch, again=True) is not first
    assert program.step(batch, seed=1) is not first and program.step(program.batches[1]).loss != (
        first.loss
    )
    zero = program.step(batch, prepare=lambda: program.model[3].weight.zero_())
    assert zero.loss != first.loss and program.first() is first


def test_other_orders_of_the_labels_are_related_as_if_each_came_alone():
    own = torch.Generator().manual_seed(1)
    y = torch.randint(0, 4, (120,), generator=own)
    x = F.one_hot(y, 4) + 0.3 * torch.randn(120, 4, generator=own)
    guesses = Guesses(x)
    given, moved = y, y.roll(1)
    assert guesses.relate(moved) == relate(x, moved) and relate(x, moved).strongest < 2
    assert guesses.at_a_glance(moved) < 3 and guesses.at_a_glance(given) > 6
    assert relate(x, given).strongest > 6
