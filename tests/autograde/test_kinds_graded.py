"""Exercises of every kind in a class: released, handed in, graded by ours and by stock nbgrader."""

import json
import os
import subprocess
import sys

import nbformat
import pytest

from autograde import bank, class_dir, sources
from autograde.bank import fix_the_loop
from autograde.classroom import grading
from autograde.classroom.release import release
from autograde.sandbox.limits import Limits
from tests.short_class import hand_in

NAME = "99-kinds"
HEADER = """\
# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3 (ipykernel)
#     language: python
#     name: python3
# ---

# %%
import math
import torch
from autograde import ask, check, student

# %%
student("")

"""
WINDOWS = """\
# %% exercise 03a.windows
# What this is about.
### BEGIN SOLUTION
batches = math.ceil(q.n / q.b)
windows = {"batches": batches, "updates": q.e * math.ceil(batches / q.k)}
### END SOLUTION

"""
STOP = """\
# %% exercise 03a.early-stopping
class EarlyStopping:
    ### BEGIN SOLUTION
    pass
    ### END SOLUTION

"""
BARE = (
    "03a.fix-the-loop", "03a.what-next", "03a.legal", "03a.order", "03a.arena", "03b.postmortem",
)  # fmt: skip
COUNTING = """\
import math
class EarlyStopping:
    def __init__(self, patience, min_delta=0.0):
        self.patience, self.min_delta, self.best, self.waited = patience, min_delta, math.inf, 0
    def update(self, val_loss, model):
        if val_loss < self.best - self.min_delta:
            self.best, self.waited = val_loss, 0
            self.kept = {k: v.clone() for k, v in model.state_dict().items()}
        else:
            self.waited += 1
        return self.waited >= self.patience
    def restore(self, model):
        model.load_state_dict(self.kept)
"""
RIGHT = {
    "windows": "n = math.ceil(q.n / q.b)\nwindows = [n, q.e * math.ceil(n / q.k)]",
    "what-next": 'what_next = "overfit"',
    "legal": 'legal = ["log", "clip", "average"]',
    "order": "order = ('forward', 'loss', 'clear', 'backward', 'clip', 'step', 'schedule')",
    "arena": """\
def arena():
    return {"optimizer": "adam", "lr": torch.tensor(0.02), "momentum": 0}
""",
    "postmortem": 'postmortem = {"fault": "rate", "rung": 3, "accuracy": [0.1, 0.9]}',
    "fix-the-loop": fix_the_loop.FIXED,
    "early-stopping": COUNTING,
}
NAMED = 'student("{}")'


def handed_in(folder, student, answers, typed):
    notebook = nbformat.read(folder / "release" / NAME / f"{NAME}.ipynb", as_version=4)
    for cell in notebook.cells:
        id = cell.metadata.get("nbgrader", {}).get("grade_id")
        if id in answers:
            cell.source = answers[id]
        elif cell.source == 'student("")':
            cell.source = NAMED.format(typed)
    hand_in(folder, student, NAME, notebook)


def of(verdicts, exercise):
    """The verdict on an exercise that has one graded cell."""
    (check,) = [check for check in verdicts.values() if check["exercise"] == exercise]
    return check


@pytest.fixture(scope="module")
def graded(tmp_path_factory, isolation):
    """Verdicts by student and graded cell, as our grader gives them, and the class directory."""
    place = tmp_path_factory.mktemp("kinds")
    text = HEADER + WINDOWS + STOP + "".join(f"# %% exercise {id}\n\n" for id in BARE)
    (place / f"{NAME}.py").write_text(text, "utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sources, "SOURCES", place)
        class_dir.init(place / "class")
    folder = (place / "class").resolve()
    release(folder, NAME)
    rewritten = (
        fix_the_loop.FIXED.replace("inputs", "x").replace("targets", "y").replace("loss", "l")
    )
    lied = f"{rewritten}\nfit.__source__ = {fix_the_loop.FIXED!r}"
    handed_in(folder, "ada", RIGHT, "Ada")
    handed_in(folder, "eve", RIGHT, "ada")  # another's name
    handed_in(folder, "blank", {}, "")
    handed_in(folder, "odd", {**{id: f"{id.replace('-', '_')} = object()" for id in RIGHT}}, "odd")
    handed_in(folder, "liar", {**RIGHT, "fix-the-loop": lied}, "liar")
    limits = Limits(cell_s=20.0, answer_s=5.0)
    outcomes = list(grading.grade(folder, NAME, limits=limits, trusted=isolation.trusted))
    assert all(outcome.graded for outcome in outcomes), outcomes
    noted = {outcome.student: outcome.notes for outcome in outcomes if outcome.notes}
    assert list(noted) == ["eve"] and all("right for the numbers" in one for one in noted["eve"])
    points = {}
    for path in (folder / "verdicts" / NAME).glob("*.json"):
        checks = json.loads(path.read_text("utf-8"))["checks"]
        points[path.stem] = {check["grade_id"]: check for check in checks}
    return folder, points


IDS = ("03a.windows", "03a.early-stopping", *BARE)


@pytest.mark.slow
def test_right_answers_of_every_kind_get_every_point(graded):
    _, points = graded
    for check in points["ada"].values():
        assert check["points"] == check["max_points"] > 0, check["message"]
    assert {check["exercise"] for check in points["ada"].values()} == set(IDS)


@pytest.mark.slow
def test_a_blank_notebook_is_called_blank_and_nonsense_earns_nothing(graded):
    _, points = graded
    for check in points["blank"].values():
        assert check["points"] == 0, check["message"]
        if check["exercise"] in bank.asks_for_value():
            assert check["status"] == "blank"
    for check in points["odd"].values():
        assert check["points"] == 0 and "✘" in check["message"], check["message"]


@pytest.mark.slow
def test_numbers_are_the_submissions_own_and_anothers_are_named(graded):
    _, points = graded
    check = of(points["eve"], "03a.windows")
    assert check["points"] < check["max_points"]
    assert "numbers of 'ada'" in " ".join(check["message"].split())
    assert of(points["eve"], "03a.what-next")["points"] == 1  # options are not numbers


@pytest.mark.slow
def test_how_much_of_a_loop_was_changed_is_read_from_the_notebook(graded):
    _, points = graded
    check = of(points["liar"], "03a.fix-the-loop")
    assert check["points"] == 3 and "lines changed" in check["message"]


@pytest.mark.slow
def test_the_release_shows_no_answer_no_rubric_and_no_stub_that_raises(graded):
    folder, _ = graded
    notebook = nbformat.read(folder / "release" / NAME / f"{NAME}.ipynb", as_version=4)
    text = "\n".join(cell.source for cell in notebook.cells)
    assert "BEGIN" not in text and "overfit" not in text
    assert "no setting will help" not in text and 'windows = {"batches": None' in text
    answer = next(c for c in notebook.cells if c.id == "what-next")
    assert answer.source.strip() == 'what_next = None  # a letter, e.g. "A"'
    hidden = next(c for c in notebook.cells if c.id == "early-stopping-hidden")
    assert hidden.metadata["jupyter"]["source_hidden"]


@pytest.mark.slow
def test_the_rubric_is_there_for_the_person_who_grades(graded):
    folder, _ = graded
    notebook = nbformat.read(folder / "autograded" / "ada" / NAME / f"{NAME}.ipynb", as_version=4)
    (question,) = [cell for cell in notebook.cells if cell.id == "what-next-reason-question"]
    assert "no setting will help" in question.source


@pytest.mark.slow
def test_stock_nbgrader_gives_the_same_points(graded, tmp_path):
    """Oracle: stock generate_assignment and autograde, each its own command."""
    from nbgrader.api import Gradebook

    ours, _ = graded
    folder = tmp_path / "stock"
    folder.mkdir()
    for name in ("nbgrader_config.py", f"source/{NAME}/{NAME}.ipynb"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes((ours / name).read_bytes())
    submitted = f"submitted/ada/{NAME}/{NAME}.ipynb"
    (folder / submitted).parent.mkdir(parents=True)
    (folder / submitted).write_bytes((ours / submitted).read_bytes())
    root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    scripts = os.path.dirname(sys.executable)
    environment = {
        **os.environ, "PATH": f"{scripts}{os.pathsep}{os.environ['PATH']}", "PYTHONPATH": root,
    }  # fmt: skip
    for command in ("generate_assignment", "autograde"):
        result = subprocess.run(
            [sys.executable, "-m", "nbgrader", command, NAME],
            cwd=folder, env=environment, capture_output=True, text=True, timeout=300,
        )  # fmt: skip
        assert result.returncode == 0, result.stderr
    with Gradebook(f"sqlite:///{folder}/gradebook.db") as gradebook:
        grades = gradebook.find_submission_notebook(NAME, NAME, "ada").grades
        stock = {grade.name: grade.auto_score for grade in grades if grade.auto_score is not None}
    assert sum(stock.values()) == sum(part.points for id in IDS for part in bank.load(id).parts)
    released = nbformat.read(folder / "release" / NAME / f"{NAME}.ipynb", as_version=4)
    assert "BEGIN" not in "\n".join(cell.source for cell in released.cells)
