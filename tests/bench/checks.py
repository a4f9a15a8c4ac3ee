"""Do the checks tell the truth? Over the whole bank, by exercise:

    wrong      wrong answers, and how many of them some seed accepts
    refused    right answers that some seed refuses
    misnamed   wrong answers that some seed gives another misconception's name
    unnamed    wrong answers with a message that some seed does not name
    mutants    small changes of a right answer, see `tests.bench.mutants`
    survive    mutants that every seed accepts, apart from those that `equivalent.py` explains

`python -m tests.bench.checks [--minutes 30] [--seeds 3] [--mutant-seeds 2] [ID ...]` keeps what it
finds of an exercise in `build/bench/checks/ID.json`, and does not try it again until its modules,
the mutants or the seeds have changed: the bench may run in pieces. When all are there it writes the
table in `docs/checks.md`. Each exercise is tried in a process of its own.
"""

from __future__ import annotations

import argparse
import ast
import hashlib
import inspect
import json
import os
import random
import resource
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch

from autograde import bank, questions
from autograde.answers import answer_of
from autograde.by_hand import python_function
from autograde.exercise import Exercise
from autograde.questions import difference_in
from autograde.quiet import quiet
from tests.autograde.remembering import answer_once, forget, put_to, remembering
from tests.bench import mutants, order
from tests.bench.equivalent import is_equivalent
from tests.bench.mutants import has_source, mutants_of

FOLDER = Path("build/bench/checks").resolve()
PAGE = Path("docs/checks.md").resolve()
PATIENCE = 20
"""Times as long as the right answer's slowest case, after which a mutant counts as killed: a loop
that never ends."""
LEAST_PATIENCE_S = 0.5
"""Of processor time: first calls load parts of torch."""
WAITING = 10
"""Times as much by the clock, for one that sleeps; other programs run, too."""
TIMERS = ((signal.ITIMER_PROF, signal.SIGPROF, 1), (signal.ITIMER_REAL, signal.SIGALRM, WAITING))
WHOLE = ("03a.training-script", "05.run", "05.setup", "05.whole")
"""Scripts and projects of which an answer takes a second: one seed, and a sample of the mutants."""
SAMPLE = 100
"""Mutants drawn of such a one."""
MEMORY = 6 * 2**30
"""Bytes that an exercise's process may take: a mutant may fill a list without end."""


@dataclass
class Row:
    """What was counted of one exercise."""

    id: str
    key: str
    """Of all that the counts depend on."""
    right: int = 0
    wrong: int = 0
    accepted: list[str] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    misnamed: list[str] = field(default_factory=list)
    unnamed: list[str] = field(default_factory=list)
    mutants: int = 0
    """How many were tried."""
    drawn_from: int = 0
    """How many there are."""
    alive: list[str] = field(default_factory=list)
    """Mutants that every seed accepts, equivalent or not."""
    seconds: float = 0.0
    """Processor time of the bench."""

    @property
    def survive(self) -> list[str]:
        """Mutants that should have been refused."""
        return [text for text in self.alive if not is_equivalent(self.id, text)]

    @property
    def is_clean(self) -> bool:
        """Whether the check tells the truth."""
        return not (self.accepted or self.refused or self.misnamed or self.survive)


def main() -> int:
    """Try what has not been tried, and write the table when everything has."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("ids", nargs="*", help="exercises; none: all that ask for code")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--mutant-seeds", type=int, default=2)
    parser.add_argument("--minutes", type=float, default=float("inf"), help="begin no more after")
    parser.add_argument("--again", action="store_true", help="try those that are known, too")
    given = parser.parse_args()
    if others := [id for id in given.ids if id not in bank.asks_for_code()]:
        parser.error(f"{', '.join(others)}: no exercise of the bank that asks for a function")
    torch.set_num_threads(1)
    FOLDER.mkdir(parents=True, exist_ok=True)
    began, rows = time.monotonic(), []
    for id in given.ids or bank.asks_for_code():
        row = None if given.again else known(id, given.seeds, given.mutant_seeds)
        if row is None and time.monotonic() - began < 60 * given.minutes:
            row = in_a_process(id, given.seeds, given.mutant_seeds)
            print(summary(row), flush=True)
        rows += [row] if row else []
    if given.ids:
        return int(not all(row.is_clean for row in rows))
    if len(rows) < len(bank.asks_for_code()):
        print(f"{len(rows)} of {len(bank.asks_for_code())} tried: run it again to go on")
        return 1
    PAGE.write_text(page(rows, given.seeds, given.mutant_seeds), "utf-8")
    return int(not all(row.is_clean for row in rows))


def known(id: str, seeds: int, mutant_seeds: int) -> Row | None:
    """What was found before, if nothing has changed since."""
    path = FOLDER / f"{id}.json"
    row = Row(**json.loads(path.read_text())) if path.exists() else None
    return row if row and row.key == key_of(bank.load(id), seeds, mutant_seeds) else None


def key_of(exercise: Exercise, seeds: int, mutant_seeds: int) -> str:
    """Changes with the exercise's modules, its reference's, the mutants and the seeds."""
    paths = {Path(inspect.getsourcefile(module)) for module in (mutants, order)}
    paths |= _modules_of(Path(inspect.getsourcefile(exercise.run)))
    paths |= {Path(inspect.getsourcefile(python_function(exercise.reference)))}
    found = hashlib.sha256(f"{seeds} {mutant_seeds}".encode())
    for path in sorted(paths):
        found.update(path.read_bytes())
    return found.hexdigest()[:16]


def _modules_of(path: Path, found: frozenset[Path] = frozenset()) -> set[Path]:
    """A module of the bank, and those of the bank that it imports."""
    reached = {path, *found}
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        module = (getattr(node, "module", None) or "") if isinstance(node, ast.ImportFrom) else ""
        other = path.parent / f"{module.rpartition('.')[2]}.py"
        if module.startswith("autograde.bank.") and other not in reached and other.exists():
            reached |= _modules_of(other, frozenset(reached))
    return reached


def in_a_process(id: str, seeds: int, mutant_seeds: int) -> Row:
    """`measure` in a fork, so that nothing that a mutant leaves behind meets another exercise."""
    exercise, path = bank.load(id), FOLDER / f"{id}.json"
    key = key_of(exercise, seeds, mutant_seeds)
    child = os.fork()
    if child == 0:
        status = 1
        try:
            resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, MEMORY))
            with tempfile.TemporaryDirectory() as folder:
                os.chdir(folder)
                row = measure(exercise, Row(id, key), seeds, mutant_seeds)
                os.chdir("/")
            row.seconds = round(time.process_time(), 1)
            path.write_text(json.dumps(asdict(row), indent=1) + "\n")
            status = 0
        except BaseException:
            sys.excepthook(*sys.exc_info())
        finally:
            os._exit(status)
    _, status = os.waitpid(child, 0)
    if status:
        raise SystemExit(f"{id}: the bench itself failed")
    return Row(**json.loads(path.read_text()))


def measure(exercise: Exercise, row: Row, seeds: int, mutant_seeds: int) -> Row:
    """Put the whole bank of an exercise, and mutants of its right answers, to its check."""
    row.right, row.wrong = len(exercise.right), len(exercise.wrong)
    seeds, mutant_seeds = (1, 1) if exercise.id in WHOLE else (seeds, mutant_seeds)
    remembered = remembering(exercise)
    for seed in range(seeds):
        forget()  # cases of one seed at a time take room enough
        put_the_bank_to(remembered, row, seed)
    forget()
    rights = [right for right in exercise.right if has_source(right)]
    tried = chosen_mutants(exercise.id, rights, row)
    slowest = _slowest(remembered)
    for right in rights:
        assert survives(remembered, right, mutant_seeds, slowest), right
        for what, mutant in (one for of, *one in tried if of is right):
            row.mutants += 1
            if survives(remembered, mutant, mutant_seeds, slowest):
                row.alive.append(f"{_name(right)}: {what}")
        assert survives(remembered, right, 1, slowest), f"{right}, after its mutants"
    return row


def chosen_mutants(id: str, rights: list[Any], row: Row) -> list[tuple[Any, str, Any]]:
    """(right answer, what was changed, mutant).

    Fixed scripts share most lines: the same change of the same line is made in one of them alone.
    """
    found: dict[Any, tuple[Any, str, Any]] = {}
    for number, right in enumerate(rights):
        of = None if hasattr(right, "__source__") else number
        made: Counter[str] = Counter()
        for what, mutant in mutants_of(right):
            made[what] += 1
            found.setdefault((of, what, made[what]), (right, what, mutant))
    row.drawn_from = len(found)
    every = list(found.values())
    if id not in WHOLE or len(every) <= SAMPLE:
        return every
    return [every[i] for i in sorted(random.Random(id).sample(range(len(every)), SAMPLE))]


def put_the_bank_to(exercise: Exercise, row: Row, seed: int) -> None:
    """Note which known answers get another verdict than they should."""
    named = {wrong.name for wrong in exercise.wrong if wrong.message}
    for function in exercise.right:
        if not put_to(exercise, function, seed).passed:
            _note(row.refused, _name(function), seed)
    for wrong in exercise.wrong:
        verdict = put_to(exercise, wrong.function, seed)
        if verdict.passed:
            _note(row.accepted, _name(wrong.function), seed)
        elif verdict.misconception not in ("", wrong.name):
            _note(row.misnamed, f"{wrong.name} as {verdict.misconception}", seed)
        elif not verdict.misconception and wrong.name in named:
            _note(row.unnamed, _name(wrong.function), seed)


def _note(found: list[str], name: str, seed: int) -> None:
    if not any(text.startswith(f"{name}, ") for text in found):
        found.append(f"{name}, seed {seed}")


def _name(function: Callable[..., Any]) -> str:
    return getattr(function, "__name__", str(function))


def _slowest(exercise: Exercise) -> float:
    """Seconds of the reference's slowest case, the second time: the first loads parts of torch."""
    seconds = []
    for part in exercise.parts:
        for case in exercise.cases(part, 0):
            answer_of(exercise, exercise.reference, case)
            began = time.process_time()
            answer_of(exercise, exercise.reference, case)
            seconds.append(time.process_time() - began)
    return max(seconds)


def survives(
    exercise: Exercise, function: Callable[..., Any], seeds: int, slowest: float = 1.0
) -> bool:
    """Whether every case of every seed accepts a function; cheap seeds first, and the first
    refusal ends it."""
    for part, case in _cases(exercise, seeds):
        answer = in_time(exercise, function, case, max(LEAST_PATIENCE_S, PATIENCE * slowest))
        if not isinstance(answer, dict):
            return False
        with patch.object(questions, "answer_of", answer_once):  # the reference answers once a case
            if difference_in(exercise, part, case, answer):
                return False
    return True


def _cases(exercise: Exercise, seeds: int) -> Iterator[tuple[Any, Any]]:
    for seed in range(seeds):
        for part in exercise.parts:
            yield from ((part, case) for case in exercise.cases(part, seed))


class OutOfTime(BaseException):
    """No `except Exception` of a mutant catches it."""


def in_time(exercise: Exercise, function: Callable[..., Any], case: Any, patience: float) -> Any:
    """The answer, or None where none came in so many seconds of processor time."""

    def stop(*_: object) -> None:
        raise OutOfTime

    try:
        for timer, sign, times in TIMERS:
            signal.signal(sign, stop)
            signal.setitimer(timer, times * patience)
        with quiet():
            return answer_of(exercise, function, case)
    except OutOfTime:
        return None
    finally:
        for timer, _, _ in TIMERS:
            signal.setitimer(timer, 0)


HEADS = ("exercise", "wrong answers", "accepted", "misnamed", "right answers", "refused", "mutants",
         "of them equivalent", "surviving")  # fmt: skip


def page(rows: list[Row], seeds: int, mutant_seeds: int) -> str:
    """The table for people, by exercise."""
    values = len(bank.asks_for_value())
    total = [sum(column) for column in zip(*map(counts, rows), strict=True)]
    alone = ", ".join(f"`{id}`" for id in WHOLE)
    minutes = sum(row.seconds for row in rows) / 60
    lines = [
        "# Do the checks tell the truth?",
        "",
        "Made by `make bench TARGET=checks`. Every known wrong and right answer to the "
        f"{len(rows)} exercises that ask for code is put to its check, on {seeds} seeds, and every "
        f"mutant of a right one, on {mutant_seeds}: one operator, constant, statement or keyword "
        "changed, or two statements that can meet in the other order; of fixed scripts, which "
        f"share most lines, in one of them. {alone} take long: they have one seed, and {SAMPLE} "
        "mutants that were drawn. *Accepted*, *misnamed* "
        "(given another mistake's name) and *refused* are answers to which that happened on some "
        "seed; a mutant *survives* that every seed accepts. Which mutants are equivalent, and why, "
        "is listed in `tests/bench/equivalent.py`. "
        f"The other {values} exercises ask for a value (a number, a choice, an order, settings, a "
        "text): there is no code to change, and `tests/autograde/test_kinds.py` puts right, wrong "
        f"and nonsensical values to them. The bench took {minutes:.0f} minutes of processor time.",
        "",
        f"| {' | '.join(HEADS)} |",
        f"|{' --- |' * len(HEADS)}",
        *(f"| `{row.id}` | {' | '.join(shown(row))} |" for row in rows),
        f"| **all** | {' | '.join(f'**{count}**' for count in total)} |",
    ]
    return "\n".join(lines) + "\n"


def counts(row: Row) -> tuple[int, ...]:
    """A row's numbers, in the order of `HEADS`."""
    return (row.wrong, len(row.accepted), len(row.misnamed), row.right, len(row.refused),
            row.mutants, len(row.alive) - len(row.survive), len(row.survive))  # fmt: skip


def shown(row: Row) -> list[str]:
    """The same as text; of drawn mutants, with how many there are."""
    texts = list(map(str, counts(row)))
    texts[5] += f" of {row.drawn_from}" if row.drawn_from > row.mutants else ""
    return texts


def summary(row: Row) -> str:
    """One exercise in some lines."""
    lists = ("accepted", "refused", "misnamed", "unnamed", "survive")
    found = ", ".join(f"{name} {len(getattr(row, name))}" for name in lists)
    text = f"{row.id}: {row.seconds:.0f} s, {row.wrong} wrong, {row.mutants} mutants, "
    text += f"{len(row.alive) - len(row.survive)} equivalent; {found}"
    return "\n  ".join([text, *(f"{n}: {t}" for n in lists for t in getattr(row, n))])


if __name__ == "__main__":
    sys.exit(main())
