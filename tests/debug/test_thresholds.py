"""No probe, relation or rung compares with a bare number: each has a name, and a why below it."""

import ast
import inspect
import math
from pathlib import Path

import pytest
import torch
from scipy.stats import norm

from course.debug.probes import activations, answers, numbers, thresholds
from course.debug.probes.session import STEPS
from course.debug.relations import data
from course.debug.rungs import small
from course.debug.watch import watch

DEBUG = Path(__file__).resolve().parents[2] / "course" / "debug"
FILES = [
    *(path for room in ("probes", "relations", "rungs") for path in (DEBUG / room).glob("*.py")),
    DEBUG / "watch.py",
]
COUNTED = {0, 1, 2, 3, 4}
"""Numbers that say themselves: none, one, a pair, axes of a shape. A minus before one is no part of
the number in Python's grammar."""


def bare_numbers(source: str) -> list[str]:
    """Comparisons with a number outside `COUNTED` anywhere on either side, and their lines."""
    return [
        f"line {node.lineno}: {ast.unparse(node)}"
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Compare)
        and any(_is_number(part) and part.value not in COUNTED for part in ast.walk(node))
    ]


def unexplained(source: str) -> list[str]:
    """Module-level numbers in capitals that a comparison uses, with no docstring right below."""
    tree = ast.parse(source)
    compared = {
        part.id
        for node in ast.walk(tree)
        if isinstance(node, ast.Compare)
        for part in ast.walk(node)
        if isinstance(part, ast.Name) and part.id.isupper()
    }
    found = []
    for statement, below in zip(tree.body, [*tree.body[1:], ast.Pass()], strict=True):
        if isinstance(statement, ast.Assign) and any(map(_is_number, ast.walk(statement.value))):
            names = {
                n.id for t in statement.targets for n in ast.walk(t) if isinstance(n, ast.Name)
            }
            found += [] if _is_text(below) else sorted(names & compared)
    return found


def _is_number(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and type(node.value) in (int, float)


def _is_text(node: ast.AST) -> bool:
    return (
        isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    )


def test_the_files_are_found():
    names = {path.name for path in FILES}
    assert {"stepping.py", "scoring.py", "small.py", "watch.py", "thresholds.py"} <= names


@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_a_comparison_holds_no_bare_number(path):
    assert not bare_numbers(path.read_text("utf-8")), "name it, and say below what it separates"


@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_a_named_threshold_says_why(path):
    assert not unexplained(path.read_text("utf-8")), "a docstring below it says unit and why"


@pytest.mark.parametrize(
    ("source", "number"),
    [
        ("if wrong >= 0.5 * seen: pass", 1),
        ("assert 0.8 < x < 1.25", 1),
        ("y = [a for a in b if len(a) < 8 and a[0] > 1e-6]", 2),
        ("if len(x) < 4 or x.dim() != 2 or x == -1: pass", 0),
        ("if a is True or b < MOST * seen: pass\nz = 0.8 * seen", 0),
    ],
)
def test_a_bare_number_is_seen_wherever_it_stands(source, number):
    assert len(bare_numbers(source)) == number


@pytest.mark.parametrize(
    ("source", "names"),
    [
        ("A = 0.8\nif x > A: pass", ["A"]),
        ('A = 0.8\n"""Why."""\nif x > A: pass', []),
        ('A, B = 8, 9\n"""Why both."""\nif A < x < B: pass', []),
        ('A = 8\nB = 9\n"""Of B."""\nif A < x < B: pass', ["A"]),
        ('A, B = 8, 9\nC = "text"\n"""Of the text."""\nassert x < B', ["B"]),
        ("A = 0.8\ny = A * x", []),
        ("if x < B: pass\nB = 9", ["B"]),
    ],
)
def test_a_threshold_without_a_why_is_seen(source, names):
    assert unexplained(source) == names


def test_what_thresholds_say_of_steps_is_so():
    assert thresholds.LEAST_STEPS * 3 == thresholds.ENOUGH_STEPS * 2 == STEPS
    first = inspect.signature(watch.__init__).parameters["first"].default
    assert first == thresholds.LEAST_STEPS
    assert STEPS - math.ceil(thresholds.NEARLY_ALL * STEPS) == 2


def test_what_thresholds_say_of_chance_is_so():
    assert answers.ERRORS * math.sqrt(0.25 / answers.LEAST_AGAIN) < 0.355
    assert round(1 / norm.sf(answers.ERRORS), -4) == 30_000
    assert round((1 - 1 / 20) ** numbers.LEAST_ROWS, 2) == 0.04
    assert round(1 - 1 / small.MOST_ROWS, 2) == 0.97 < small.RIGHT


def test_what_thresholds_say_of_rounding_is_so():
    assert float(torch.sigmoid(torch.tensor(4.6))) > 1 - activations.EDGE
    pixels = torch.arange(data.BYTE, dtype=torch.float32)
    back = (pixels / 255).double() * 255
    assert float((back - pixels.double()).abs().max()) < 2e-5 < data.WHOLE
