"""Grading a class: stock `nbgrader autograde` beside ours, what isolation costs, what memory.

    python -m tests.bench.grading [--submissions 40] [--rounds 2] [--jobs 1 2] [--run-all]
                                  [--class-size 1000]

The same submissions of the real notebook, all right and all different, are graded by commands that
take turns; each round reverses the order. Stock runs every cell; ours leaves out those that no
exercise needs, as `autograde grade` does, and --run-all adds ours with every cell run. `cold` is a
whole command, its imports and its warm start included, divided by the submissions; `warm` is the
time between one graded notebook and the next. `cpu` is what all the processes of a command took of
the cores: the figure to look at on a machine that is busy with other things. Isolation is measured
submission by submission, in turns, in one process. Memory is the sum of PSS over a command's
processes: what they share is counted once. It is read in runs of their own, since reading it takes
time.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import nbformat

from autograde import class_dir
from autograde.classroom import example
from autograde.classroom.assignment import read_assignment
from autograde.classroom.marking import mark
from autograde.classroom.release import release
from autograde.sandbox import kernel, protections
from autograde.sandbox.limits import Limits
from tests.bench.harness import Ratio, interleaved, report

GOALS = {
    "times stock's rate, at least": 18.0,
    "cost of isolation, at most": 0.10,
    "MiB PSS an extra worker, at most": 150.0,
    "growth of memory over a class, at most": 0.10,
    "slowest quarter of a class beside the mean, at least": 0.80,
}
REPOSITORY = Path(__file__).resolve().parents[2]
STOCK = ("-m", "nbgrader", "autograde", example.ASSIGNMENT, "--create")
OURS = ("-m", "autograde.cli", "grade", "--force")
ONE = "student00000"
PR_SET_CHILD_SUBREAPER = 36


@dataclass(frozen=True, kw_only=True)
class Timed:
    """One command over the whole class."""

    seconds: float
    """From its start to its end."""
    written: list[float]
    """When each graded notebook was written, seconds after the start, in order."""
    cpu_seconds: float
    """Of all its processes together."""

    @property
    def cold(self) -> float:
        """Seconds a submission, everything included."""
        return self.seconds / len(self.written)

    @property
    def warm(self) -> float:
        """Seconds a submission once the first ones are done."""
        later = self.written[len(self.written) // 4 :]
        return (later[-1] - later[0]) / (len(later) - 1)

    @property
    def cpu(self) -> float:
        """Seconds of processor time a submission, everything included."""
        return self.cpu_seconds / len(self.written)


class ClassOfMany:
    """A class directory in which everybody hands in right, differently worded work."""

    def __init__(self, folder: Path, size: int) -> None:
        self.folder, self.size = folder, size
        class_dir.init(folder, [example.ASSIGNMENT])
        release(folder, example.ASSIGNMENT)
        example.hand_in(folder)
        submitted = folder / "submitted"
        right = nbformat.read(_notebook_in(submitted / example.SOLUTIONS), as_version=4)
        shutil.rmtree(submitted)
        first = next(
            cell for cell in right.cells if cell.metadata.get("nbgrader", {}).get("solution")
        )
        source = first.source
        for number in range(size):
            first.source = f"{source}\n# handed in by number {number}"
            path = _notebook_in(submitted / f"student{number:05}")
            path.parent.mkdir(parents=True)
            nbformat.write(right, path)

    def graded_by(self, *command: str) -> Timed:
        """Grade everybody with a command, as if for the first time."""
        shutil.rmtree(self.folder / "autograded", ignore_errors=True)
        own = _children()
        began, started, used = time.time(), time.perf_counter(), _cpu_of_the_ended()
        self.start(*command).wait()
        seconds = time.perf_counter() - started
        _wait_for_orphans(own)
        written = self.written_since(began)
        if len(written) != self.size:
            raise RuntimeError(f"{' '.join(command)} graded {len(written)} of {self.size}")
        return Timed(seconds=seconds, written=written, cpu_seconds=_cpu_of_the_ended() - used)

    def start(self, *command: str) -> subprocess.Popen:
        """Start a command in the class directory, with one thread for each process."""
        environment = {
            **os.environ,
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
            "PYTHONPATH": str(REPOSITORY),
            "OMP_NUM_THREADS": "1",
        }
        log = (self.folder / "log.txt").open("a")
        return subprocess.Popen(
            [sys.executable, *command],
            cwd=self.folder,
            env=environment,
            stdout=log,
            stderr=log,
        )

    def written_since(self, began: float) -> list[float]:
        """When each graded notebook was written, in order."""
        students = (self.folder / "autograded").glob("*")
        return sorted(_notebook_in(student).stat().st_mtime - began for student in students)

    def job(self, *, trusted: bool) -> dict[str, Any]:
        """Somebody's submission, as a grader is given it."""
        path = _notebook_in(self.folder / "submitted" / ONE)
        return {
            "path": str(path),
            "folder": str(path.parent),
            "text": path.read_text("utf-8"),
            "assignment": read_assignment(self.folder, example.ASSIGNMENT).to_json(),
            "limits": asdict(Limits()),
            "isolation": {"trusted": trusted, "hidden": [str(self.folder)]},
            "seed": 1,
        }


def _notebook_in(student: Path) -> Path:
    return student / example.ASSIGNMENT / f"{example.ASSIGNMENT}.ipynb"


def in_turns(
    room: ClassOfMany, commands: dict[str, tuple[str, ...]], rounds: int
) -> dict[str, list[Timed]]:
    """Every command once a round, the order reversed from round to round."""
    runs: dict[str, list[Timed]] = {name: [] for name in commands}
    for number in range(rounds):
        names = list(commands) if number % 2 == 0 else list(reversed(commands))
        for name in names:
            run = room.graded_by(*commands[name])
            runs[name].append(run)
            print(
                f"  round {number + 1}, {name:<14} a submission: cold {run.cold:6.2f} s, "
                f"warm {run.warm:6.2f} s, cpu {run.cpu:6.2f} s",
                flush=True,
            )
    return runs


def times_stock(runs: dict[str, list[Timed]]) -> dict[str, dict[str, float]]:
    """Stock's time over ours, the median of the rounds."""
    return {
        name: {
            kind: statistics.median(
                getattr(stock, kind) / getattr(mine, kind)
                for stock, mine in zip(runs["stock"], ours, strict=True)
            )
            for kind in ("cold", "warm", "cpu")
        }
        for name, ours in runs.items()
        if name != "stock"
    }


def cost_of_isolation(room: ClassOfMany, rounds: int) -> dict[str, Ratio]:
    """A submission locked away beside the same one trusted."""
    variants = {name: room.job(trusted=name == "trusted") for name in ("trusted", "locked away")}
    calls = {name: partial(_marked, job) for name, job in variants.items()}
    return interleaved(calls, base="trusted", rounds=rounds, units=1)


def _marked(job: dict[str, Any]) -> None:
    if not (result := mark(job))["graded"]:
        raise RuntimeError(result["reason"])


def _cpu_of_the_ended() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def _wait_for_orphans(own: set[int]) -> None:
    """What a command leaves ends by itself; as its adopter we are told what it used.

    Args:
        own: Children that we had before; some stay.
    """
    while orphans := _children() - own:
        for orphan in orphans:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(orphan, 0)


def _children() -> set[int]:
    return {child for child, parent in _parents().items() if parent == os.getpid()}


def pss_mib(room: ClassOfMany, *command: str, every_s: float = 0.2) -> list[float]:
    """PSS of a command and all its descendants over its run, MiB, oldest first."""
    shutil.rmtree(room.folder / "autograded", ignore_errors=True)
    own = _children()
    process, seen = room.start(*command), []
    while process.poll() is None:
        seen.append(sum(map(_pss_mib, _family(process.pid))))
        time.sleep(every_s)
    _wait_for_orphans(own)
    return seen


def _family(ancestor: int) -> list[int]:
    """A process and all that descend from it."""
    family, parents = [ancestor], _parents()
    for member in family:
        family += [child for child, parent in parents.items() if parent == member]
    return family


def _parents() -> dict[int, int]:
    """Every process's parent."""
    parents = {}
    for path in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it has ended meanwhile
            fields = (path / "stat").read_text().rpartition(")")[2].split()
            parents[int(path.name)] = int(fields[1])
    return parents


def _pss_mib(process: int) -> float:
    try:
        for line in Path(f"/proc/{process}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) / 1024
    except OSError:
        pass
    return 0.0


def whole_class(size: int, jobs: int) -> dict[str, object]:
    """A large class graded once: rate and memory in each quarter of the run."""
    with tempfile.TemporaryDirectory() as scratch:
        room = ClassOfMany(Path(scratch) / "class", size)
        began = time.time()
        memory = pss_mib(room, *OURS, "--jobs", str(jobs), every_s=2.0)
        times = room.written_since(began)
    quarter = len(times) // 4
    edges = [times[0], *(times[quarter * i - 1] for i in (1, 2, 3)), times[-1]]
    spans = [later - sooner for sooner, later in pairwise(edges)]
    lasting = memory[len(memory) // 8 : -2] or memory
    parts = [lasting[len(lasting) * i // 4 : len(lasting) * (i + 1) // 4] for i in range(4)]
    return {
        "submissions": len(times),
        "jobs": jobs,
        "graded a second, by quarter": [quarter / span for span in spans],
        "median MiB PSS, by quarter": [statistics.median(part) for part in parts if part],
        "peak MiB PSS": max(memory),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--submissions", type=int, default=40)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--jobs", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--run-all", action="store_true", help="also ours with every cell run")
    parser.add_argument("--isolation-rounds", type=int, default=25)
    parser.add_argument("--class-size", type=int, default=0, help="also grade such a class, once")
    settings = parser.parse_args()
    if lacking := protections.missing():
        names = ", ".join(protection.name for protection in lacking)
        sys.exit(f"grading: this machine does not give {names}: see autograde protections")
    kernel.prctl(PR_SET_CHILD_SUBREAPER, 1)
    found: dict[str, object] = {"submissions": settings.submissions, "cores": os.cpu_count()}

    with tempfile.TemporaryDirectory() as scratch:
        room = ClassOfMany(Path(scratch) / "class", settings.submissions)
        print(f"{settings.submissions} submissions, stock and ours in turns")
        ours = {f"ours, {jobs} jobs": (*OURS, "--jobs", str(jobs)) for jobs in settings.jobs}
        if settings.run_all:
            ours["ours, every cell run"] = (*OURS, "--run-all", "--jobs", str(settings.jobs[-1]))
        runs = in_turns(room, {"stock": STOCK, **ours}, settings.rounds)
        found["times stock's rate"] = times_stock(runs)
        found["runs"] = {name: [asdict(run) for run in of] for name, of in runs.items()}

        print("memory", flush=True)
        peaks = {jobs: max(pss_mib(room, *OURS, "--jobs", str(jobs))) for jobs in (1, 3)}
        found["peak MiB PSS by jobs"] = peaks
        found["MiB PSS an extra worker"] = (peaks[3] - peaks[1]) / 2
        found["peak MiB PSS of stock"] = max(pss_mib(room, *STOCK, "--student", ONE))
        if settings.class_size:
            print(f"a class of {settings.class_size}", flush=True)
            found["class"] = whole_class(settings.class_size, max(settings.jobs))
        isolation = cost_of_isolation(room, settings.isolation_rounds)  # last: it leaves a process

    for name, value in found.items():
        if name != "runs":
            print(f"  {name}: {json.dumps(value)}")
    report("grading", {"isolation, one submission": isolation}, goals=GOALS, **found)


if __name__ == "__main__":
    main()
