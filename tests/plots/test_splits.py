"""The split's picture shows the report's numbers, and its page and its JSON hold them."""

from __future__ import annotations

import json

import numpy as np
import pytest
from matplotlib.colors import to_hex
from sklearn.datasets import load_digits

from course.data import check_split, random_split
from course.plots.splits import GREY, RED, split_figure


@pytest.fixture(scope="module")
def reports():
    """An honest split of digits, and one with copies and a shared group."""
    images, targets = load_digits(return_X_y=True)
    split = random_split(len(targets), seed=1)
    sides = [(images[part] / 16, targets[part]) for part in split]
    leaky = [
        sides[0],
        tuple(
            np.concatenate([train[:40], val]) for train, val in zip(sides[0], sides[1], strict=True)
        ),
    ]
    groups = [np.arange(len(y)) + (0 if number else 10_000) for number, (_, y) in enumerate(leaky)]
    groups[1][:7] = groups[0][:7]
    return check_split(*sides), check_split(*leaky, groups=tuple(groups))


def panels(report):
    return {axes.get_title().partition(" (")[0].partition(":")[0]: axes
            for axes in split_figure(report).axes}  # fmt: skip


def test_bars_are_the_shares_measured_and_red_where_they_are_faults(reports):
    honest, leaky = (panels(report)["shared with training"] for report in reports)
    assert [bar.get_width() for bar in honest.patches] == [0.0, 0.0]
    copies, near, groups = leaky.patches
    assert copies.get_width() == pytest.approx(100 * 40 / 399)
    assert groups.get_width() == pytest.approx(100 * 7 / 399)
    assert [to_hex(bar.get_facecolor()).upper() for bar in (copies, near, groups)] == [
        RED, GREY, RED]  # fmt: skip


def test_label_bars_are_the_classes_shares(reports):
    axes = panels(reports[0])["labels"]
    heights = [bar.get_height() for bar in axes.patches]
    counts = reports[0].series["label_counts"]
    assert heights[:10] == pytest.approx(100 * np.array(counts["train"]) / 1438)
    assert heights[10:] == pytest.approx(100 * np.array(counts["val"]) / 359)
    assert sum(heights[:10]) == pytest.approx(100)


def test_heaps_of_scores_and_of_targets_have_area_one(reports):
    rng = np.random.default_rng(0)
    rows = [(rng.standard_normal((100, 8)), rng.standard_normal(100) + side) for side in (0, 2)]
    regression = check_split(*rows)
    assert "label-shift" in {finding.id for finding in regression.findings}
    for axes in (panels(reports[0])["inputs"], panels(regression)["targets"]):
        area = sum(bar.get_height() * bar.get_width() for bar in axes.patches)
        assert area == pytest.approx(2)
    assert to_hex(panels(regression)["targets"].title.get_color()).upper() == RED


def test_a_report_of_little_gives_a_picture_of_little(tmp_path):
    report = check_split(([[1.0], [2.0]], [0, 1]), ([[3.0], [4.0]], [1, 0]))
    assert list(panels(report)) == ["shared with training", "labels"]
    report.plot().savefig(tmp_path / "split.png")
    assert (tmp_path / "split.png").read_bytes()[:4] == b"\x89PNG"


def test_the_title_is_the_verdict(reports):
    titles = [split_figure(report).get_suptitle() for report in reports]
    assert titles == ["verdict: the split holds", "verdict: 2 faults in the split"]


def test_json_holds_the_report_and_is_strict(reports):
    for report in reports:
        document = json.loads(json.dumps(report.to_json(), allow_nan=False))
        assert document["passed"] is report.passed and document["verdict"] == report.verdict
        assert [f["id"] for f in document["findings"]] == [f.id for f in report.findings]
        assert document["figures"]["copies"] == report.figures["copies"]
        assert document["series"]["label_counts"]["labels"] == list(range(10))
    tiny = check_split(([[1.0], [2.0]], [0, 1]), ([[3.0], [4.0]], [1, 0]))
    assert tiny.figures["off_standard_train"] == float("inf")
    assert json.loads(json.dumps(tiny.to_json(), allow_nan=False))["figures"][
        "off_standard_train"] is None  # fmt: skip


def test_the_page_names_faults_and_escapes_what_users_wrote():
    rows = np.arange(40.0).reshape(40, 1)
    labels = np.arange(40) % 2
    groups = (["<script>a"] * 20, ["<script>a"] * 20)
    report = check_split((rows[:20], labels[:20]), (rows[20:], labels[20:]), groups=groups)
    page = report._repr_html_()
    assert "<td>leak-group</td>" in page and "&lt;script&gt;a" in page and "<script>" not in page
    assert "Not checked: " in page and "times: none were given" in page
    honest = check_split((rows[:20], labels[:20]), (rows[20:], labels[20:]))
    assert "Verdict:" in honest._repr_html_()
