"""The figures of chapter 3h show the numbers they were given."""

import math

import pytest

from course.plots.suspects import (
    PANELS,
    plot_experiment,
    plot_lineup,
    plot_log,
    plot_one_batch_bugs,
)

EMPTY = dict.fromkeys(PANELS, ())


def log(*values: float) -> dict[str, list[float]]:
    return {name: list(values) for name in PANELS}


def drawn(ax) -> list[list[float]]:
    return [list(line.get_ydata()) for line in ax.lines]


def test_a_log_stands_next_to_the_healthy_one_with_its_ceiling():
    figure = plot_log(log(0.1, 0.2, 0.3), log(0.4, 0.5), title="a bug", ceiling=0.85)
    assert figure.get_suptitle() == "a bug"
    for ax, (name, label) in zip(figure.axes, PANELS.items(), strict=True):
        assert ax.get_title(loc="left") == label and ax.get_xlabel() == "epoch"
        assert drawn(ax)[:2] == [[0.4, 0.5], [0.1, 0.2, 0.3]]
        assert (len(drawn(ax)) == 3) == (name == "val_accuracy")


def test_a_line_up_has_a_row_per_letter_and_says_where_nothing_was_logged():
    figure = plot_lineup({"A": log(1.0, 2.0), "B": EMPTY}, log(1.0, 1000.0))
    rows = [figure.axes[:4], figure.axes[4:]]
    assert [row[0].get_ylabel() for row in rows] == ["A", "B"]
    assert [ax.get_title(loc="left") for ax in rows[0]] == list(PANELS.values())
    assert rows[0][0].get_yscale() == "log" and rows[0][2].get_ylim() == (0, 1)
    assert all("no rows at all" in ax.texts[0].get_text() for ax in rows[1])
    assert not any(ax.texts for ax in rows[0])


@pytest.mark.parametrize("count", [1, 3, 4, 8])
def test_each_bug_of_one_batch_has_its_panel_and_no_panel_is_left_over(count):
    curves = {f"bug {i}": [1.0, math.inf, 0.5] for i in range(count)}
    figure = plot_one_batch_bugs(curves, [1.0, 0.1])
    shown = [ax for ax in figure.axes if ax.get_visible()]
    assert [ax.get_title(loc="left") for ax in shown] == list(curves)
    for ax in shown:
        healthy, bug = drawn(ax)
        assert healthy == [1.0, 0.1] and bug[::2] == [1.0, 0.5] and math.isnan(bug[1])


def test_an_experiment_draws_loss_norm_and_accuracy_of_each_learner():
    frame = {"loss_at": [1, 2], "losses": [1.0, 0.5], "norm_at": [1, 2], "norms": [3.0, 2.0],
             "seen_at": [0, 2], "accuracies": [0.3, 0.9]}  # fmt: skip
    figure = plot_experiment({"one": frame, "other": {**frame, "norms": [3.0, 2000.0]}})
    loss, norm, accuracy = figure.axes
    assert drawn(loss) == [[1.0, 0.5]] * 2 and drawn(accuracy) == [[0.3, 0.9]] * 2
    assert norm.get_yscale() == "log" and drawn(norm)[1] == [3.0, 2000.0]
    assert [text.get_text() for text in loss.get_legend().get_texts()] == ["one", "other"]
