"""What every notebook begins with: goals, time and points from the bank, and what to install."""

import re
import subprocess
import sys

import pytest

from autograde import bank
from autograde.frame import NEEDS
from autograde.kit.chapters import chapters
from autograde.kit.outline import outline_of, outlines
from autograde.sources import read_source, source_paths
from course.released import cells_of, released


@pytest.fixture(params=list(source_paths()))
def name(request):
    return request.param


def test_the_head_stands_under_the_title_with_sums_of_the_bank(name):
    notebook = read_source(source_paths()[name])
    title, head = notebook.cells[:2]
    assert title.source.startswith("# ") and head.cell_type == "markdown"
    exercises = [bank.load(id) for id in outlines()[name].exercises]
    minutes = sum(exercise.minutes for exercise in exercises)
    assert f"about {minutes} minutes for {len(exercises)} exercises" in head.source
    by_hand = outlines()[name].points_by_hand
    shown = sum(part.points for exercise in exercises for part in exercise.parts)
    total = shown + by_hand
    assert f"**It gives** {total:g} points: " in head.source
    parts = re.findall(r"([\d.]+) (?:shown|for)", head.source.partition("points: ")[2])
    assert sum(map(float, parts)) == total
    for goal in chapters()[name].goals:
        assert goal in head.source


def test_it_has_its_own_scorecard(name):
    code = [cell.source for cell in cells_of(released()[name]) if cell.kind == "code"]
    assert code.count(f'scorecard("{name}")') == 1


def test_the_first_code_says_what_to_install_where_the_course_is_missing(name, tmp_path):
    first = next(cell for cell in cells_of(released()[name]) if cell.kind == "code")
    assert first.source == NEEDS.rstrip()
    alone = subprocess.run(
        [sys.executable, "-I", "-S", "-c", first.source],
        capture_output=True,
        text=True,
        cwd=tmp_path,
    )
    assert alone.returncode == 1
    assert "ModuleNotFoundError: This notebook needs the course" in alone.stderr
    assert f"{sys.executable} -m pip install" in alone.stderr
    exec(first.source, {})  # here it is installed: nothing is said


def test_the_outline_reads_exercises_guesses_and_points_by_hand():
    outline = outline_of("03a-training-recipe", cells_of(released()["03a-training-recipe"]))
    assert outline.title == "3a · The training recipe"
    assert "03a.clip" in outline.exercises and "03a.first-loss" in outline.guesses
    assert outline.points_by_hand == 3
