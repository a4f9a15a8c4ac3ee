"""Run every notebook top to bottom with its solutions: what fails, and how long each cell takes.

    python -m autograde.run_through [NAME ...]     # `make notebooks` ends with it

A notebook is run in a kernel of its own, several at a time, as a student called ada would run it.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from threading import Lock

from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError
from nbformat import NotebookNode
from nbgrader import utils

from autograde.kit.chapters import chapter_named
from autograde.sources import all_paths, read_source, source_paths

NAME = "ada"
"""Whose numbers the questions draw: the solutions are written for any name."""
GUESSES = {"03a.clipped": "[0.6, 0.8]", "03b.baseline": "0.1"}
"""Given on the way; all other guesses are left open, as the released notebook has them."""
ONCE = "building the font cache"
"""What matplotlib says on stderr the first time it is used on a machine."""
CELL_S = 300
SLOWEST = 3
"""Cells named per notebook."""
READING = Lock()
"""A source imports its exercises: of two threads that import packages which import one another, one
can get a half of them."""


@dataclass(frozen=True)
class RunThrough:
    """One notebook, run."""

    name: str
    notebook: NotebookNode
    faults: tuple[str, ...]
    """A cell that raised, wrote to stderr or did not earn its points, in words."""

    def seconds(self) -> list[tuple[float, str]]:
        """(seconds, first line) of each code cell that ran, slowest first."""
        took = [
            (_seconds(cell), cell.source.partition("\n")[0])
            for cell in self.notebook.cells
            if cell.cell_type == "code"
        ]
        return sorted(took, reverse=True)


def run_through(name: str, folder: Path | None = None) -> RunThrough:
    """Run a notebook's source, solutions and all, in a fresh kernel.

    Args:
        name: Of a source in notebooks/source/, a chapter or a tour.
        folder: Where its kernel works, and its progress file is written; a new one otherwise.
    """
    with READING:
        notebook = read_source(all_paths()[name])
    for cell in notebook.cells:
        cell.source = cell.source.replace('student("")', f'student("{NAME}")')
        for id, value in GUESSES.items():
            cell.source = cell.source.replace(f'guess("{id}", ...)', f'guess("{id}", {value})')
    with tempfile.TemporaryDirectory() as made:
        resources = {"metadata": {"path": str(folder or made)}}
        client = NotebookClient(
            notebook,
            timeout=CELL_S,
            record_timing=True,
            resources=resources,
            extra_arguments=["--log-level=40"],  # errors; not that loopback is not encrypted
        )
        try:
            client.execute(env=_environment())
            faults = tuple(_faults(notebook))
        except CellExecutionError as fault:
            faults = (str(fault),)
    return RunThrough(name, notebook, faults)


def _environment() -> dict[str, str]:
    """The kernel imports this project from wherever it works; kernels side by side share cores."""
    root = str(Path(__file__).resolve().parents[1])
    path = os.pathsep.join(filter(None, (root, os.environ.get("PYTHONPATH", ""))))
    return {"OMP_NUM_THREADS": "1", **os.environ, "PYTHONPATH": path}


def _faults(notebook: NotebookNode) -> Iterator[str]:
    for cell in notebook.cells:
        if cell.cell_type != "code":
            continue
        first = cell.source.partition("\n")[0]
        for output in cell.outputs:
            if output.get("name") == "stderr" and ONCE not in output.text:
                yield f"{first}: wrote to stderr: {output.text.strip()[-500:]}"
        if utils.is_grade(cell):
            points, best = utils.determine_grade(cell)
            if points is not None and points < best:
                yield f"{first}: the solution earns {points:g} of {best:g} points"


def _seconds(cell: NotebookNode) -> float:
    times = cell.metadata.get("execution", {})
    if "iopub.status.busy" not in times or "shell.execute_reply" not in times:
        return 0.0
    began, ended = (
        datetime.fromisoformat(times[key].replace("Z", "+00:00"))
        for key in ("iopub.status.busy", "shell.execute_reply")
    )
    return (ended - began).total_seconds()


def report(run: RunThrough) -> str:
    """Report its time next to the time that it promises, its slowest cells, and its faults."""
    seconds = run.seconds()
    total = sum(took for took, _ in seconds)
    lines = [
        f"{run.name}: {len(run.notebook.cells)} cells, {total:.0f} s "
        f"(its first page says {chapter_named(run.name).running_s:g} s)"
    ]
    lines += [f"  {took:6.1f} s  {first[:80]}" for took, first in seconds[:SLOWEST]]
    return "\n".join([*lines, *(f"  ✘ {fault}" for fault in run.faults)])


def main(names: Sequence[str] = ()) -> int:
    """Run the notebooks, print a report on each; 1 if any has a fault."""
    at_once = max(1, (os.cpu_count() or 2) // 2)
    failed = False
    with ThreadPoolExecutor(at_once + 1) as pool:  # a kernel waits half of its time at the start
        for run in pool.map(run_through, names or list(source_paths())):
            print(report(run), flush=True)
            failed |= bool(run.faults)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
