"""A class directory: a plain nbgrader course, made from the notebooks' sources.

    my-class/
        nbgrader_config.py     only stock settings; every stock nbgrader command works here
        source/ASSIGNMENT/ASSIGNMENT.ipynb       with solutions and hidden checks
        release/ submitted/ autograded/ feedback/ gradebook.db     made by nbgrader as ever
        verdicts/ASSIGNMENT/STUDENT.json         made by us: reasons and misconceptions

Class data never mixes with the repository: the directory can be anywhere.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Iterable, Sequence
from difflib import get_close_matches
from itertools import count
from pathlib import Path

from traitlets.config import Config
from traitlets.config.loader import PyFileConfigLoader

CONFIG = """\
# A plain nbgrader course. Every stock command works here: generate_assignment, autograde,
# generate_feedback, formgrader. `autograde grade` uses the same folders and the same gradebook.
c = get_config()  # noqa: F821
c.CourseDirectory.course_id = {course_id!r}
c.ExecutePreprocessor.timeout = 120
c.ClearMarkScheme.enforce_metadata = False  # rubrics and blank answers may stand in any cell
c.Exchange.root = "/dev/null"  # no exchange: copy submissions to submitted/STUDENT/ASSIGNMENT/
"""
STEP = "autograde.classroom.clean_steps.CleanWork"
FILTERS = {"clean_html": "autograde.classroom.clean_steps.clean_html"}
"""Of nbconvert's templates: what cleans each part of a page with `sanitize_html`."""
PROTECTION = f"""\

# Nothing that a student wrote may run in a page that you open: keep these lines.
c.HTMLExporter.sanitize_html = True
c.HTMLExporter.filters = {FILTERS}
c.HTMLExporter.preprocessors = ["{STEP}"]  # what formgrader shows
c.GenerateFeedback.preprocessors = [
    "{STEP}",
    "nbgrader.preprocessors.GetGrades",
    "nbconvert.preprocessors.CSSHTMLHeaderPreprocessor",
]
c.Autograde.sanitize_preprocessors = ["nbgrader.preprocessors." + name for name in (
    "ClearOutput", "DeduplicateIds", "OverwriteKernelspec", "OverwriteCells", "CheckCellMetadata",
)] + ["{STEP}"]
c.Autograde.autograde_preprocessors = [
    "nbgrader.preprocessors.Execute",
    "nbgrader.preprocessors.IgnorePattern",
    "nbconvert.preprocessors.ClearMetadataPreprocessor",
    "nbgrader.preprocessors.LimitOutput",
    "nbgrader.preprocessors.SaveAutoGrades",
    "nbgrader.preprocessors.AssignLatePenalties",
    "nbgrader.preprocessors.CheckCellMetadata",
    "{STEP}",
]
"""


class ClassDirError(ValueError):
    """The directory is not a class directory, or cannot become one; the message says what to do."""


def init(
    folder: Path,
    assignments: list[str] | None = None,
    *,
    say: Callable[[str], None] = lambda _line: None,
) -> list[Path]:
    """Make a class directory from the notebooks' sources; notebooks already in it are updated.

    One that differed is kept in replaced/: it may be the instructor's own version.

    Args:
        folder: New, empty, or already a class directory.
        assignments: Names such as `03a-training-recipe`; None takes all.
        say: Called with a line per replaced notebook, which says where it is kept.

    Returns:
        The source notebooks written.

    Raises:
        ClassDirError: The folder holds other things, an assignment is unknown, or there are no
            sources.
    """
    import nbformat

    from autograde.sources import SOURCES, read_source, source_paths

    known = source_paths()
    if not known:
        raise ClassDirError(
            f"{SOURCES} holds no notebooks: they come with a clone of the project, not with an "
            "installed package. Install the project from a clone: pip install -e ."
        )
    unknown = [name for name in assignments or [] if name not in known]
    if unknown:
        raise ClassDirError(
            f"'{unknown[0]}' is not an assignment of the course. Choose from: {', '.join(known)}."
        )
    _configure(folder, say)
    written = []
    for name in assignments or known:
        path = folder / "source" / name / f"{name}.ipynb"
        path.parent.mkdir(parents=True, exist_ok=True)
        text = f"{nbformat.writes(read_source(known[name]))}\n"
        if path.exists() and path.read_text("utf-8") != text:
            say(f"{path} was a different version, kept as {_keep(folder, path)}")
        path.write_text(text, "utf-8")
        written.append(path)
    return written


def _configure(folder: Path, say: Callable[[str], None]) -> None:
    """Make the folder a class directory: its configuration is written, or what it lacks is added.

    Raises:
        ClassDirError: The folder is a file, or holds other things.
    """
    config = folder / "nbgrader_config.py"
    if folder.exists() and not folder.is_dir():
        raise ClassDirError(f"{folder} is a file; give a new folder for the class.")
    if folder.exists() and any(folder.iterdir()) and not config.exists():
        raise ClassDirError(
            f"{folder} holds other files and no nbgrader_config.py; give a new or empty folder."
        )
    folder.mkdir(parents=True, exist_ok=True)
    if not config.exists():
        config.write_text(CONFIG.format(course_id=folder.resolve().name) + PROTECTION, "utf-8")
    elif not is_protected(folder):
        config.write_text(f"{config.read_text('utf-8').rstrip()}\n{PROTECTION}", "utf-8")
        say(f"{config}: added the lines that stop students' HTML from running in formgrader")


def _keep(folder: Path, path: Path) -> Path:
    """Copy a notebook to replaced/ under a free name. (nbgrader would release it from source/.)"""
    names = (folder / "replaced" / f"{path.stem}-{number}.ipynb" for number in count(1))
    kept = next(name for name in names if not name.exists())
    kept.parent.mkdir(exist_ok=True)
    kept.write_bytes(path.read_bytes())
    return kept


def check_class_dir(folder: Path) -> Path:
    """Check the folder and return it as an absolute path.

    Raises:
        ClassDirError: It does not exist or holds no nbgrader_config.py.
    """
    if not folder.is_dir():
        raise ClassDirError(f"{folder} does not exist. Create it first: autograde init {folder}")
    if not (folder / "nbgrader_config.py").exists():
        raise ClassDirError(
            f"{folder} is not a class directory (no nbgrader_config.py). Create one: autograde "
            f"init {folder}, or give another with --dir."
        )
    return folder.resolve()


def assignments(folder: Path) -> list[str]:
    """The assignments of a class directory, by name."""
    return sorted(path.name for path in (folder / "source").glob("*") if path.is_dir())


def check_assignment(folder: Path, assignment: str | None) -> str:
    """Check the assignment's name; None stands for the only one that was handed in.

    Raises:
        ClassDirError: There is no assignment, several were handed in, or this one does not exist.
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
    raise ClassDirError(
        f"{folder} has no assignment '{assignment}'{did_you_mean(assignment, known)}. "
        f"It has: {choice}."
    )


def unknown_students(names: Iterable[str], known: Iterable[str]) -> list[str]:
    """Names that are no student's id, however accents are written; in order."""
    spelled = {unicodedata.normalize("NFC", id) for id in known}
    return [name for name in names if unicodedata.normalize("NFC", name) not in spelled]


def check_students(names: list[str] | None, known: Iterable[str], what: str) -> list[str] | None:
    """The students' ids as the class directory spells them; None means everybody.

    Args:
        names: As given on the command line.
        known: Existing ids.
        what: What the message says about an unknown one, e.g. `handed in nothing`.

    Raises:
        ClassDirError: No name was given, or some are unknown; all of these are named.
    """
    if names is None:
        return None
    if not names:
        raise ClassDirError("--students names nobody. Give ids: --students ada,ben")
    spelled = {unicodedata.normalize("NFC", id): id for id in known}
    wanted = [unicodedata.normalize("NFC", name) for name in names]
    unknown = [name for name in wanted if name not in spelled]
    if unknown:
        named = few([f"'{name}'{did_you_mean(name, spelled)}" for name in unknown])
        raise ClassDirError(
            f"--students: {named} {what}. Nothing was done; correct the list, or leave --students "
            "out to take everybody."
        )
    return list(dict.fromkeys(spelled[name] for name in wanted))


def few(names: Sequence[str], most: int = 5) -> str:
    """List some names, and say how many more there are."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """` (did you mean 'ada'?)`, or nothing if no known name is similar."""
    plain = {_plain(other): other for other in known}
    near = get_close_matches(_plain(name), plain, n=1, cutoff=0.7)
    near += [other for other in plain if _plain(name) and other.startswith(_plain(name))]
    return f" (did you mean '{plain[near[0]]}'?)" if near else ""


def _plain(name: str) -> str:
    """A name without case and accents."""
    letters = unicodedata.normalize("NFKD", name.casefold())
    return "".join(letter for letter in letters if not unicodedata.combining(letter))


def is_protected(folder: Path) -> bool:
    """Whether formgrader, in this class directory, shows only cleaned student work."""
    return STEP in nbgrader_config(folder).HTMLExporter.get("preprocessors", [])


def nbgrader_config(folder: Path) -> Config:
    """The traitlets config of a class directory: its own file, with its paths made absolute."""
    config = PyFileConfigLoader("nbgrader_config.py", path=str(folder)).load_config()
    config.CourseDirectory.root = str(folder)
    url = config.CourseDirectory.get("db_url", "")
    relative = str(url).removeprefix("sqlite:///")
    if relative != url and not Path(relative).is_absolute():
        config.CourseDirectory.db_url = f"sqlite:///{folder / relative}"
    return config
