"""A class of 1,000: does grading stay as fast, and as small, from the first to the last?

    python -m tests.bench.thousand [--submissions 1000] [--jobs 2] [--every 50]

Not part of `make bench`: it takes minutes, and answers one question. Real but cheap submissions of
a small notebook (one function, one check, one written answer; every third is wrong) are graded by
`autograde grade` as an instructor would. Each time 50 more are in the gradebook, the rate since the
last look and the PSS of each process that lasts are noted: PSS counts what processes share once.
The slopes are a straight line's through all looks but the first fifth, in which caches fill.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from pathlib import Path
from subprocess import Popen

import nbformat

from autograde.class_dir import CONFIG
from autograde.classroom.release import release
from autograde.sandbox import doctor
from tests.bench.grading import OURS, ClassOfMany, _children, _family, _pss_mib, _wait_for_orphans
from tests.bench.harness import report

ASSIGNMENT = "small"
SOLUTION = """\
def dumb_baseline(train_targets, val_targets):
    ### BEGIN SOLUTION
    common = int(train_targets.bincount().argmax())
    return common, float((val_targets == common).float().mean())
    ### END SOLUTION"""
RIGHT = """\
def dumb_baseline(train_targets, val_targets):
    common = int(train_targets.bincount().argmax())
    return common, float((val_targets == common).float().mean())  # number {number}"""
WRONG = """\
def dumb_baseline(train_targets, val_targets):
    return 0, 0.5  # number {number}"""
GOALS = {
    "growth of memory over the class, at most": 0.05,
    "slowest look beside the median rate, at least": 0.7,
    "change of the rate over the class, at most": 0.1,
}


class SmallClass(ClassOfMany):
    """A class directory with a small assignment that everybody has handed in."""

    def __init__(self, folder: Path, size: int) -> None:
        self.folder, self.size = folder, size
        source = folder / "source" / ASSIGNMENT / f"{ASSIGNMENT}.ipynb"
        source.parent.mkdir(parents=True)
        (folder / "nbgrader_config.py").write_text(CONFIG.format(course_id="thousand"), "utf-8")
        nbformat.write(small_notebook(), source)
        notebook = nbformat.read(release(folder, ASSIGNMENT), as_version=4)
        for number in range(size):
            path = (
                folder / "submitted" / f"student{number:05}" / source.relative_to(folder / "source")
            )
            path.parent.mkdir(parents=True)
            answer = WRONG if number % 3 == 2 else RIGHT
            notebook.cells[1].source = answer.format(number=number)
            notebook.cells[3].source = f"In the words of number {number}."
            nbformat.write(notebook, path)

    @property
    def written(self) -> int:
        """How many submissions are in the gradebook."""
        journal = self.folder / "journal" / f"{ASSIGNMENT}.jsonl"
        return journal.read_bytes().count(b'"event": "written"') if journal.exists() else 0


def small_notebook() -> nbformat.NotebookNode:
    """The source of the assignment: one function, its check, one written answer."""

    def marks(grade_id: str, **more: object) -> dict:
        about = {"grade_id": grade_id, "schema_version": 3, "task": False, **more}
        return {"nbgrader": about}

    make = nbformat.v4
    written = marks("why", grade=True, solution=True, locked=False, points=1)
    return make.new_notebook(
        cells=[
            make.new_code_cell("from autograde import check"),
            make.new_code_cell(
                SOLUTION, metadata=marks("answer", grade=False, solution=True, locked=False)
            ),
            make.new_code_cell(
                'check("03b.baseline", dumb_baseline)',
                metadata=marks("check", grade=True, solution=False, locked=True, points=3),
            ),
            make.new_markdown_cell("YOUR ANSWER HERE", metadata=written),
        ],
        metadata={"kernelspec": {"name": "python3", "display_name": "Python 3"}},
    )


def watch(room: SmallClass, process: Popen, every: int) -> list[dict[str, object]]:
    """Look at the command each time `every` more submissions are written, until it ends."""
    looks: list[dict[str, object]] = []
    began = before = time.perf_counter()
    count = 0
    while process.poll() is None:
        time.sleep(0.1)
        if (now_written := room.written) < count + every:
            continue
        now = time.perf_counter()
        memory = {pid: _pss_mib(pid) for pid in _family(process.pid)}
        look = {
            "written": now_written,
            "seconds": now - began,
            "a second": (now_written - count) / (now - before),
            "MiB PSS": sum(memory.values()),
            "MiB PSS of the driver": memory[process.pid],
            "MiB PSS by process": memory,
        }
        looks.append(look)
        print(
            f"  {now_written:5} written  {look['a second']:6.2f} a second  "
            f"{look['MiB PSS']:8.1f} MiB PSS, driver {look['MiB PSS of the driver']:.1f}",
            flush=True,
        )
        count, before = now_written, now
    return looks


def lasting(looks: list[dict[str, object]]) -> dict[str, list[float]]:
    """PSS of the processes that are there in every look, MiB, look by look."""
    seen = [look["MiB PSS by process"] for look in looks]
    return {str(pid): [memory[pid] for memory in seen] for pid in seen[0] if all_have(seen, pid)}


def all_have(seen: list[dict[int, float]], pid: int) -> bool:
    return all(pid in memory for memory in seen)


def change(values: list[float]) -> float:
    """How much a straight line through the values rises from first to last, of their mean."""
    if len(values) < 3:
        return 0.0
    slope, _ = statistics.linear_regression(range(len(values)), values)
    return slope * (len(values) - 1) / statistics.fmean(values)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--submissions", type=int, default=1000)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--every", type=int, default=50)
    settings = parser.parse_args()
    if lacking := doctor.missing():
        names = ", ".join(protection.name for protection in lacking)
        sys.exit(f"thousand: this machine does not give {names}: see autograde doctor")
    with tempfile.TemporaryDirectory() as scratch:
        room = SmallClass(Path(scratch) / "class", settings.submissions)
        print(f"{settings.submissions} submissions, {settings.jobs} jobs", flush=True)
        own, started = _children(), time.perf_counter()
        process = room.start(*OURS, "--jobs", str(settings.jobs))
        looks = watch(room, process, settings.every)
        code, seconds = process.wait(), time.perf_counter() - started
        _wait_for_orphans(own)
        if (written := room.written) != settings.submissions or code:
            sys.exit(f"{written} written, exit {code}: {(room.folder / 'log.txt').read_text()}")

    processes = lasting(looks)
    late = looks[len(looks) // 5 :]
    rates = [look["a second"] for look in late]
    found = {
        "submissions": settings.submissions,
        "jobs": settings.jobs,
        "seconds": seconds,
        "a second, median": statistics.median(rates),
        "slowest look beside the median": min(rates) / statistics.median(rates),
        "change of the rate": change(rates),
        "MiB PSS of lasting processes, look by look": processes,
        "change of their memory": {
            pid: change(values[len(looks) // 5 :]) for pid, values in processes.items()
        },
        "change of their memory together": change(
            [sum(values) for values in zip(*processes.values(), strict=True)][len(looks) // 5 :]
        ),
        "peak MiB PSS": max(look["MiB PSS"] for look in looks),
    }
    for name, value in found.items():
        print(f"  {name}: {value}")
    report("thousand", {}, goals=GOALS, looks=looks, **found)


if __name__ == "__main__":
    main()
