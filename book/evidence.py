"""What the pages show, freshly run: each job in its own process, its result cached by content.

    python -m book.evidence worked - FILE           # one job, as build.py starts it

A job's key is a hash of everything it depends on: the code of `course/` (for a notebook also
`autograde/` and its source), the lock file, the versions of Python and torch. A job with an
existing result for its key is not run again.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
CACHE = ROOT / "build" / "book-evidence"
MINUTES = 15
"""Time limit of a job in minutes; the slowest took one minute on 2 cores."""
LAST_LINES = 12
"""Characters shown of a failed job's output."""


class EvidenceError(RuntimeError):
    """A job failed; the message names it and gives its output."""


@dataclass(frozen=True)
class Job:
    """One thing to run."""

    kind: str
    """`worked`, `claims`, `museum`, `widget` or `notebook`."""
    name: str = "-"
    """The name of the widget or notebook."""

    @property
    def path(self) -> Path:
        """The file with its result."""
        return CACHE / f"{self.kind}-{self.name}-{self.key}{SUFFIXES.get(self.kind, '.json')}"

    @property
    def key(self) -> str:
        """A hash that changes with everything the result depends on."""
        rests_on = ["course"]
        if self.kind == "notebook":
            rests_on += ["autograde", f"notebooks/source/{self.name}.py"]
        return digest((*rests_on, "book/evidence.py", "requirements.lock"))


SUFFIXES = {"notebook": ".ipynb", "widget": ".html"}


@cache
def digest(places: tuple[str, ...]) -> str:
    """A hash of files, of all files in folders that code could read, and of the versions."""
    total = hashlib.sha256(f"{sys.version} {version('torch')}".encode())
    for place in places:
        start = ROOT / place
        paths = sorted(start.rglob("*")) if start.is_dir() else [start]
        for path in paths:
            if path.is_file() and "__pycache__" not in path.parts:
                total.update(str(path.relative_to(ROOT)).encode() + path.read_bytes())
    return total.hexdigest()[:16]


def gather(
    jobs: Iterable[Job], say: Callable[[str], None] = print, at_once: int | None = None
) -> dict[Job, Path]:
    """Run the jobs that have no cached result, several at a time.

    Args:
        jobs: What to run.
        say: Called with each job that ran, and with the number of cached results.
        at_once: Number of processes; None: one per core.

    Returns:
        The file of each result.

    Raises:
        EvidenceError: A job failed; the results of the others are kept.
    """
    found = {job: job.path for job in jobs}
    todo = [job for job, path in found.items() if not path.exists()]
    say(f"{len(found) - len(todo)} of {len(found)} results are reused")
    CACHE.mkdir(parents=True, exist_ok=True)
    with ThreadPoolExecutor(at_once or os.cpu_count() or 1) as pool:
        running = {pool.submit(_run, job): job for job in todo}
        try:
            for done in as_completed(running):
                done.result()
                say(f"ran {running[done].kind} {running[done].name}")
        except EvidenceError:
            pool.shutdown(cancel_futures=True)
            raise
    _forget(found.values())
    return found


def _run(job: Job) -> None:
    words = [sys.executable, "-m", "book.evidence", job.kind, job.name, str(job.path)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": _python_path()}
    try:
        subprocess.run(
            words, cwd=ROOT, env=environment, check=True, text=True, timeout=60 * MINUTES,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip
    except subprocess.CalledProcessError as fault:
        last = "\n".join(fault.stdout.strip().splitlines()[-LAST_LINES:])
        raise EvidenceError(f"{job.kind} {job.name} failed:\n{last}") from None
    except subprocess.TimeoutExpired:
        raise EvidenceError(f"{job.kind} {job.name} took more than {MINUTES} minutes.") from None


def _python_path() -> str:
    return os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH", ""))))


def _forget(in_use: Iterable[Path]) -> None:
    """Delete older results of the same jobs; keep those of jobs that were not requested."""
    for path in in_use:
        stem = path.stem.rpartition("-")[0]
        for other in path.parent.glob(f"{stem}-*{path.suffix}"):
            if other != path and other.stem.rpartition("-")[0] == stem:
                other.unlink()


def worked() -> str:
    """Every worked number: verdict and the reader's table."""
    from course.worked import registry

    return json.dumps(
        {
            number.entry.id: {"verdict": number.verdict, "html": number._repr_html_()}
            for number in registry.compute_all()
        }
    )


def claims() -> str:
    """Every claim: the measurements, as plain data and as a table."""
    from course.claims.contradictions import contradictions
    from course.claims.registry import compute_all
    from course.claims.show import as_html, finding

    tried: dict[str, Any] = {}
    for trial in compute_all():
        decides = finding(trial.measured.deciding, trial.measured.number)
        tried[trial.entry.id] = {**trial.to_json(), "html": as_html(trial), "decides": decides}
    rows = {id_: row.to_json() for id_, row in contradictions().items()}
    return json.dumps({"claims": tried, "contradictions": rows})


def museum() -> str:
    """Every bug next to the healthy run: its table and both curves."""
    from course.debug.museum import exhibit, ids

    shown = {id_: exhibit(id_) for id_ in ids()}
    return json.dumps(
        {id_: {"title": bug.title, "html": bug._repr_html_()} for id_, bug in shown.items()}
    )


def widget(name: str) -> str:
    """A widget as a page that works without a kernel."""
    from course.widgets import find
    from course.widgets.base.page import page_of

    return page_of(find(name)())


def notebook(name: str) -> str:
    """A notebook as students get it, with the outputs of a run that used the solutions.

    Raises:
        EvidenceError: A cell fails, writes to stderr, or does not get its points.
    """
    import nbformat

    from autograde.run_through import run_through
    from course.released import released

    run = run_through(name)
    if run.faults:
        raise EvidenceError(f"notebooks/source/{name}.py: " + "\n".join(run.faults))
    outputs = {cell["id"]: cell for cell in run.notebook.cells if cell.cell_type == "code"}
    shown = nbformat.read(released()[name], as_version=4)
    for cell in shown.cells:
        if cell.cell_type == "code" and cell["id"] in outputs:
            cell.outputs = outputs[cell["id"]].outputs
            cell.execution_count = outputs[cell["id"]].execution_count
    return nbformat.writes(shown)


def main(kind: str, name: str, target: str) -> None:
    """Run one job and save its result, completely or not at all."""
    job = {"worked": worked, "claims": claims, "museum": museum}.get(kind)
    text = job() if job else {"widget": widget, "notebook": notebook}[kind](name)
    partial = Path(f"{target}.{os.getpid()}")
    partial.write_text(text, "utf-8")
    partial.replace(target)


def all_jobs(only: Iterable[str] | None = None) -> Iterator[Job]:
    """All jobs for a complete book, the slowest first.

    Args:
        only: Names of the notebooks to run; None: all of them.
    """
    from course.released import released
    from course.widgets import catalogue

    for name in released():
        if only is None or name in only:
            yield Job("notebook", name)
    yield from (Job("worked"), Job("claims"), Job("museum"))
    yield from (Job("widget", name) for name in catalogue())


if __name__ == "__main__":
    main(*sys.argv[1:])
