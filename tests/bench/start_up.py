"""A run of few submissions: what comes before the first student's cell, and after the last?

    python -m tests.bench.start_up [--submissions 2] [--jobs 1 2] [--rounds 5]

A class hands in right answers, each with a first and a last cell of the student's own that prints
the clock. Processor time is that of the command and of every process that it starts, looked at a
hundred times a second; wall time is given beside it, and means little on a machine that is busy
with other things. `before` and `after` are what the start-up is; `between` is grading, and with it
the gradebook's writer, which loads nbgrader meanwhile. Of the rounds the medians are reported, and
how long a loop of a fixed length took, by which machines and moments can be compared.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import nbformat

from autograde import class_dir
from autograde.classroom import example
from autograde.classroom.release import release
from tests.bench.grading import REPOSITORY, _family
from tests.bench.harness import report

GOAL_S = 3.0
CLOCK = 'import time; print(f"CLOCK {time.time()}")'
LOOK_S = 0.01


@dataclass(frozen=True, kw_only=True)
class Phase:
    """Seconds of the clock and of processors."""

    wall: float
    cpu: float


def class_with_clocks(folder: Path, size: int) -> None:
    """A released class of `size` right submissions that say when they begin and end."""
    class_dir.init(folder, [example.ASSIGNMENT])
    release(folder, example.ASSIGNMENT)
    example.hand_in(folder)
    first = folder / "submitted" / example.SOLUTIONS
    notebook = nbformat.read(_in(first), as_version=4)
    for place in (0, len(notebook.cells) + 1):
        notebook.cells.insert(place, nbformat.v4.new_code_cell(CLOCK))
    shutil.rmtree(folder / "submitted")
    for number in range(size):
        path = _in(folder / "submitted" / f"student{number}")
        path.parent.mkdir(parents=True)
        nbformat.write(notebook, path)


def _in(student: Path) -> Path:
    return student / example.ASSIGNMENT / f"{example.ASSIGNMENT}.ipynb"


def phases(folder: Path, jobs: int) -> dict[str, Phase]:
    """One run over a fresh copy of the class."""
    with tempfile.TemporaryDirectory() as scratch:
        copy = shutil.copytree(folder, Path(scratch) / "class")
        command = [sys.executable, "-m", "autograde.cli", "grade", "--dir", str(copy)]
        began, looks, used = time.time(), [], {}
        process = subprocess.Popen(
            [*command, "--jobs", str(jobs)],
            env={**os.environ, "PYTHONPATH": str(REPOSITORY), "OMP_NUM_THREADS": "1"},
            stdout=subprocess.DEVNULL,
        )
        family = {process.pid}
        while process.poll() is None:
            family |= set(_family(process.pid))  # an orphan keeps its place
            used |= {one: seconds for one in family if (seconds := _cpu(one)) is not None}
            looks.append((time.time(), sum(used.values())))
            time.sleep(LOOK_S)
        if process.returncode:
            raise RuntimeError(f"{' '.join(command)} ended with {process.returncode}")
        ended = time.time()
        clocks = [clock for path in (copy / "autograded").glob("*") for clock in _clocks(_in(path))]
    edges = [began, min(clocks), max(clocks), ended]
    spent = [max((cpu for when, cpu in looks if when <= edge), default=0.0) for edge in edges]
    names = ("before", "between", "after")
    return {
        name: Phase(wall=edges[i + 1] - edges[i], cpu=spent[i + 1] - spent[i])
        for i, name in enumerate(names)
    }


def _cpu(process: int) -> float | None:
    """Processor time of all threads of a process that lives."""
    try:
        tasks = Path(f"/proc/{process}/task").iterdir()
        return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks) / 1e9
    except (OSError, ValueError):
        return None


def _clocks(path: Path) -> list[float]:
    """What the clocks of a graded notebook said."""
    texts = [
        output.text
        for cell in nbformat.read(path, as_version=4).cells
        if cell.source == CLOCK
        for output in cell.outputs
    ]
    if len(texts) != 2:
        raise RuntimeError(f"{path}: {texts}")
    return [float(text.removeprefix("CLOCK ")) for text in texts]


def a_fixed_loop() -> float:
    """Processor time of work that is always the same: how busy is the machine now?"""
    started = time.process_time()
    sum(number * number for number in range(5_000_000))
    return time.process_time() - started


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--submissions", type=int, default=2)
    parser.add_argument("--jobs", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--rounds", type=int, default=5)
    settings = parser.parse_args()
    found: dict[str, list[dict[str, Phase]]] = {f"{jobs} jobs": [] for jobs in settings.jobs}
    loops = []
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch) / "class"
        class_with_clocks(folder, settings.submissions)
        phases(folder, settings.jobs[0])  # the first run after a change compiles what has changed
        for number in range(settings.rounds):
            for jobs in settings.jobs:
                loops.append(a_fixed_loop())
                run = phases(folder, jobs)
                found[f"{jobs} jobs"].append(run)
                said = ", ".join(f"{n} {p.cpu:.2f} ({p.wall:.2f})" for n, p in run.items())
                print(f"  round {number + 1}, {jobs} jobs: cpu (wall) s: {said}", flush=True)
    medians = {
        name: {
            f"{phase} {kind} s": statistics.median(getattr(run[phase], kind) for run in runs)
            for phase in ("before", "between", "after")
            for kind in ("cpu", "wall")
        }
        for name, runs in found.items()
    }
    start_up = {name: of["before cpu s"] + of["after cpu s"] for name, of in medians.items()}
    more = {
        "submissions": settings.submissions,
        "cpu s before and after": start_up,
        "medians": medians,
        "cpu s of a fixed loop": statistics.median(loops),
        "load average": os.getloadavg()[0],
    }
    for name, value in more.items():
        print(f"  {name}: {value}")
    report("start_up", {}, goals={"cpu s before and after, at most": GOAL_S}, **more)


if __name__ == "__main__":
    main()
