"""The notebooks: in step with their sources, no solutions left, and trained as promised."""

import ast
import json
import re

import jupytext
import nbformat
import pytest
from nbgrader import utils

from autograde import bank, sources
from autograde.authoring import student_notebook
from autograde.classroom.clean import clean_output
from autograde.kit.chapters import chapter_named
from autograde.prose_lint import lint
from autograde.sandbox.outputs import plain_outputs
from autograde.sources import (
    NOTEBOOKS,
    SourceError,
    expanded,
    read_source,
    source_paths,
)
from tests.sampling import sample
from tests.worked_through import worked_through

NAMES = list(source_paths())
ON_THE_CPU = {"01a-tensors-and-autograd", "03h-silent-bugs", "05-capstone"}
"""1a names devices one by one; the scripts to fix in 3h and the project of 5 are the CPU's."""
SET_UP = 3
"""Code cells before the first section, at the most."""
FEWEST, MOST = 40, 80
"""Cells of a chapter's source, an exercise counted once: what a student works through in a sitting
or two, with one idea to a cell."""


@pytest.fixture(params=NAMES)
def name(request):
    return request.param


def committed(name: str) -> nbformat.NotebookNode:
    return nbformat.read(NOTEBOOKS / f"{name}.ipynb", as_version=4)


def test_the_committed_notebook_is_made_from_its_source(name):
    text = (NOTEBOOKS / f"{name}.ipynb").read_text("utf-8")
    assert text == student_notebook(name), "run make notebooks"


def regions(name: str, kind: str) -> list[str]:
    text = expanded(source_paths()[name])
    return re.findall(rf"### BEGIN {kind}\n(.*?)### END {kind}", text, flags=re.DOTALL)


def test_no_line_of_a_solution_and_no_hidden_check_is_left(name):
    released = "\n".join(cell.source for cell in committed(name).cells)
    assert regions(name, "SOLUTION") and regions(name, "HIDDEN TESTS")
    outside = expanded(source_paths()[name])
    for kind in ("SOLUTION", "HIDDEN TESTS"):
        for region in regions(name, kind):
            outside = outside.replace(region, "")
    for region in regions(name, "SOLUTION") + regions(name, "HIDDEN TESTS"):
        for line in filter(None, (line.strip("# ").strip() for line in region.splitlines())):
            assert line not in released or line in outside, line
    assert 'hidden"' not in released.replace("'", '"') and "BEGIN" not in released


def test_the_released_notebook_has_no_outputs_and_no_run_numbers(name):
    for cell in committed(name).cells:
        assert cell.get("outputs", []) == [] and cell.get("execution_count") is None


def test_metadata_and_cell_ids_survive_the_round_trip(name):
    notebook = read_source(source_paths()[name])
    again = jupytext.reads(jupytext.writes(notebook, fmt="py:percent"), fmt="py:percent")
    graded = {
        cell.metadata.nbgrader["grade_id"]: dict(cell.metadata.nbgrader)
        for cell in notebook.cells
        if "nbgrader" in cell.metadata
    }
    assert graded == {
        cell.metadata.nbgrader["grade_id"]: dict(cell.metadata.nbgrader)
        for cell in again.cells
        if "nbgrader" in cell.metadata
    }
    released = committed(name)
    assert [cell.id for cell in notebook.cells] == [cell.id for cell in released.cells]
    for cell in released.cells:
        if "nbgrader" in cell.metadata:
            assert cell.id == cell.metadata.nbgrader["grade_id"]


def test_cells_are_short_and_no_code_starts_with_the_cell_marker(name):
    for cell in read_source(source_paths()[name]).cells:
        if cell.cell_type == "code" and not utils.is_solution(cell):
            lines = [line for line in cell.source.splitlines() if line.strip()]
            assert len(lines) <= 10, cell.source
            assert max(map(len, lines)) <= 90, cell.source
        assert not any(line.startswith("# %%") for line in cell.source.splitlines())


def test_a_chapter_has_forty_to_eighty_cells(name):
    heads = re.findall(r"^# %%", source_paths()[name].read_text("utf-8"), flags=re.M)
    assert FEWEST <= len(heads) <= MOST


@pytest.mark.parametrize("name", sorted(set(source_paths()) - ON_THE_CPU))
def test_a_notebook_chooses_its_device_once_and_at_the_top(name):
    code = [c.source for c in read_source(source_paths()[name]).cells if c.cell_type == "code"]
    chosen = [place for place, text in enumerate(code) if re.search(r"^device = ", text, re.M)]
    assert len(chosen) == 1 and chosen[0] <= SET_UP, "after the imports: device = choose_device()"
    assert not any(re.search(r"""device=["']|autocast\(["']""", text) for text in code)


def test_guesses_are_answered_symbols_said_and_prose_is_short(name):
    assert lint(name, read_source(source_paths()[name])) == []


END = "## What to keep"
CODE = re.compile(r"\b[NFBTXSCK]\d{2,3}\b")


def test_a_notebook_says_in_its_first_cell_what_a_code_such_as_n20_is(name):
    notebook = read_source(source_paths()[name])
    texts = [cell.source for cell in notebook.cells if cell.cell_type == "markdown"]
    if CODE.search("\n".join(texts)):
        assert re.search(rf"`course ledger {CODE.pattern}`", texts[0])


def names_set(source: str) -> set[str]:
    """Names that a cell sets outside functions and classes."""
    found: set[str] = set()
    for node in ast.parse(source).body:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            found.add(node.name)
            continue
        inner = {
            name.id
            for part in ast.walk(node)
            if isinstance(part, ast.comprehension)
            for name in ast.walk(part.target)
            if isinstance(name, ast.Name)
        }
        stored = (part for part in ast.walk(node) if isinstance(part, ast.Name))
        found |= {part.id for part in stored if isinstance(part.ctx, ast.Store)} - inner
    return found


def test_no_other_cell_sets_the_name_of_an_answer(name):
    """Any cell may be run again, so an answer would be lost."""
    code = [c for c in committed(name).cells if c.cell_type == "code"]
    ids = {call.exercise_id for cell in code for call in sources.check_calls(cell.source)}
    answers = {bank.load(id).name for id in ids}
    for cell in code:
        if not utils.is_solution(cell):
            assert not names_set(cell.source) & answers, cell.source


QUESTION = "q"
"""Each question of numbers sets it in the cell above its answer."""
CHANGED_ON_PURPOSE = {"05-capstone": {"setup"}}
"""The project's set-up, then the same one trained."""


def names_read(source: str) -> set[str]:
    """Names that a cell reads outside functions and does not set itself."""
    body = [n for n in ast.parse(source).body if not isinstance(n, (ast.FunctionDef, ast.ClassDef))]
    inside = [node for part in body for node in ast.walk(part)]
    names = [node for node in inside if isinstance(node, ast.Name)]
    made_here = {name.id for name in names if isinstance(name.ctx, ast.Store)}
    arguments = {node.arg for node in inside if isinstance(node, ast.arg)}
    read = {name.id for name in names if isinstance(name.ctx, ast.Load)}
    return read - made_here - arguments - names_set(source)


def test_no_later_section_sets_a_name_that_a_cell_reads(name):
    """Any cell may be run again after the last one, so it would read another section's value."""
    cells = [c.source for c in read_source(source_paths()[name]).cells if c.cell_type == "code"]
    sets = [names_set(cell) for cell in cells]
    for place, cell in enumerate(cells):
        read = names_read(cell) - {QUESTION} - CHANGED_ON_PURPOSE.get(name, set())
        set_before = read & set().union(*sets[:place])
        set_again = set_before & set().union(*sets[place + 1 :])
        assert not set_again, f"{sorted(set_again)} set again below:\n{cell}"


SPOILED = {
    "guess('01a.second') is never answered": ('reveal("01a.second"', "print("),
    "guess('01a.second') is asked 0 times": ('guess("01a.second", ...)', "2"),
    "without guess(...) below it": (END, "Why?\n\n**Guess** this."),
    "Q is used before it is explained": (END, "Divided by Q."),
    "computes and shows nothing": (END, "## 1a.13 Empty"),
    "sections are numbered [1, 2, 4": ("## 1a.3 ", "## 1a.4 "),
    "of this notebook is numbered 1a.1": ("## 1a.3 ", "## 3a.3 "),
    "words in a cell": (END, 91 * "word "),
}


@pytest.mark.parametrize("says", SPOILED)
def test_prose_that_breaks_a_rule_is_named(says):
    notebook = read_source(source_paths()["01a-tensors-and-autograd"])
    old, new = SPOILED[says]
    for cell in notebook.cells:
        cell.source = cell.source.replace(old, new)
    found = lint("01a-tensors-and-autograd", notebook)
    assert any(says in fault for fault in found), found


def test_every_exercise_of_a_notebook_is_checked_shown_and_hidden(name):
    calls = [
        call
        for cell in read_source(source_paths()[name]).cells
        if cell.cell_type == "code" and utils.is_grade(cell)
        for call in sources.check_calls(cell.source)
    ]
    for id in {call.exercise_id for call in calls}:
        asked = {call.parts for call in calls if call.exercise_id == id}
        has_hidden = any(part.hidden for part in bank.load(id).parts)
        assert asked == ({"shown", "hidden"} if has_hidden else {"shown"}), id


@pytest.mark.slow
@pytest.mark.parametrize("name", sample(NAMES, 8))  # all: make notebooks
def test_with_its_solutions_a_notebook_runs_through_without_a_warning(name, shared):
    run = worked_through(name, shared)
    assert run.faults == ()
    cells = [cell for cell in run.notebook.cells if cell.cell_type == "code"]
    said: list[str] = []
    for output in plain_outputs([output for cell in cells for output in cell.outputs]):
        clean_output(output, said.append)
    assert said == [], "an honest student would be listed as cleaned"
    assert chapter_named(name).running_s <= 60


@pytest.mark.slow
def test_the_solutions_train_the_digits_above_95_percent(shared):
    notebook = worked_through("03a-training-recipe", shared).notebook
    outputs = json.dumps([cell.get("outputs", []) for cell in notebook.cells])
    assert float(re.search(r"\bvalidation accuracy (\d+\.\d)%", outputs)[1]) > 95


HEADER = "# ---\n# jupyter:\n#   kernelspec:\n#     name: python3\n#     display_name: x\n# ---\n\n"


def graded_cell(source: str, points: int = 3) -> str:
    metadata = {
        "grade": True, "grade_id": "a", "locked": True, "points": points,
        "schema_version": 3, "solution": False, "task": False,
    }  # fmt: skip
    return f"# %% nbgrader={json.dumps(metadata)}\n{source}\n\n"


@pytest.mark.parametrize(
    "cells,message",
    [
        (graded_cell("assert 1 + 1 == 2"), "may hold only check"),
        (graded_cell('check("03a.clip", clip_by_global_norm)', 5), "the bank gives 3"),
        (graded_cell('check("03a.clip", f)') * 2, "used twice"),
        ("# %% exercise 03a.clop\n", "no such exercise"),
        ("# %% exercise 03a.clip\nclip = 1\n", "defines no `def clip_by_global_norm`"),
        ("# %% exercise 03a.clip\ndef clip_by_global_norm(a, b):\n    pass\n", "no ### BEGIN SOL"),
        ("# %% exercise 03a.windows\n", "no ### BEGIN SOLUTION"),
        ('# %% exercise 03a.order\norder = "ABC"\n', "leave out the code"),
    ],
)
def test_a_source_that_breaks_a_rule_is_refused_by_name(tmp_path, cells, message):
    path = tmp_path / "bad.py"
    path.write_text(HEADER + cells)
    with pytest.raises(SourceError, match=message):
        read_source(path)
