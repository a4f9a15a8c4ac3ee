"""The figures of chapter 3e show the numbers they were given."""

from dataclasses import replace
from types import SimpleNamespace

import pytest

from course.analysis.leakage import Leak
from course.analysis.scores import GroupScore, Interval
from course.plots.evaluation import (
    plot_choosing,
    plot_coverage,
    plot_groups,
    plot_held,
    plot_leaks,
    plot_shifts,
    plot_thresholds,
)


def line(ax, label):
    return next(line for line in ax.lines if line.get_label() == label)


def test_memory_is_drawn_in_megabytes_batch_by_batch():
    (ax,) = plot_held({"logits": [1_000_000, 2_000_000], "numbers": [500_000, 500_000]}).axes
    assert line(ax, "logits").get_xydata().tolist() == [[1, 1.0], [2, 2.0]]
    assert list(line(ax, "numbers").get_ydata()) == [0.5, 0.5]


def test_thresholds_show_both_curves_and_the_choice():
    (ax,) = plot_thresholds([0.2, 0.8], [0.5, 1.0], [1.0, 0.25], least=0.9, chosen=0.8).axes
    assert list(line(ax, "precision").get_ydata()) == [0.5, 1.0]
    assert list(line(ax, "recall").get_ydata()) == [1.0, 0.25]
    assert set(line(ax, "chosen: 0.800").get_xdata()) == {0.8}
    assert set(line(ax, "required: 90%").get_ydata()) == {0.9}


def test_coverage_is_drawn_by_rule_with_what_was_promised():
    (ax,) = plot_coverage([10, 100], {"Wald": [0.6, 0.9], "Wilson": [0.95, 0.96]}).axes
    assert list(line(ax, "Wald").get_ydata()) == [0.6, 0.9]
    assert set(line(ax, "nominal: 95%").get_ydata()) == {0.95}


def test_groups_stand_with_their_intervals_and_sizes():
    rows = [GroupScore(name="thin", num=7, mean=Interval(0.5, 0.2, 0.8)),
            GroupScore(name="bold", num=9, mean=Interval(0.9, 0.7, 1.0))]  # fmt: skip
    (ax,) = plot_groups(rows, 0.7).axes
    assert [text.get_text() for text in ax.get_yticklabels()] == ["thin (7)", "bold (9)"]
    assert list(ax.lines[0].get_xdata()) == [0.2, 0.8] and list(ax.lines[1].get_xdata()) == [0.5]


def test_a_leak_and_its_twin_are_two_points():
    leak = Leak(kind="copies", data="", measure="accuracy", leaking=0.98, honest=0.86,
                found=(), found_honest=())  # fmt: skip
    (ax,) = plot_leaks([leak, replace(leak, measure="error")]).axes
    assert line(ax, "with the leak").get_xdata() == pytest.approx([0.02])
    assert line(ax, "without").get_xdata() == pytest.approx([0.14])
    assert ax.lines[3].get_xdata() == pytest.approx([0.86, 0.98])


def test_every_figure_of_a_shift_has_its_panel():
    one = SimpleNamespace(auc=0.9, auc_matched=0.5, label_distance=0.3, drop=-0.02)
    panels = plot_shifts({"label": one, "none": one}).axes
    widths = [[bar.get_width() for bar in ax.patches] for ax in panels]
    assert widths == [[0.9] * 2, [0.5] * 2, [0.3] * 2, [-0.02] * 2]


def test_reported_and_true_are_drawn_for_both_ways_to_choose():
    cost = SimpleNamespace(
        num_candidates=(1, 10), chosen_on_test=(0.8, 0.9), its_truth=(0.8, 0.85),
        chosen_on_val=(0.8, 0.86), val_truth=(0.8, 0.87),
    )  # fmt: skip
    left, right = plot_choosing(cost).axes
    assert list(line(left, "reported on test").get_ydata()) == [0.8, 0.9]
    assert list(line(right, "true").get_ydata()) == [0.8, 0.87]
    assert left.get_ylim() == pytest.approx(right.get_ylim())
