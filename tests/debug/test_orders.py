"""Updates in any order, against the loop written out; figures from plain data."""

import math

import pytest
import torch
from torch import nn

from course.debug.orders import RIGHT, train_in_order
from course.plots.one_step import STYLES, plot_runs, plot_touched
from course.widgets.anatomy.state import OPERATIONS, touched

LATE = ("forward", "loss", "backward", "clear", "step")
LAST = ("forward", "loss", "backward", "step", "clear")
EARLY = ("forward", "loss", "step", "clear", "backward")


@pytest.mark.parametrize("hidden", [0, 5])
def test_the_right_order_is_the_plain_loop(hidden):
    from course.data import load

    data = load("digits")
    run = train_in_order(RIGHT, updates=3, hidden=hidden, seed=1)
    torch.manual_seed(1)
    layers = [nn.Linear(64, 5), nn.Tanh(), nn.Linear(5, 10)] if hidden else [nn.Linear(64, 10)]
    model = nn.Sequential(*layers)
    for update, (loss, norm, moved) in enumerate(
        zip(run.losses, run.norms, run.moved, strict=True)
    ):
        rows = slice(64 * update, 64 * update + 64)
        outputs = model(data.train_inputs.flatten(1)[rows])
        expected = nn.functional.cross_entropy(outputs, data.train_targets[rows])
        grads = torch.autograd.grad(expected, list(model.parameters()))
        length = torch.cat([grad.flatten() for grad in grads]).norm().item()
        assert loss == pytest.approx(expected.item(), rel=1e-5)
        assert norm == pytest.approx(length, rel=1e-4)
        assert moved == pytest.approx(0.1 * length, rel=1e-3)
        with torch.no_grad():
            for parameter, grad in zip(model.parameters(), grads, strict=True):
                parameter -= 0.1 * grad


def test_each_misplaced_line_does_what_the_chapter_says():
    right = train_in_order(RIGHT, updates=5)
    assert train_in_order(LAST, updates=5).losses == right.losses
    assert train_in_order((*RIGHT, "clip"), updates=5).losses == right.losses
    assert train_in_order(LATE, updates=5).moved == [0.0] * 5
    early = train_in_order(EARLY, updates=5)
    assert early.moved[0] == 0.0 and early.moved[1] == pytest.approx(right.moved[0])
    assert "modified by an inplace operation" in train_in_order(EARLY, updates=5, hidden=4).error


def test_a_run_leaves_the_global_generator_alone_and_names_an_unknown_operation():
    before = torch.get_rng_state()
    train_in_order(RIGHT, updates=1)
    assert torch.equal(before, torch.get_rng_state())
    with pytest.raises(ValueError, match="'zero' is not one of"):
        train_in_order(("zero",))


def test_the_table_of_what_changes_is_that_of_the_six_operations():
    did = {
        name: {tensor for tensor, state in row.items() if state != "same"}
        for name, row in touched().items()
    }
    assert list(did) == list(OPERATIONS)
    assert did == {
        "zero_grad": {"weight.grad", "bias.grad"},
        "forward": {"outputs"},
        "loss": {"loss"},
        "backward": {"weight.grad", "bias.grad"},
        "step": {"weight", "bias"},
        "schedule": {"lr"},
    }


def test_figures_show_every_run_and_every_operation():
    figure = plot_touched(touched())
    assert [label.get_text() for label in figure.axes[0].get_yticklabels()] == list(OPERATIONS)
    shown = plot_runs({"a": [1.0, math.nan, 0.0], "b": [2.0]}, ylabel="loss", log=True).axes[0]
    assert [line.get_label() for line in shown.lines] == ["a", "b"]
    assert [value for value in shown.lines[0].get_ydata() if not math.isnan(value)] == [1.0]
    with pytest.raises(ValueError, match="at most 5"):
        plot_runs({str(i): [1.0] for i in range(len(STYLES) + 1)}, ylabel="loss")
