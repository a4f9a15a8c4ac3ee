"""The student's desk: a folder with copies of the notebooks that belong to the student.

DIR/notebooks/03a-training-recipe.ipynb          the student's own: written once, never again
DIR/notebooks/03a-training-recipe.newer.ipynb    a later release, next to it
DIR/course/                                      the course's code, to read: links lead here
DIR/.released/                                   the releases that the copies were made from
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import signal
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path

from course.released import Cell, cells_of, released

PACKAGE = Path(__file__).resolve().parent
SHOWN_CODE = (".py", ".js", ".css", ".md")


def lay_out(folder: Path, *, say: Callable[[str], None] = print) -> Path:
    """Make the desk, or bring it up to date; what the student has written stays as it is.

    Args:
        folder: A new one, or a desk already.
        say: Takes a line for each notebook that is new or has a newer release.

    Returns:
        The folder with the student's notebooks.

    Raises:
        ValueError: The folder holds other things under the names that a desk needs.
    """
    _check_folder(folder)
    notebooks, originals = folder / "notebooks", folder / ".released"
    for needed in (notebooks, originals):
        needed.mkdir(parents=True, exist_ok=True)
    for name, release in released().items():
        _lay_out_one(release, notebooks / f"{name}.ipynb", originals / f"{name}.ipynb", say)
    _lay_out_code(folder / "course")
    return notebooks


def _check_folder(folder: Path) -> None:
    if folder.is_file():
        raise ValueError(f"{folder} is a file; name a new folder for your notebooks.")
    taken = [name for name in ("notebooks", "course") if (folder / name).exists()]
    if taken and not (folder / ".released").is_dir():
        raise ValueError(
            f"{folder} holds a '{taken[0]}' that course lab did not make. Name a new folder for "
            "your own notebooks: course lab my-notebooks"
        )


def _lay_out_one(release: Path, own: Path, original: Path, say: Callable[[str], None]) -> None:
    text = release.read_text("utf-8")
    if not own.exists():
        own.write_text(text, "utf-8")
        original.write_text(text, "utf-8")
        say(f"new      {own.name}")
        return
    before = _cells_before(own, original)
    now = cells_of(text)
    if original.exists() and original.read_text("utf-8") == text:
        return
    if changed := changed_sections(before, now, by_text=original.exists()):
        newer = _free_name(own)
        newer.write_text(text, "utf-8")
        say(f"newer    {newer.name} is the new release; your {own.name} stays as it is.")
        say(f"         Changed: {'; '.join(changed)}")
    original.write_text(text, "utf-8")


def _cells_before(own: Path, original: Path) -> list[Cell]:
    """The release that the copy was made from; where that is lost or broken, the copy itself."""
    for path in (original, own):
        try:
            return cells_of(path)
        except (OSError, ValueError):
            continue
    return []


def changed_sections(before: list[Cell], now: list[Cell], *, by_text: bool) -> list[str]:
    """Headings of the sections in which a newer release differs from an older one, in its order.

    Args:
        before: The cells of the older release, or of a student's copy of it.
        now: Those of the newer one.
        by_text: Compare what cells say; otherwise only which there are, since a student has written
            into the copy. (Cells that are not answers are named after their text.)
    """
    known = {cell.id: cell.source for cell in before}
    found = []
    for heading, cell in _under_headings(now):
        same = known.get(cell.id) == cell.source if by_text else cell.id in known
        if not same:
            found.append(heading)
    left = {cell.id for cell in now}
    gone = [heading for heading, cell in _under_headings(before) if cell.id not in left]
    return list(dict.fromkeys(found or gone))


def _under_headings(cells: list[Cell]) -> Iterator[tuple[str, Cell]]:
    heading = "the beginning"
    for cell in cells:
        if cell.kind == "markdown" and (match := re.search(r"^#+ (.+)$", cell.source, re.M)):
            heading = match[1]
        yield heading, cell


def _free_name(own: Path) -> Path:
    names = (
        own.with_name(f"{own.stem}.newer{'' if n == 1 else f'-{n}'}{own.suffix}") for n in count(1)
    )
    return next(name for name in names if not name.exists())


def _lay_out_code(target: Path) -> None:
    """The course's modules, to be read and not written; those of an older version go."""
    wanted = {
        path.relative_to(PACKAGE): path
        for path in PACKAGE.rglob("*")
        if path.suffix in SHOWN_CODE and path.is_file()
    }
    for path in target.rglob("*") if target.exists() else ():
        if path.is_file() and path.relative_to(target) not in wanted:
            path.chmod(stat.S_IWRITE | stat.S_IREAD)
            path.unlink()
    for relative, source in wanted.items():
        copy = target / relative
        if copy.exists() and copy.read_bytes() == source.read_bytes():
            continue
        copy.parent.mkdir(parents=True, exist_ok=True)
        if copy.exists():
            copy.chmod(stat.S_IWRITE | stat.S_IREAD)
        shutil.copyfile(source, copy)
        copy.chmod(stat.S_IREAD)


LAB = (
    "course.desk_lab",
    "--ServerApp.kernel_websocket_connection_class=course.desk_server.PromptConnection",
)
"""JupyterLab as `python -m` starts it for the desk."""


def open_lab(folder: Path, *, browser: bool, port: int | None) -> int:
    """Run JupyterLab on the desk until it is stopped; returns its exit code.

    Raises:
        ValueError: JupyterLab is not installed.
    """
    if importlib.util.find_spec("jupyterlab") is None:
        raise ValueError(
            f"JupyterLab is not installed for {sys.executable}. Install it: {sys.executable} -m "
            f"pip install jupyterlab; or open {folder} in VS Code."
        )
    command = [
        *(sys.executable, "-m", *LAB),
        f"--ServerApp.root_dir={folder.resolve()}",
        "--LabApp.default_url=/lab/tree/notebooks",
        *([] if browser else ["--no-browser"]),
        *([] if port is None else [f"--port={port}", "--ServerApp.port_retries=0"]),
        *(["--allow-root"] if getattr(os, "geteuid", lambda: 1)() == 0 else []),
    ]
    with subprocess.Popen(command) as lab:
        signal.signal(signal.SIGTERM, lambda *_signal: lab.terminate())
        while True:
            try:
                return lab.wait()
            except KeyboardInterrupt:  # JupyterLab got it too, and asks whether to stop
                continue
