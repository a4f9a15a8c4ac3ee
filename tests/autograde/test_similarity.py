"""Near-identical code: copies in every disguise are found, independent right answers are not."""

import ast
import inspect
import textwrap
import time
from functools import lru_cache
from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autograde import bank
from autograde.classroom.similarity import (
    MIN_SHARED,
    THRESHOLD,
    fingerprints,
    matching_lines,
    near_identical,
    normalised,
)
from autograde.classroom.student_code import side_by_side

CHAPTERS = ("01a", "03a", "03b")
"""Their banks hold answers that were written independently; others change a line of one text."""
EXERCISES = tuple(
    id
    for id in bank.asks_for_code()
    if bank.load(id).kind == "function" and id.startswith(CHAPTERS)
)


def typed(function) -> bool:
    """A function written out in the bank, neither wrapped nor one text with a line changed."""
    made = hasattr(function, "__wrapped__") or hasattr(function, "__source__")
    return inspect.isfunction(function) and not made


@lru_cache
def sources(exercise: str) -> dict[str, str]:
    """The bank's right and wrong answers to an exercise, as students would have typed them."""
    about = bank.load(exercise)
    functions = [*about.right, *(wrong.function for wrong in about.wrong)]
    return {
        function.__name__: textwrap.dedent(inspect.getsource(function))
        for function in filter(typed, functions)
    }


def rights(exercise: str) -> list[str]:
    written = filter(typed, bank.load(exercise).right)
    return [sources(exercise)[function.__name__] for function in written]


class Renamed(ast.NodeTransformer):
    """Gives every name that the code itself makes another one."""

    def __init__(self, tree: ast.Module, suffix: str) -> None:
        stored = {
            n.id for n in ast.walk(tree) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)
        }
        self.names = stored | {n.arg for n in ast.walk(tree) if isinstance(n, ast.arg)}
        self.suffix = suffix

    def visit_Lambda(self, node):
        for argument in node.args.args:
            argument.arg = f"my_{argument.arg}{self.suffix}"
        node.body = self.visit(node.body)
        return node

    def visit_Name(self, node):
        node.id = f"my_{node.id}{self.suffix}" if node.id in self.names else node.id
        return node

    def visit_arg(self, node):
        node.arg = f"my_{node.arg}{self.suffix}"
        node.annotation = ast.Subscript(ast.Name("list"), ast.Constant("Whatever"))
        return node


def disguised(source: str, suffix: str = "") -> str:
    """Renamed, annotated, laid out anew, with comments and a docstring."""
    tree = ast.parse(source)
    tree = Renamed(tree, suffix).visit(tree)
    tree.body[0].body.insert(0, ast.Expr(ast.Constant("All my own work.")))
    text = ast.unparse(ast.fix_missing_locations(tree))
    return "\n\n".join(f"{line}  # line {i}" for i, line in enumerate(text.splitlines()))


@pytest.mark.parametrize("exercise", EXERCISES)
def test_a_disguised_copy_has_the_same_fingerprints(exercise):
    for source in sources(exercise).values():
        assert disguised(source) != source
        assert fingerprints(disguised(source)) == fingerprints(source)


@settings(max_examples=25, deadline=None)
@given(st.sampled_from(EXERCISES), st.text(alphabet="abcxyz_0189", max_size=8))
def test_no_choice_of_names_changes_the_fingerprints(exercise, suffix):
    for source in rights(exercise):
        assert fingerprints(disguised(source, suffix)) == fingerprints(source)


@pytest.mark.parametrize("exercise", EXERCISES)
def test_independently_written_right_answers_share_little(exercise):
    """Not even a single exercise, seen alone, comes near the threshold."""
    for first, second in combinations(rights(exercise), 2):
        pairs = near_identical({"a": {"x": first}, "b": {"x": second}}, threshold=0.0, min_shared=1)
        assert all(pair.score < 0.5 * THRESHOLD for pair in pairs)


def test_a_class_of_the_banks_answers_raises_no_alarm_and_a_copy_among_them_does():
    """Nobody shares an answer; then zoe hands in, renamed, what ann did."""
    many = [exercise for exercise in EXERCISES if len(sources(exercise)) >= 9]
    most = min(len(sources(exercise)) for exercise in many)
    students = {
        f"s{i}": {exercise: list(sources(exercise).values())[i] for exercise in many}
        for i in range(most)
    }
    assert len(many) >= 9 and near_identical(students) == []
    ann = {exercise: rights(exercise)[-1] for exercise in many}
    zoe = {exercise: disguised(source) for exercise, source in ann.items()}
    others = {k: v for k, v in students.items() if not set(v.values()) & set(ann.values())}
    (pair,) = near_identical({**others, "ann": ann, "zoe": zoe})
    assert (pair.first, pair.second, pair.score) == ("ann", "zoe", 1.0)


def test_two_copied_exercises_among_others_that_are_not_make_a_pair():
    first, second, third = "03a.accumulate", "03a.clip", "03a.evaluate"
    ann = {first: rights(first)[-1], second: rights(second)[-1], third: rights(third)[-1]}
    zoe = {**{k: disguised(v) for k, v in ann.items()}, third: rights(third)[-2] * 3}
    (pair,) = near_identical({"ann": ann, "zoe": zoe})
    assert pair.score < THRESHOLD and pair.in_alike_cells >= MIN_SHARED
    assert pair.cells[first] == pair.cells[second] == 1.0 and pair.cells[third] < 0.9


MANY = EXERCISES[:4]


@pytest.mark.parametrize("how", ["in a cell of its own", "in a file", "under other names", "among"])
def test_a_copy_in_another_place_makes_a_pair_and_is_shown_there(how):
    ann = {exercise: rights(exercise)[-1] for exercise in MANY}
    copies = {exercise: disguised(source) for exercise, source in ann.items()}
    joined = "\n\0\n".join(copies.values())
    others = "\n".join(rights(exercise)[-1] for exercise in EXERCISES[4:])
    called = {exercise: "# see above" for exercise in MANY}
    zoe = {
        "in a cell of its own": {**called, "further cells": joined},
        "in a file": {**called, "“mine.py”": joined},
        "under other names": dict(zip((*MANY[1:], MANY[0]), copies.values(), strict=True)),
        "among": {**called, "further cells": f"{joined}\n{others}"},
    }[how]
    (pair,) = near_identical({"ann": ann, "zoe": zoe})
    assert {cell for cell, _ in pair.moved} == set(MANY) and pair.in_alike_cells >= MIN_SHARED
    assert how == "among" or pair.score > 0.9
    shown = side_by_side(pair, {"ann": ann, "zoe": zoe})
    assert {cells.cell for cells in shown} >= {
        f"{cell} of ann and {other} of zoe" for cell, other in pair.moved
    }
    assert all(any(alike for _, alike in cells.second) for cells in shown)


def test_independent_answers_in_other_places_are_no_pair():
    ann = {exercise: rights(exercise)[0] for exercise in EXERCISES}
    zoe = {"further cells": "\n".join(rights(exercise)[-1] for exercise in EXERCISES)}
    assert near_identical({"ann": ann, "zoe": zoe}) == []


def test_one_short_exercise_alike_is_no_pair():
    one = EXERCISES[0]
    short = rights(one)[0]
    assert near_identical({"a": {one: short}, "b": {one: short}}) == []


def test_what_the_notebook_gave_does_not_count():
    given_code = "\n".join(rights(exercise)[-1] for exercise in EXERCISES)
    both = {"a": {"x": given_code}, "b": {"x": given_code}}
    assert len(near_identical(both)) == 1
    assert near_identical(both, [given_code]) == []


def test_what_much_of_the_class_wrote_does_not_count():
    code = {exercise: rights(exercise)[-1] for exercise in EXERCISES}
    five = {f"s{i}": code for i in range(5)}
    assert len(near_identical(five)) == 10
    assert near_identical({**five, "s5": code}) == []


def test_only_names_the_student_chose_are_forgotten():
    def words(source):
        return [token.text for token in normalised(source)]

    assert words("total = loss.item()") == ["name", "=", "loss", ".", "item"]
    assert words("x.backward()") != words("x.detach()")
    assert words("a = max(b)") != words("a = min(b)")
    assert words("x = 0.5  # half") == words("y  =  17") == ["name", "=", "0"]
    assert words("def f(x: list[int] = 1) -> None:\n  'Doc.'\n  return x") == [
        *("def", "name", "name", "=", "0", "return", "name")
    ]
    assert words("%time\n!ls\nx = f'{a} b'") == ["name", "=", "''"]


def test_matching_lines_are_found_through_a_disguise_and_only_they():
    first = rights(EXERCISES[0])[-1]
    copy = f"import os\n\n{disguised(first)}\n"
    in_first, in_copy = matching_lines(first, copy)
    code = {i for i, line in enumerate(first.splitlines(), 1) if line.strip()}
    assert in_first == code and 1 not in in_copy and len(in_copy) >= len(in_first)
    assert matching_lines(first, "x = 1\nprint(x)\n") == (set(), set())


@pytest.mark.parametrize(
    "source",
    ["", "def f(:\n", "(" * 5000, "x = " + "-" * 50_000 + "1", "\0", "'", "if 1:\n x\n\ty", "é = 1",
     "x = " + "[" * 150 + "]" * 150, "a." * 20_000 + "b", "\ud800"],
)  # fmt: skip
def test_no_source_is_too_odd(source):
    assert isinstance(fingerprints(source), set)
    assert matching_lines(source, source) is not None


@pytest.mark.slow
def test_a_class_of_five_hundred_takes_seconds():
    """Everybody has a variant of their own of some answers; two copied."""
    students = {}
    for i in range(500):
        body = "\n".join(
            f"    x = torch.op{(i * 7 + k * k) % 9973}(x, x + {k}).fun{i % 89}()" for k in range(40)
        )
        students[f"s{i:04}"] = {"one": f"def f(x):\n{body}\n    return x"}
    students["thief"] = {"one": disguised(students["s0250"]["one"])}
    started = time.monotonic()
    pairs = near_identical(students)
    assert [(pair.first, pair.second) for pair in pairs] == [("s0250", "thief")]
    assert time.monotonic() - started < 30
