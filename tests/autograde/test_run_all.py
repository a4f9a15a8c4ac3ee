"""A student who runs a whole notebook with open exercises sees all else, down to the scorecard.

JupyterLab stops at the first cell that raises, so a cell that uses a student's own function stands
behind `if ready(function):`. It is looked up in the text: what an exercise defines, and what is
made with it, is used nowhere else.
"""

import ast

import nbformat
import pytest
from nbclient import NotebookClient
from nbgrader import utils

from autograde.run_through import CELL_S, _environment
from autograde.sources import NOTEBOOKS, source_paths
from tests.sampling import THOROUGH

NAMES = list(source_paths())
STUB = "NotImplementedError"


class Uses(ast.NodeVisitor):
    """Which open names a cell uses when it runs, and which it makes with them.

    Args:
        open_names: What stands open before the cell.
        closed: What stands there in any case; a cell adds what it makes itself.
    """

    def __init__(self, open_names: set[str], closed: set[str]) -> None:
        self.open, self.closed, self.used = set(open_names), set(closed), set()

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.ClassDef) -> None:
        """A definition uses nothing yet; a cell that calls it does."""
        self._make({node.name}, is_open=bool(_loaded(node) & self.open))

    visit_ClassDef = visit_FunctionDef

    def visit_Assign(self, node: ast.Assign) -> None:
        """The value is looked at before it has its name."""
        self.visit(node.value)
        for target in node.targets:
            self.visit(target)

    def visit_For(self, node: ast.For) -> None:
        """So is what a loop goes through."""
        for part in (node.iter, node.target, *node.body):
            self.visit(part)

    def visit_If(self, node: ast.If) -> None:
        """What is made behind `if ready(...)` is open, too, unless it stood there before."""
        if _waits(node.test):
            self._make(_stored(node) - self.closed, is_open=True)
            return
        self.generic_visit(node)

    def visit_Name(self, node: ast.Name) -> None:
        """A name is given or used."""
        if isinstance(node.ctx, ast.Store):
            self._make({node.id}, is_open=False)
        elif node.id in self.open:
            self.used.add(node.id)

    def visit_ListComp(self, node: ast.AST) -> None:
        """Its own variables hide those of the notebook, as a lambda's arguments do."""
        self.used |= _loaded(node) & self.open

    visit_SetComp = visit_DictComp = visit_GeneratorExp = visit_Lambda = visit_ListComp

    def _make(self, names: set[str], *, is_open: bool) -> None:
        self.open = self.open | names if is_open else self.open - names
        self.closed = self.closed - names if is_open else self.closed | names


def _waits(test: ast.expr) -> bool:
    calls = [node for node in ast.walk(test) if isinstance(node, ast.Call)]
    return any(isinstance(call.func, ast.Name) and call.func.id == "ready" for call in calls)


def _stored(node: ast.AST) -> set[str]:
    names = (name for name in ast.walk(node) if isinstance(name, ast.Name))
    return {name.id for name in names if isinstance(name.ctx, ast.Store)}


def _loaded(node: ast.AST) -> set[str]:
    """Names that a definition or a comprehension takes from the notebook."""
    names = {name.id for name in ast.walk(node) if isinstance(name, ast.Name)}
    return names - _stored(node) - {arg.arg for arg in ast.walk(node) if isinstance(arg, ast.arg)}


def used_while_open(notebook: nbformat.NotebookNode) -> dict[str, set[str]]:
    """Names that stay open without an answer, by the first line of the cell that uses them."""
    looked, found = Uses(set(), set()), {}
    for cell in notebook.cells:
        if cell.cell_type != "code" or utils.is_grade(cell):
            continue
        tree = ast.parse(cell.source)
        if utils.is_solution(cell):
            looked.open |= {one.name for one in tree.body if STUB in ast.unparse(one)}
            continue
        looked.used = set()
        looked.visit(tree)
        if looked.used:
            found[cell.source.partition("\n")[0]] = looked.used
    return found


def released(name: str) -> nbformat.NotebookNode:
    return nbformat.read(NOTEBOOKS / f"{name}.ipynb", as_version=4)


@pytest.mark.parametrize("name", NAMES)
def test_a_cell_waits_for_the_function_that_it_uses(name):
    assert used_while_open(released(name)) == {}


def test_a_cell_that_does_not_wait_is_found():
    cells = [
        "def f(x):\n    raise NotImplementedError()",
        "g = lambda x: f(x)",
        "def h():\n    f(1)",
        "if ready(f):\n    y = f(2)",
        "print(y)",
        "h()",
    ]
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(one) for one in cells])
    marks = {"grade": False, "grade_id": "f", "locked": False, "schema_version": 3}
    notebook.cells[0].metadata["nbgrader"] = {**marks, "solution": True, "task": False}
    assert used_while_open(notebook) == {
        "g = lambda x: f(x)": {"f"},
        "print(y)": {"y"},
        "h()": {"h"},
    }


@pytest.mark.slow
@pytest.mark.skipif(not THOROUGH, reason="as long as the notebooks themselves: make thorough")
@pytest.mark.parametrize("name", NAMES)
def test_a_released_notebook_runs_from_top_to_bottom(name, tmp_path):
    notebook = released(name)
    resources = {"metadata": {"path": str(tmp_path)}}
    options = {"timeout": CELL_S, "resources": resources, "extra_arguments": ["--log-level=40"]}
    NotebookClient(notebook, **options).execute(env=_environment())
    assert "scorecard(" in [cell for cell in notebook.cells if cell.cell_type == "code"][-1].source
