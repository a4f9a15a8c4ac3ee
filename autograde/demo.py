"""`make demo`: from the worked numbers to a graded class, on real data, with a check at the end.

Prints what it does. Exit code 0: everything came out as the example class expects.
"""

from __future__ import annotations

import shutil
import sys
import time
from pathlib import Path
from typing import Any

from autograde.classroom import example, grading
from autograde.classroom.report import Row
from autograde.sandbox import protections
from autograde.sandbox.limits import Limits

LIMITS = Limits(cell_s=20.0, answer_s=4.0)
"""Short: one of the example's students loops for ever."""


def main(folder: Path) -> int:
    """Run everything in a new class directory.

    Args:
        folder: Where the class directory is made; one that a demo made before is replaced.
    """
    started = time.monotonic()
    faults = [*_worked_numbers(), *_graded_class(folder.resolve())]
    for fault in faults:
        print(f"demo: {fault}", file=sys.stderr)
    if not faults:
        _next_commands(folder)
    print(f"\n{time.monotonic() - started:.0f} s, {len(faults)} faults")
    return 1 if faults else 0


def _headline(number: int, text: str) -> None:
    print(f"\n{number}. {text}", flush=True)


def _worked_numbers() -> list[str]:
    from course.cli import print_overview
    from course.worked import compute_all

    _headline(1, "The lecture's worked numbers, recomputed")
    found = list(compute_all())
    print_overview(found)
    return [f"{numeric.entry.id} differs" for numeric in found if numeric.verdict == "differs"]


def _graded_class(folder: Path) -> list[str]:
    from autograde import class_dir
    from autograde.classroom.feedback import write_feedback
    from autograde.classroom.release import release
    from autograde.classroom.report import as_table, read_rows
    from autograde.cli import print_table

    assignment = example.ASSIGNMENT
    _headline(2, "The student release, made by nbgrader")
    if (folder / "nbgrader_config.py").exists():
        shutil.rmtree(folder)
    class_dir.init(folder)
    print(f"   {release(folder, assignment)}")

    _headline(3, "A class of eight hands in and is graded")
    example.hand_in(folder)
    lacking = protections.missing()
    if lacking:  # the example's own code may be trusted; strangers' may not
        print("   submissions are not locked away on this machine: see autograde protections")
    for outcome in grading.grade(folder, assignment, limits=LIMITS, trusted=bool(lacking)):
        print(f"   {outcome.student:<6}{outcome.seconds:5.1f} s  {_short(outcome.reason, folder)}")
    rows = read_rows(folder, assignment)
    pages = write_feedback(folder, assignment)

    _headline(4, "The class")
    print_table(as_table(rows))
    print(f"   feedback   {folder}/feedback/STUDENT/{assignment}/{assignment}.html")
    print(f"   gradebook  {folder}/gradebook.db")
    missing = [f"no feedback page {page}" for page in pages if not page.exists()]
    return [*compare(rows, example.expected()), *missing]


def _short(reason: str, folder: Path) -> str:
    return f"not graded: {reason.replace(f'{folder}/', '')}" if reason else "graded"


def compare(rows: list[Row], expected: dict[str, Any]) -> list[str]:
    """Where the class table differs from what it should be, a line each."""
    faults = []
    by_name = {row.student: row for row in rows}
    if set(by_name) != set(expected):
        faults.append(f"students {sorted(by_name)} instead of {sorted(expected)}")
    for name in sorted(set(by_name) & set(expected)):
        row, wanted = by_name[name], expected[name]
        if wanted.get("not_graded", "") not in row.not_graded or bool(row.not_graded) != (
            "not_graded" in wanted
        ):
            faults.append(f"{name}: reason '{row.not_graded}' instead of {wanted}")
        for exercise, points in wanted.get("scores", {}).items():
            if row.scores.get(exercise) != points:
                got = row.scores.get(exercise)
                faults.append(f"{name}: {got} points for {exercise} instead of {points}")
        if row.seen != wanted.get("seen", {}):
            faults.append(f"{name}: seen {row.seen} instead of {wanted.get('seen', {})}")
    return faults


def _next_commands(folder: Path) -> None:
    _headline(5, "Next, for each reader (after: source .venv/bin/activate)")
    print("   student      make lab                     # open 03a-training-recipe.ipynb")
    print(f"   instructor   autograde report --dir {folder}")
    print("                autograde init my-class      # your own class")
    print("   reader       course worked N19            # every step of one number")


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1] if len(sys.argv) > 1 else "build/demo-class")))
