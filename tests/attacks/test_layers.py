"""Attacks on the layers of nbgrader: metadata, stored outputs, files and links, in one class."""

import json
import os
import shutil
from pathlib import Path

import pytest

from autograde.classroom import example, grading
from autograde.classroom.example import ASSIGNMENT
from autograde.classroom.release import release
from autograde.classroom.report import read_rows
from autograde.sandbox.limits import Limits
from tests.short_class import short_class


def notebook_of(path: Path) -> dict:
    return json.loads(path.read_text("utf-8"))


def edit(path: Path, change) -> None:
    notebook = notebook_of(path)
    change(notebook)
    path.write_text(json.dumps(notebook), "utf-8")


def check_of(notebook: dict) -> dict:
    return next(
        cell
        for cell in notebook["cells"]
        if cell["metadata"].get("nbgrader", {}).get("grade_id") == "clip-check"
    )


def forged_outputs(path):
    def change(notebook):
        result = {"output_type": "execute_result", "data": {"text/plain": "3"}, "metadata": {}}
        check_of(notebook)["outputs"] = [{**result, "execution_count": 1}]
        check_of(notebook)["metadata"]["nbgrader"]["points"] = 300
        check_of(notebook)["source"] = "3"

    edit(path, change)


def another_graded_cell(path):
    def change(notebook):
        forged = json.loads(json.dumps(check_of(notebook)))
        forged["metadata"]["nbgrader"].update(grade_id="bonus", points=100)
        forged.update(id="bonus", source="100")
        notebook["cells"].append(forged)

    edit(path, change)


def written_by_hand_flag(path):
    def change(notebook):
        check_of(notebook)["metadata"]["nbgrader"].update(solution=True, locked=False)
        check_of(notebook)["metadata"]["nbgrader_score"] = {"manual_score": 300}
        notebook["metadata"]["nbgrader"] = {"score": 300}

    edit(path, change)


def half_a_character(path):
    edit(path, lambda notebook: notebook["cells"][0].update(source="\ud800"))


def prints_half_a_character(path):
    def change(notebook):
        source = "print('\\ud800')\nraise ValueError('\\udfff')"
        cell = {"cell_type": "code", "metadata": {}, "outputs": [], "source": source, "id": "half"}
        notebook["cells"].insert(0, {**cell, "execution_count": None})

    edit(path, change)


def link_to_the_gradebook(path):
    path.unlink()
    path.symlink_to("../../../gradebook.db")


def links_beside(path):
    (path.parent / "gradebook.db").symlink_to("../../../gradebook.db")
    (path.parent / "all").symlink_to("../../..")
    (path.parent / "verdicts.json").write_text('{"points": 300}')


def nested_deep(path):
    path.write_text('{"cells": ' + "[" * 100_000 + "]" * 100_000 + "}")


def huge(path):
    with path.open("r+b") as file:
        file.truncate(60 * 2**20)


def null_bytes(path):
    path.write_bytes(b"\0" * 1000)


def a_pipe(path):
    path.unlink()
    os.mkfifo(path)


LAYERS = {
    "forged": forged_outputs,
    "bonus": another_graded_cell,
    "flags": written_by_hand_flag,
    "half": half_a_character,
    "prints-half": prints_half_a_character,
    "linked": link_to_the_gradebook,
    "links": links_beside,
    "deep": nested_deep,
    "huge": huge,
    "nulls": null_bytes,
    "fifo": a_pipe,
}
NOT_GRADED = ("half", "linked", "links", "deep", "huge", "nulls", "fifo")


@pytest.fixture(scope="module")
def attacked(tmp_path_factory):
    """Blank notebooks, attacked in every layer, and Zoe's honest one after them all."""
    folder = tmp_path_factory.mktemp("layers") / "class"
    short_class(folder)
    release(folder, ASSIGNMENT)
    example.hand_in(folder)
    submitted = folder / "submitted"
    honest = (submitted / "ada" / ASSIGNMENT / f"{ASSIGNMENT}.ipynb").read_text("utf-8")
    blank = (folder / "release" / ASSIGNMENT / f"{ASSIGNMENT}.ipynb").read_text("utf-8")
    shutil.rmtree(submitted)
    for student in (*LAYERS, "zoe"):
        path = submitted / student / ASSIGNMENT / f"{ASSIGNMENT}.ipynb"
        path.parent.mkdir(parents=True)
        path.write_text(honest if student == "zoe" else blank, "utf-8")
        if student in LAYERS:
            LAYERS[student](path)
    outcomes = list(grading.grade(folder, ASSIGNMENT, limits=Limits(cell_s=20.0)))
    rows = {row.student: row for row in read_rows(folder, ASSIGNMENT)}
    return folder, {outcome.student: outcome for outcome in outcomes}, rows


@pytest.mark.slow
@pytest.mark.parametrize("student", LAYERS)
def test_no_layer_gives_points_that_were_not_earned(attacked, student):
    folder, outcomes, rows = attacked
    assert outcomes[student].graded == (student not in NOT_GRADED), outcomes[student].reason
    assert rows[student].total == 0
    if student in NOT_GRADED:
        assert f"/{student}/" in outcomes[student].reason
        assert str(folder) in outcomes[student].reason


@pytest.mark.slow
def test_the_last_one_in_such_a_class_gets_her_points(attacked):
    folder, _, rows = attacked
    expected = example.expected()["ada"]["scores"] | {"03a.windows": 0.0}  # ada's own numbers
    got = {exercise: rows["zoe"].scores[exercise] for exercise in expected}
    assert got == expected and rows["zoe"].total == sum(expected.values())
    assert {row.max_total for row in rows.values() if not row.not_graded} == {rows["zoe"].max_total}
    copied = [path for path in (folder / "autograded").rglob("*") if path.name == "gradebook.db"]
    assert copied == []
