"""The course's own notebooks, graded with and without the cells that no exercise needs.

`make thorough` does: running a whole notebook takes half a minute.
"""

import shutil

import nbformat
import pytest

from autograde import class_dir
from autograde.classroom import example
from autograde.classroom.assignment import read_assignment
from autograde.classroom.grading import isolation_for, job_for
from autograde.classroom.marking import mark
from autograde.classroom.release import release
from autograde.classroom.submissions import find_submissions
from autograde.sandbox.limits import Limits
from autograde.sources import source_paths
from tests.sampling import THOROUGH
from tests.short_class import hand_in

LIMITS = Limits(cell_s=60.0, answer_s=5.0)
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not THOROUGH, reason="whole notebooks: make thorough"),
]
WRONG = [who for who in example.expected() if who not in (example.SOLUTIONS, example.CUT_OFF)]


def agrees(folder, name, isolation):
    """Points and reasons of everybody who handed in, both ways; how many cells were left out."""
    about, locked = read_assignment(folder, name), isolation_for(folder, trusted=isolation.trusted)
    left_out = []
    for one in find_submissions(folder, name, None):
        text = one.path.read_text("utf-8")
        jobs = [
            job_for(one, about.to_json(), LIMITS, locked, 11, run_all=all) for all in (False, True)
        ]
        without, whole = (mark({**job, "text": text}) for job in jobs)
        assert without["graded"] and whole["graded"] and whole["not_run"] == 0
        assert without["checks"] == whole["checks"], one.student
        left_out.append(without["not_run"])
    return left_out


@pytest.mark.parametrize("name", list(source_paths()))
def test_a_notebooks_solutions_get_the_same_verdicts_both_ways(name, tmp_path, isolation):
    class_dir.init(tmp_path / "class", [name])
    notebook = nbformat.read(release(tmp_path / "class", name), as_version=4)
    example.answered(notebook, "ada", example.solutions(tmp_path / "class", name))
    hand_in(tmp_path / "class", "ada", name, notebook)
    assert min(agrees(tmp_path / "class", name, isolation)) >= 5


def test_what_eight_students_got_wrong_gets_the_same_verdicts_both_ways(tmp_path, isolation):
    folder = tmp_path / "class"
    class_dir.init(folder, [example.ASSIGNMENT])
    release(folder, example.ASSIGNMENT)
    for path in example.hand_in(folder):
        if path.parts[-3] not in WRONG:
            shutil.rmtree(path.parents[1])
    left_out = agrees(folder, example.ASSIGNMENT, isolation)
    assert len(left_out) == len(WRONG) and min(left_out) >= 0
