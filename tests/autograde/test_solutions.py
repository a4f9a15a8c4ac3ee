"""A notebook's own solutions are right whatever cases are drawn, not only in one run."""

import ast
import contextlib
import io

import pytest

from autograde import bank, check
from autograde.sources import check_calls, read_source, source_paths
from tests.sampling import THOROUGH

SEEDS = range(100, 112 if THOROUGH else 101)
SLOW = ("03a.training-script",)
"""Takes seconds a seed; `test_bank.py` tries it."""


def solutions(name):
    """The functions and classes that a notebook's solutions define, by exercise."""
    cells = [cell for cell in read_source(source_paths()[name]).cells if cell.cell_type == "code"]
    names = {}
    for cell in cells:
        for line in ast.parse(cell.source.replace("%", "#", cell.source.startswith("%"))).body:
            if isinstance(line, ast.Import | ast.ImportFrom):
                exec(compile(ast.Module([line], []), name, "exec"), names)
    calls = {call.function: call.exercise_id for cell in cells for call in check_calls(cell.source)}
    for cell in cells:
        about = cell.metadata.get("nbgrader", {})
        if about.get("solution") and not about.get("grade") and _defines(cell.source, calls):
            with contextlib.redirect_stdout(io.StringIO()):
                exec(compile(cell.source, name, "exec"), names)
    wanted = {id: names.get(name) for name, id in calls.items()}
    return {id: found for id, found in wanted.items() if id in bank.asks_for_code()}


def _defines(source, names):
    return any(getattr(line, "name", None) in names for line in ast.parse(source).body)


@pytest.mark.slow
@pytest.mark.parametrize("name", list(source_paths()))
def test_a_notebooks_own_solutions_pass_on_many_seeds(name):
    found = solutions(name)
    assert all(found.values()), found
    for id, solution in found.items():
        for seed in SEEDS if id not in SLOW else ():
            result = check(id, solution, seed=seed, parts="all")
            assert result.passed, f"seed {seed}: {result.message}"
