"""Do the checks tell the truth? Over the whole bank, by exercise:

    wrong      wrong answers, and how many of them some seed accepts
    refused    right answers that some seed refuses
    misnamed   wrong answers that some seed gives another misconception's name
    unnamed    wrong answers with a message that some seed does not name
    mutants    one small change of a right answer: an operator, a constant, the order of two
               statements, a statement or a keyword dropped, a return moved into its loop
    survive    mutants that every seed accepts, apart from those that `equivalent.py` explains

`python -m tests.bench.checks [--seeds 20] [--mutant-seeds 3] [ID ...]` writes
`build/bench/checks.json` and the table in `docs/checks.md`.
"""

from __future__ import annotations

import argparse
import ast
import copy
import inspect
import json
import signal
import sys
import textwrap
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import FunctionType
from typing import Any

import torch

from autograde import bank
from autograde.by_hand import reached_by
from autograde.exercise import Exercise
from autograde.kinds.fix import variant
from autograde.quiet import quiet
from autograde.referee import answer_of, difference_in
from tests.autograde.remembering import forget, put_to, remembering
from tests.bench.equivalent import is_equivalent

FOLDER = Path("build/bench")
PATIENCE_S = 3
"""After which a mutant counts as killed: a loop that never ends."""


@dataclass
class Row:
    """What was counted of one exercise."""

    id: str
    lines: int
    """Of its module."""
    wrong: int = 0
    accepted: list[str] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    misnamed: list[str] = field(default_factory=list)
    unnamed: list[str] = field(default_factory=list)
    mutants: int = 0
    equivalent: int = 0
    survive: list[str] = field(default_factory=list)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("ids", nargs="*", help="exercises; none: all that ask for code")
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--mutant-seeds", type=int, default=3)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    rows = []
    for id in arguments.ids or bank.asks_for_code():
        rows.append(measure(bank.load(id), arguments.seeds, arguments.mutant_seeds))
        print(summary(rows[-1]), flush=True)
    if not arguments.ids:  # a part of the bank makes no table
        FOLDER.mkdir(parents=True, exist_ok=True)
        found = {"seeds": arguments.seeds, "rows": [asdict(row) for row in rows]}
        (FOLDER / "checks.json").write_text(json.dumps(found, indent=1))
        PAGE.write_text(page(rows, arguments.seeds), "utf-8")
    return int(any(row.accepted or row.refused or row.misnamed or row.survive for row in rows))


PAGE = Path("docs/checks.md")


def page(rows: list[Row], seeds: int) -> str:
    """The table for people, by exercise."""
    heads = ("exercise", "wrong answers", "accepted", "right ones refused", "misnamed", "mutants",
             "of them equivalent", "surviving")  # fmt: skip
    lines = [
        "# Do the checks tell the truth?",
        "",
        f"Made by `make bench TARGET=checks`, on {seeds} seeds. Every known wrong and right answer "
        "is put to its check, and every mutant of a right one: one operator, constant, statement "
        "or keyword changed (– where the answer is a class or a given loop: none are made). Which "
        "mutants are equivalent, and why, is listed in `tests/bench/equivalent.py`. *Misnamed* is "
        "a mistake that was given another's name.",
        "",
        f"| {' | '.join(heads)} |",
        f"|{' --- |' * len(heads)}",
    ]
    for row in rows:
        counts = (row.wrong, *map(len, (row.accepted, row.refused, row.misnamed)))
        counts += (row.mutants, row.equivalent, len(row.survive)) if row.mutants else ("–",) * 3
        lines.append(f"| `{row.id}` | {' | '.join(map(str, counts))} |")
    return "\n".join(lines) + "\n"


def measure(exercise: Exercise, seeds: int, mutant_seeds: int) -> Row:
    """Put the whole bank of an exercise, and mutants of its right answers, to its check."""
    module = sys.modules[exercise.run.__module__]
    row = Row(exercise.id, len(inspect.getsource(module).splitlines()), len(exercise.wrong))
    known = {wrong.name for wrong in exercise.wrong if wrong.message}
    remembered = remembering(exercise)
    for seed in range(seeds):
        forget()  # cases of one seed at a time take room enough
        for function in exercise.right:
            if not put_to(remembered, function, seed).passed:
                _note(row.refused, _name(function), seed)
        for wrong in exercise.wrong:
            verdict = put_to(remembered, wrong.function, seed)
            if verdict.passed:
                _note(row.accepted, _name(wrong.function), seed)
            elif verdict.misconception not in ("", wrong.name):
                _note(row.misnamed, f"{wrong.name} as {verdict.misconception}", seed)
            elif not verdict.misconception and wrong.name in known:
                _note(row.unnamed, _name(wrong.function), seed)
    for part in exercise.parts:  # imports of torch take longer than a mutant may
        answer_of(exercise, exercise.reference, exercise.cases(part, 0)[0])
    for right in filter(_has_source, exercise.right):
        assert survives(remembered, right, 1), right
        for what, mutant in mutants_of(right):
            row.mutants += 1
            if survives(remembered, mutant, mutant_seeds):
                text = f"{_name(right)}: {what}"
                same = is_equivalent(exercise.id, text)
                row.equivalent += same
                row.survive += [text] * (not same)
    return row


def _note(found: list[str], name: str, seed: int) -> None:
    if not any(text.startswith(f"{name}, ") for text in found):
        found.append(f"{name}, seed {seed}")


def _name(function: Callable[..., Any]) -> str:
    return getattr(function, "__name__", str(function))


def _has_source(right: Any) -> bool:
    """Whether its text can be changed: a script's is kept, others stand in a file."""
    if hasattr(right, "__source__"):
        return True
    code = getattr(inspect.unwrap(right), "__code__", None)
    return isinstance(right, type) or (code is not None and Path(code.co_filename).exists())


def survives(exercise: Exercise, function: Callable[..., Any], seeds: int) -> bool:
    """Whether every case of every seed accepts a function."""
    for seed in range(seeds):
        for part in exercise.parts:
            for case in exercise.cases(part, seed):
                answer = _in_time(exercise, function, case)
                if not isinstance(answer, dict) or difference_in(exercise, part, case, answer):
                    return False
    return True


def _in_time(exercise: Exercise, function: Callable[..., Any], case: Any) -> Any:
    def stop(*_: object) -> None:
        raise TimeoutError

    signal.signal(signal.SIGALRM, stop)
    signal.alarm(PATIENCE_S)
    try:
        with quiet():
            return answer_of(exercise, function, case)
    finally:
        signal.alarm(0)


def mutants_of(right: Callable[..., Any]) -> Iterator[tuple[str, Callable[..., Any]]]:
    """Every mutant of a right answer: of a script's text, a class, or a function and those that it
    calls in its module.
    """
    if hasattr(right, "__source__"):
        yield from _mutants_of_script(right)
    elif isinstance(right, type):
        yield from _mutants_of_class(right)
    else:
        yield from _mutants_of_function(inspect.unwrap(right))


def _mutants_of_script(right: Any) -> Iterator[tuple[str, Callable[..., Any]]]:
    for what, mutated in mutated_trees(ast.parse(right.__source__)):
        with suppress(SyntaxError):
            yield what, variant(ast.unparse(mutated), right.__code__.co_filename)


def _mutants_of_class(right: type) -> Iterator[tuple[str, type]]:
    module = sys.modules[right.__module__]
    for what, mutated in mutated_trees(ast.parse(textwrap.dedent(inspect.getsource(right)))):
        scope = dict(vars(module))
        with suppress(Exception):  # one that cannot be defined is nobody's answer
            exec(compile(mutated, module.__file__, "exec"), scope)
            yield what, scope[right.__name__]


def _mutants_of_function(function: FunctionType) -> Iterator[tuple[str, Callable[..., Any]]]:
    module = sys.modules[function.__module__]
    ours = [f for f in reached_by(function) if f.__module__ == function.__module__]
    for target in sorted(ours, key=lambda f: f.__code__.co_firstlineno):
        tree = ast.parse(textwrap.dedent(inspect.getsource(target)))
        for what, mutated in mutated_trees(tree):
            scope = dict(vars(module))
            for other in ours:  # so that they find the mutant, and not the original
                scope[other.__name__] = _rebound(other, scope)
            try:
                exec(compile(mutated, module.__file__, "exec"), scope)
            except SyntaxError:
                continue
            inside = "" if target is function else f"{target.__name__}: "
            yield inside + what, scope[function.__name__]


def _rebound(function: FunctionType, scope: dict[str, Any]) -> FunctionType:
    made = FunctionType(
        function.__code__, scope, function.__name__, function.__defaults__, function.__closure__
    )
    made.__kwdefaults__ = function.__kwdefaults__
    return made


SWAPS: dict[type, type] = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult,
    ast.FloorDiv: ast.Div, ast.Mod: ast.FloorDiv, ast.Lt: ast.LtE, ast.LtE: ast.Lt,
    ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq, ast.And: ast.Or,
    ast.Or: ast.And, ast.In: ast.NotIn, ast.NotIn: ast.In, ast.Is: ast.IsNot, ast.IsNot: ast.Is,
}  # fmt: skip


def mutated_trees(tree: ast.Module) -> Iterator[tuple[str, ast.Module]]:
    """(what was changed and in which line, the changed tree), each with one change."""
    lines = ast.unparse(tree).splitlines()
    numbered = ast.parse(ast.unparse(tree))  # whose line numbers are those of `lines`
    for number, node in enumerate(ast.walk(numbered)):
        for what, change in _changes(node):
            copied = copy.deepcopy(numbered)
            change(next(n for i, n in enumerate(ast.walk(copied)) if i == number))
            line = lines[node.lineno - 1].strip() if hasattr(node, "lineno") else ""
            inside = "" if what.startswith("`") else f" in `{line}`"
            yield what + inside, ast.fix_missing_locations(copied)


def _changes(node: ast.AST) -> Iterator[tuple[str, Callable[[Any], None]]]:
    if isinstance(node, (ast.BinOp, ast.AugAssign, ast.BoolOp)) and type(node.op) in SWAPS:
        new = SWAPS[type(node.op)]
        yield f"{type(node.op).__name__} to {new.__name__}", lambda n: setattr(n, "op", new())
    if isinstance(node, ast.Compare) and type(node.ops[0]) in SWAPS:
        new = SWAPS[type(node.ops[0])]
        yield (
            f"{type(node.ops[0]).__name__} to {new.__name__}",
            lambda n: n.ops.__setitem__(0, new()),
        )
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, (ast.Not, ast.Invert)):
        yield "negation dropped", lambda n: setattr(n, "op", ast.UAdd())
    if isinstance(node, ast.Constant):
        value = node.value
        if isinstance(value, bool):
            yield f"{value} to {not value}", lambda n: setattr(n, "value", not value)
        elif isinstance(value, (int, float)):
            for new_value in (value + 1, value - 1):
                yield f"{value} to {new_value}", lambda n, v=new_value: setattr(n, "value", v)
    if isinstance(node, ast.Call):
        for index, keyword in enumerate(node.keywords):
            yield f"{keyword.arg}= dropped", lambda n, i=index: n.keywords.pop(i)
    for name in ("body", "orelse"):
        block = getattr(node, name, None)
        if isinstance(block, list) and not isinstance(node, ast.Module):
            yield from _changes_of_a_block(name, block)


def _changes_of_a_block(name: str, block: list[ast.stmt]) -> Iterator[tuple[str, Any]]:
    for i, statement in enumerate(block):
        text = ast.unparse(statement).splitlines()[0][:50]
        if i == 0 and isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant):
            continue  # a docstring
        if not isinstance(statement, ast.Return):
            yield f"`{text}` dropped", lambda n, i=i: getattr(n, name).__setitem__(i, ast.Pass())
        if i and not isinstance(statement, ast.Return):

            def swap(n: Any, i: int = i) -> None:
                lines = getattr(n, name)
                lines[i - 1], lines[i] = lines[i], lines[i - 1]

            yield f"`{text}` one line earlier", swap
        if (
            isinstance(statement, ast.Return)
            and i
            and isinstance(block[i - 1], (ast.For, ast.While))
        ):
            yield (
                "return moved into the loop",
                lambda n, i=i: getattr(n, name)[i - 1].body.append(getattr(n, name)[i]),
            )


def summary(row: Row) -> str:
    """One exercise in some lines."""
    lists = ("accepted", "refused", "misnamed", "unnamed", "survive")
    counts = ", ".join(f"{name} {len(getattr(row, name))}" for name in lists)
    text = f"{row.id}: {row.lines} lines, {row.wrong} wrong, {row.mutants} mutants, "
    text += f"{row.equivalent} equivalent; {counts}"
    return "\n  ".join([text, *(f"{n}: {t}" for n in lists for t in getattr(row, n))])


if __name__ == "__main__":
    sys.exit(main())
