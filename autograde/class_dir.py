"""A class directory: a plain nbgrader course, made from the notebooks' sources.

    my-class/
        nbgrader_config.py     only stock settings; every stock nbgrader command works here
        source/ASSIGNMENT/ASSIGNMENT.ipynb       with solutions and hidden checks
        release/ submitted/ autograded/ feedback/ gradebook.db     made by nbgrader as ever
        verdicts/ASSIGNMENT/STUDENT.json         made by us: reasons and misconceptions

Class data never mixes with the repository: the directory lies wherever the instructor wants it.
"""

from __future__ import annotations

from pathlib import Path

import nbformat
from traitlets.config import Config
from traitlets.config.loader import PyFileConfigLoader

CONFIG = """\
# A plain nbgrader course. Every stock command works here: generate_assignment, autograde,
# generate_feedback, formgrader. `autograde grade` uses the same folders and the same gradebook.
c = get_config()  # noqa: F821
c.CourseDirectory.course_id = {course_id!r}
c.ExecutePreprocessor.timeout = 120
c.Exchange.root = "/dev/null"  # no exchange: copy submissions to submitted/STUDENT/ASSIGNMENT/
"""


class ClassDirError(ValueError):
    """The directory is no class directory, or cannot become one; the message says what to do."""


def init(folder: Path, assignments: list[str] | None = None) -> list[Path]:
    """Make a class directory from the notebooks' sources; existing notebooks in it are renewed.

    Args:
        folder: New or empty, or a class directory already.
        assignments: Names as `03a-training-recipe`; None takes all.

    Returns:
        The source notebooks written.

    Raises:
        ClassDirError: The folder holds other things, or an assignment is unknown.
    """
    from autograde.authoring import read_source, source_paths

    known = source_paths()
    unknown = [name for name in assignments or [] if name not in known]
    if unknown:
        raise ClassDirError(
            f"'{unknown[0]}' is not an assignment of the course. Known: {', '.join(known)}."
        )
    config = folder / "nbgrader_config.py"
    if folder.exists() and not folder.is_dir():
        raise ClassDirError(f"{folder} is a file; name a new folder for the class.")
    if folder.exists() and any(folder.iterdir()) and not config.exists():
        raise ClassDirError(
            f"{folder} holds other files and no nbgrader_config.py; name a new or empty folder."
        )
    folder.mkdir(parents=True, exist_ok=True)
    if not config.exists():
        config.write_text(CONFIG.format(course_id=folder.resolve().name), "utf-8")
    written = []
    for name in assignments or known:
        path = folder / "source" / name / f"{name}.ipynb"
        path.parent.mkdir(parents=True, exist_ok=True)
        nbformat.write(read_source(known[name]), path)
        written.append(path)
    return written


def check_class_dir(folder: Path) -> Path:
    """The folder as an absolute path.

    Raises:
        ClassDirError: It does not exist or holds no nbgrader_config.py.
    """
    if not folder.is_dir():
        raise ClassDirError(f"{folder} does not exist. Make it first: autograde init {folder}")
    if not (folder / "nbgrader_config.py").exists():
        raise ClassDirError(
            f"{folder} is not a class directory (no nbgrader_config.py). "
            f"Make one: autograde init {folder}, or name another with --dir."
        )
    return folder.resolve()


def assignments(folder: Path) -> list[str]:
    """The assignments of a class directory, by name."""
    return sorted(path.name for path in (folder / "source").glob("*") if path.is_dir())


def check_assignment(folder: Path, assignment: str | None) -> str:
    """The assignment's name; None stands for the one that was handed in.

    Raises:
        ClassDirError: There is none, several were handed in, or not this one.
    """
    known = assignments(folder)
    if assignment is None and known:
        handed_in = [name for name in known if any(folder.glob(f"submitted/*/{name}"))]
        if len(handed_in) <= 1:
            return (handed_in or known)[0]
        known = handed_in
    if assignment in known:
        return assignment
    choice = ", ".join(known) or "none: run autograde init"
    if assignment is None:
        raise ClassDirError(f"Name the assignment; {folder} has: {choice}.")
    raise ClassDirError(f"{folder} has no assignment '{assignment}'. It has: {choice}.")


def nbgrader_config(folder: Path) -> Config:
    """The traitlets config of a class directory: its own file, with its paths made absolute."""
    config = PyFileConfigLoader("nbgrader_config.py", path=str(folder)).load_config()
    config.CourseDirectory.root = str(folder)
    url = config.CourseDirectory.get("db_url", "")
    relative = str(url).removeprefix("sqlite:///")
    if relative != url and not Path(relative).is_absolute():
        config.CourseDirectory.db_url = f"sqlite:///{folder / relative}"
    return config
