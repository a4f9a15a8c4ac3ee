"""`make notebooks`: from the sources that authors edit to the notebooks that students open.

notebooks/source/NAME.py, read by `autograde.sources`
    -> nbgrader's own generate_assignment, in a class directory made for the moment
    -> notebooks/NAME.ipynb: no solutions, no outputs; committed, and a test keeps them in step
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import nbformat

from autograde.class_dir import init
from autograde.classroom.release import release
from autograde.prose_lint import lint
from autograde.sources import NOTEBOOKS, all_paths, read_source, tour_paths


def student_notebook(name: str) -> str:
    """The notebook that students open, as nbgrader's generate_assignment makes it."""
    with tempfile.TemporaryDirectory() as folder:
        init(Path(folder) / "class", [name])
        released = release((Path(folder) / "class").resolve(), name)
        return released.read_text("utf-8")


def tour_notebook(name: str) -> str:
    """A notebook without exercises: as in its source, with the cells that all notebooks begin
    with."""
    return nbformat.writes(read_source(tour_paths()[name])) + "\n"


def main() -> int:
    """Write every student notebook; print what changed, and which prose breaks a rule."""
    faults: list[str] = []
    for name, path in all_paths().items():
        target = NOTEBOOKS / f"{name}.ipynb"
        text = tour_notebook(name) if name in tour_paths() else student_notebook(name)
        changed = not target.exists() or target.read_text("utf-8") != text
        if changed:
            target.write_text(text, "utf-8")
        print(f"{'wrote' if changed else 'unchanged'}  notebooks/{target.name}")
        faults += [f"{name}: {fault}" for fault in lint(name, read_source(path))]
    for fault in faults:
        print(f"prose: {fault}")
    return int(bool(faults))


if __name__ == "__main__":
    sys.exit(main())
