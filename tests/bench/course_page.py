"""The course page of fourteen assignments and 1,000 students: how long does `report --all` take?

    python -m tests.bench.course_page [--students 1000] [--assignments 14]

Not part of `make bench`: the class takes longer to write than the page. Gradebook and verdicts are
written as grading leaves them (six graded cells per assignment, one misconception in three checks);
then the command runs as an instructor runs it, imports and all, and its wall time and processor
time are noted.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from uuid import uuid4

from autograde.class_dir import CONFIG
from tests.autograde.paper_class import _empty_gradebook
from tests.bench.harness import report

GOAL_S = 10.0
CELLS = 6


def class_on_paper(folder: Path, students: int, assignments: int) -> None:
    """A class directory as if everybody had been graded in everything."""
    from nbgrader import api
    from nbgrader.api import Gradebook

    draw = random.Random(0)
    folder.mkdir(parents=True)
    (folder / "nbgrader_config.py").write_text(CONFIG.format(course_id="bench"), "utf-8")
    (folder / "gradebook.db").write_bytes(_empty_gradebook())
    skill = {f"student{n:04}": draw.random() for n in range(students)}
    with Gradebook(f"sqlite:///{folder}/gradebook.db") as gradebook:
        db = gradebook.db
        db.bulk_insert_mappings(api.Student, [{"id": id, "first_name": id} for id in skill])
        for number in range(assignments):
            name = f"{number:02}-notebook"
            (folder / "source" / name).mkdir(parents=True)
            gradebook.add_assignment(name)
            gradebook.add_notebook(name, name)
            cells = [
                gradebook.add_grade_cell(f"c{i}", name, name, max_score=4, cell_type="code").id
                for i in range(CELLS)
            ]
            about = gradebook.find_assignment(name)
            ids = (about.id, about.notebooks[0].id, cells)
            db.commit()
            _hand_in(db, folder, name, ids, skill, draw)
        db.commit()


def _hand_in(db, folder: Path, name: str, ids: tuple, skill: dict, draw: random.Random) -> None:
    from nbgrader import api

    assignment, notebook, cells = ids
    submitted, notebooks, grades = [], [], []
    verdicts = folder / "verdicts" / name
    verdicts.mkdir(parents=True)
    for student, level in skill.items():
        (folder / "submitted" / student / name).mkdir(parents=True)
        one, two = uuid4().hex, uuid4().hex
        submitted.append({"id": one, "assignment_id": assignment, "student_id": student})
        notebooks.append(
            {"id": two, "assignment_id": one, "notebook_id": notebook, "flagged": False}
        )
        checks = []
        for number, cell in enumerate(cells):
            right = draw.random() < level
            grades.append(
                {
                    **{"id": uuid4().hex, "notebook_id": two, "cell_id": cell},
                    **{"auto_score": 4.0 * right, "needs_manual_grade": False},
                }
            )
            misconception = "" if right else f"mistake-{draw.randrange(12)}"
            checks.append(
                {
                    **{"grade_id": f"c{number}", "exercise": f"{name[:2]}.e{number}"},
                    **{"points": 4.0 * right, "max_points": 4, "parts": {}},
                    **{"status": misconception or "right", "misconception": misconception},
                    "message": "What happened, and what to do about it. " * 10,
                }
            )
        verdict = {"seed": 1, "ended": "", "checks": checks, "notes": [], "seconds": 1.0}
        (verdicts / f"{student}.json").write_text(json.dumps(verdict, indent=2), "utf-8")
    db.bulk_insert_mappings(api.SubmittedAssignment, submitted)
    db.bulk_insert_mappings(api.SubmittedNotebook, notebooks)
    db.bulk_insert_mappings(api.Grade, grades)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--students", type=int, default=1000)
    parser.add_argument("--assignments", type=int, default=14)
    settings = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch) / "class"
        class_on_paper(folder, settings.students, settings.assignments)
        print("class written", flush=True)
        command = [sys.executable, "-m", "autograde.cli", "report", "--all", "--dir", str(folder)]
        started, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
        print(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
        wall, after = time.perf_counter() - started, resource.getrusage(resource.RUSAGE_CHILDREN)
        page = folder / "report" / "course.html"
        found = {
            "students": settings.students,
            "assignments": settings.assignments,
            "wall s": wall,
            "cpu s": after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime,
            "peak MiB": after.ru_maxrss / 1024,
            "page MiB": page.stat().st_size / 2**20,
            "load average": os.getloadavg()[0],
        }
    for name, value in found.items():
        print(f"  {name}: {value}")
    report("course_page", {}, goals={"wall s, at most": GOAL_S}, **found)


if __name__ == "__main__":
    main()
