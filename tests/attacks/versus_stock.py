"""The same submissions under stock nbgrader and under ours: who got points, who did damage.

    python -m tests.attacks.versus_stock [NAME ...]     all of them take minutes

Each is handed in alone, in a class directory of its own, with every other cell as released: stock
`nbgrader autograde` runs it with this user's rights, so run this on a machine that may be harmed.
Those that would harm more than the class (`NOT_UNDER_STOCK`) are graded by ours only.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import nbformat

from autograde import class_dir
from autograde.classroom.example import ASSIGNMENT
from autograde.classroom.release import release
from tests.attacks.submissions import ATTACKS
from tests.attacks.world import World

NOT_UNDER_STOCK = {
    "grader-killed", "fork-bomb", "thread-bomb", "memory-bomb", "memory-by-many", "disk-bomb",
    "outlives", "package-infected", "shared-memory", "startup-file", "namespaces", "ptrace",
}  # fmt: skip
REPOSITORY = Path(__file__).resolve().parents[2]
LIMIT_S = 60


def main(names: list[str]) -> int:
    """Print a line a submission, then the sums; exit 1 where ours gave points or let harm be."""
    worked = {"stock": 0, "ours": 0}
    harmed = {"stock": 0, "ours": 0}
    counted = {"stock": 0, "ours": 0}
    with tempfile.TemporaryDirectory() as scratch:
        plain = Path(scratch) / "plain"
        class_dir.init(plain)
        release(plain, ASSIGNMENT)
        print(f"{'submission':<26}{'stock':<34}ours")
        for name in names or ATTACKS:
            cells = {}
            for way, command in (("stock", STOCK), ("ours", OURS)):
                if way == "stock" and name in NOT_UNDER_STOCK:
                    cells[way] = "not run: harms the machine"
                    continue
                points, damage = graded(name, command, plain, Path(scratch) / f"{name}-{way}")
                counted[way] += 1
                worked[way] += points > 0
                harmed[way] += bool(damage)
                cells[way] = f"{points:g} points" + (f", {damage}" if damage else "")
            print(f"{name:<26}{cells['stock']:<34}{cells['ours']}", flush=True)
    for way in ("stock", "ours"):
        print(
            f"{way}: {worked[way]} of {counted[way]} got points, {harmed[way]} did damage or were "
            "never answered"
        )
    return 1 if worked["ours"] or harmed["ours"] else 0


STOCK = [sys.executable, "-m", "nbgrader", "autograde", ASSIGNMENT]
OURS = [
    sys.executable, "-m", "autograde.cli", "grade", "--cell-timeout", "10", "--answer-timeout", "2",
]  # fmt: skip


def graded(name: str, command: list[str], plain: Path, folder: Path) -> tuple[float, str]:
    """Points of the attacked exercise and damage in one word or two, after a grading command."""
    shutil.copytree(plain, folder)
    world = World(folder)
    attack = ATTACKS[name]
    _hand_in(folder, [world.filled(cell) for cell in attack.cells], attack.files)
    other = folder / "submitted" / "ada" / ASSIGNMENT / "other.txt"
    other.parent.mkdir(parents=True)
    other.write_text("ada's")
    config = folder / "nbgrader_config.py"
    config.write_text(config.read_text().replace("timeout = 120", "timeout = 10"))
    world.before = {
        path: was for path, was in world.state().items() if not path.endswith("gradebook.db")
    }
    ended = _run([*command, *(["--student", "eve"] if command is STOCK else ["--students", "eve"])],
                 folder)  # fmt: skip
    harm = [path for path, was in world.before.items() if world.state().get(path) != was]
    words = ["files changed"] if harm else []
    words += ["connected"] if any("connection" in line for line in world.damage()) else []
    words += [] if ended else ["never ended"]
    world.close()
    points = _points(folder)
    shutil.rmtree(folder)
    return points, ", ".join(words)


def _hand_in(folder: Path, cells: list[str], files: dict[str, str]) -> None:
    notebook = nbformat.read(folder / "release" / ASSIGNMENT / f"{ASSIGNMENT}.ipynb", as_version=4)
    handed_in = []
    for cell in notebook.cells:
        marked = cell.metadata.get("nbgrader", {}).get("grade_id", "")
        if marked == "clip":
            *before, cell.source = cells
            handed_in += [nbformat.v4.new_code_cell(source) for source in before]
        handed_in.append(cell)
    notebook.cells = handed_in
    target = folder / "submitted" / "eve" / ASSIGNMENT
    target.mkdir(parents=True)
    nbformat.write(notebook, target / f"{ASSIGNMENT}.ipynb")
    for file, text in files.items():
        (target / file).write_text(text)


def _run(command: list[str], folder: Path) -> bool:
    """Run in a process group of its own; False where it had to be killed."""
    environment = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": str(REPOSITORY),
        "IPYTHONDIR": str(folder / ".ipython"),
    }
    process = subprocess.Popen(
        command, cwd=folder, env=environment, start_new_session=True,
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    started = time.monotonic()
    try:
        process.wait(LIMIT_S)
        return time.monotonic() - started < LIMIT_S
    except subprocess.TimeoutExpired:
        return False
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _points(folder: Path) -> float:
    from nbgrader.api import Gradebook, MissingEntry

    with Gradebook(f"sqlite:///{folder}/gradebook.db") as gradebook:
        try:
            submission = gradebook.find_submission(ASSIGNMENT, "eve")
        except MissingEntry:
            return 0.0
        return sum(
            grade.auto_score or 0.0
            for notebook in submission.notebooks
            for grade in notebook.grades
            if grade.name.startswith("clip")
        )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
