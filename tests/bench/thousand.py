"""A class of 1,000: does grading stay as fast, and as small, from the first to the last?

    python -m tests.bench.thousand [--submissions 1000] [--jobs 2] [--every 50]

Not part of `make bench`: it takes minutes, and answers one question. Real but cheap submissions of
a small notebook (one function, one check, one written answer; every third is wrong) are graded by
`autograde grade` as an instructor would. Each time 50 more are in the gradebook, a look notes the
rate, the processor time a submission, and the memory of each process. On a machine that is busy
with other things the rate says what the machine did, and processor time what we did. Memory is PSS
(what processes share is counted once), and of it the anonymous part: what they have made
themselves, without libraries that anybody on the machine has loaded. Changes are those of a
straight line through all looks but the first fifth, in which caches fill.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path
from subprocess import Popen

import nbformat

from autograde.class_dir import CONFIG
from autograde.classroom.release import release
from autograde.sandbox import protections
from tests.bench.grading import OURS, ClassOfMany, _children, _family, _wait_for_orphans
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
    "change of memory, at most": 0.05,
    "change of cpu a submission, at most": 0.10,
    "dearest look beside the median, at most": 1.3,
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
    """Look at the command each time `every` more submissions are written, but for the last."""
    looks: list[dict[str, object]] = []
    began = before = time.perf_counter()
    count, used = 0, dict[int, float]()
    while process.poll() is None:
        time.sleep(0.05)
        if not count + every <= (written := room.written) < room.size:  # then they leave
            continue
        now, family = time.perf_counter(), _family(process.pid)
        cpu = {pid: cpu_seconds(pid) for pid in family}
        spent = {pid: 1000 * (cpu[pid] - used.get(pid, 0)) / (written - count) for pid in family}
        memory = {pid: pss_mib_of(pid) for pid in family}
        looks.append(
            {
                "written": written,
                "seconds": now - began,
                "a second": (written - count) / (now - before),
                "cpu ms a submission": sum(spent.values()),
                "MiB PSS": sum(pss for pss, _ in memory.values()),
                "cpu ms, by process": spent,
                "MiB anonymous, by process": {pid: anon for pid, (_, anon) in memory.items()},
            }
        )
        print("  ".join(f"{k} {v:8.1f}" for k, v in looks[-1].items() if "by" not in k), flush=True)
        count, before, used = written, now, cpu
    return looks


def pss_mib_of(pid: int) -> tuple[float, float]:
    """A process's PSS and the anonymous part of it, MiB; zeros where it has ended."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0.0, 0.0
    sizes = {line.split(":")[0]: line.split()[1] for line in lines[1:]}
    return int(sizes["Pss"]) / 1024, int(sizes["Pss_Anon"]) / 1024


def cpu_seconds(pid: int) -> float:
    """Processor time of a process and of all its children that have ended; 0 where it has."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")


def lasting(looks: list[dict[str, object]], figure: str) -> dict[str, list[float]]:
    """A figure of the processes that are there in every look, look by look."""
    seen = [look[figure] for look in looks]
    everywhere = set(seen[0]).intersection(*seen)
    return {str(pid): [memory[pid] for memory in seen] for pid in sorted(everywhere)}


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
    if lacking := protections.missing():
        names = ", ".join(protection.name for protection in lacking)
        sys.exit(f"thousand: this machine does not give {names}: see autograde protections")
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

    processes = lasting(looks, "MiB anonymous, by process")
    first = len(looks) // 5
    late, together = (
        looks[first:],
        [sum(values) for values in zip(*processes.values(), strict=True)],
    )
    rates = [look["a second"] for look in late]
    costs = [look["cpu ms a submission"] for look in late]
    found = {
        "submissions": settings.submissions,
        "jobs": settings.jobs,
        "seconds": seconds,
        "a second, median": statistics.median(rates),
        "change of the rate": change(rates),
        "cpu ms a submission, median": statistics.median(costs),
        "dearest look beside the median": max(costs) / statistics.median(costs),
        "change of cpu a submission": change(costs),
        "cpu ms a submission, by process, median and change": {
            pid: (statistics.median(spent[first:]), change(spent[first:]))
            for pid, spent in lasting(looks, "cpu ms, by process").items()
        },
        "MiB anonymous of lasting processes, first and last": {
            pid: (values[first], values[-1]) for pid, values in processes.items()
        },
        "MiB anonymous together, look by look": together,
        "change of memory": change(together[first:]),
        "peak MiB PSS": max(look["MiB PSS"] for look in looks),
    }
    for name, value in found.items():
        print(f"  {name}: {value}")
    report("thousand", {}, goals=GOALS, looks=looks, **found)


if __name__ == "__main__":
    main()
