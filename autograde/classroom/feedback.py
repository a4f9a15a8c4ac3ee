"""Feedback pages: what the checks said, then nbgrader's own page, without anything that runs.

A student who was not graded gets a short page with the reason. A page is one file that works
offline; from the student's work it keeps only text and images (see safe_html).
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Iterator
from html import escape
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from autograde.class_dir import FILTERS, nbgrader_config
from autograde.classroom.clean import clean_data
from autograde.classroom.export import read_marks
from autograde.classroom.files import FULL, write_whole
from autograde.classroom.reasons import read_verdicts
from autograde.classroom.release import NbgraderFault, ask_nbgrader
from autograde.classroom.safe_html import POLICY_TAG, sanitize_page
from autograde.sandbox.bounds import TooMuchError, at_most

PAGE = """\
<!doctype html>
<html lang="en"><meta charset="utf-8">{policy}<title>{assignment}: not graded</title>
<meta name="viewport" content="width=device-width">
<meta name="color-scheme" content="light dark">
<body style="font-family: sans-serif; max-width: 40em; margin: 3em auto; line-height: 1.5">
<h1>{assignment}</h1>
<p>Your notebook was <strong>not graded</strong>; that is not a zero.</p>
<p style="border-left: 4px solid #d55e00; padding-left: 1em">{reason}</p>
<p>Please hand it in again, or ask your instructor.</p> </body></html>
"""
BARE = """\
<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>What the checks say</title>
<meta name="viewport" content="width=device-width">
<style>body { font-family: sans-serif; max-width: 60em; margin: 2em auto; padding: 0 1em; }
pre { padding: 0.5em 1em; }</style></head><body></body></html>
"""
MAX_SOURCE = 100_000
"""Characters of a cell that a page shows."""
MAX_ATTACHED = 50 * 2**20
"""Bytes that a cell's attached pictures may take in a page."""
ROOM = 2**24
"""Bytes that nearly every page has room in."""
PAGE_S = 15.0
"""Processor time that a page may take; an ordinary one takes a quarter of a second."""
PAGE_BYTES = 2 * 2**30
"""How far the memory may grow for it."""


def write_feedback(
    folder: Path,
    assignment: str,
    students: list[str] | None = None,
    *,
    watch: Callable[[list[str]], Iterable[str]] = iter,
) -> list[Path]:
    """Write feedback/STUDENT/ASSIGNMENT/ASSIGNMENT.html for every submission that was looked at.

    Args:
        folder: A class directory, absolute.
        assignment: Its name.
        students: Only these; None takes all.
        watch: Wraps the students whose pages are written, e.g. with a progress bar.

    Returns:
        The pages.

    Raises:
        FileNotFoundError: Nothing has been graded yet, or nothing of these students.
    """
    verdicts = read_verdicts(folder, assignment)
    wanted = [student for student in verdicts if students is None or student in students]
    if not wanted:
        raise FileNotFoundError(
            f"{folder} has no graded submission of {assignment} by {', '.join(students or [])}. "
            "First: autograde grade."
        )
    waiting = _waiting(folder, assignment)
    pages = []
    for student in watch(wanted):
        page = folder / "feedback" / student / assignment / f"{assignment}.html"
        reason = verdicts[student].get("not_graded", "")
        if reason:
            what, _, _for_instructors = reason.replace(f"{folder}/", "").partition(". ")
            text = PAGE.format(
                policy=POLICY_TAG, assignment=escape(assignment), reason=escape(what)
            )
        else:
            top = "".join(_top(verdicts[student], waiting.get(student, 0)))
            text = _page_in_time(folder, assignment, student, top)
        shutil.rmtree(page.parent, ignore_errors=True)  # stock nbgrader puts students' files there
        write_whole(page, text)
        pages.append(page)
    return pages


def _page_in_time(folder: Path, assignment: str, student: str, top: str) -> str:
    """nbgrader's page made safe; what the checks say alone where that takes too long.

    Markdown can be written so that its parser takes hours: `[` fifty thousand times will do.
    """
    try:
        with at_most(PAGE_S, PAGE_BYTES):
            return _made_safe(_nbgraders_page(folder, assignment, student), top)
    except TooMuchError:
        return _made_safe("", top)


def _nbgraders_page(folder: Path, assignment: str, student: str) -> str:
    """nbgrader's own page, which can hold a student's scripts, and so is made out of the way.

    Files that a student handed in next to the notebook do not come along.
    """
    from nbgrader.converters import GenerateFeedback

    config = nbgrader_config(folder)
    steps = list(GenerateFeedback.class_traits()["preprocessors"].default())
    config.GenerateFeedback.preprocessors = [_plain_outputs(), *steps]
    config.HTMLExporter.filters = FILTERS
    config.HTMLExporter.exclude_anchor_links = True  # a heading's words are not its id
    with TemporaryDirectory(prefix="autograde-page-") as place:
        config.CourseDirectory.feedback_directory = place
        try:
            ask_nbgrader(config, "generate_feedback", assignment, student, force=True)
            return Path(place, student, assignment, f"{assignment}.html").read_text("utf-8")
        except NbgraderFault as fault:  # one student's page stops nobody else's
            if FULL.search(str(fault)):  # its words may be a student's: is it?
                write_whole(Path(place, "room"), " " * ROOM)
            return ""


def _made_safe(text: str, top: str) -> str:
    """A page that can be shown; of one that defeats nbgrader or us, what the checks say."""
    try:
        return sanitize_page(text, top)
    except TooMuchError:
        raise
    except Exception:  # too deep, say, or made by no nbgrader: no reason to show it as it is
        words = "<p>The notebook itself cannot be shown here. Ask your instructor.</p>"
        return sanitize_page(BARE, top + words)


def _plain_outputs() -> type:
    """A preprocessor that keeps outputs which can be shown; made here, as nbgrader loads slowly."""
    from nbgrader.preprocessors import NbGraderPreprocessor

    class PlainOutputs(NbGraderPreprocessor):
        """Drops scripts and widgets from outputs; a drawing (SVG) becomes a picture."""

        def preprocess_cell(self, cell: Any, resources: dict, index: int) -> tuple[Any, dict]:
            if len(cell.source) > MAX_SOURCE:
                more = f"{len(cell.source) - MAX_SOURCE:,} more characters are not shown."
                cell.source = f"{cell.source[:MAX_SOURCE]}\n\n... {more}"
            attached = len(str(cell.get("attachments") or ""))
            if attached * cell.source.count("attachment:") > MAX_ATTACHED:
                without = cell.source.replace("attachment:", "#")  # each would become a copy
                cell.source = f"(attached images that would fill this page)\n\n{without}"
            for output in cell.get("outputs", []):
                if "data" in output:
                    output["data"] = type(output["data"])(clean_data(output["data"]))
            return cell, resources

    return PlainOutputs


def _waiting(folder: Path, assignment: str) -> dict[str, int]:
    """How many answers of each student wait for a person."""
    try:
        marks = read_marks(folder, assignment).students
    except FileNotFoundError:  # nobody has marks yet, and some were looked at
        return {}
    return {mark.student: len(mark.waiting) for mark in marks}


def _top(verdict: dict[str, Any], waiting: int = 0) -> Iterator[str]:
    """What the checks said, exercise by exercise."""
    yield '<div class="container"><h1>What the checks say</h1>'
    if waiting:
        answers = "One written answer is" if waiting == 1 else f"{waiting} written answers are"
        yield f"<p><b>{answers} not graded yet</b>; the score shown is 0 until then.</p>"
    if verdict.get("ended"):
        yield f"<p>Your notebook ended early: {escape(verdict['ended'])}</p>"
    for check in verdict.get("checks", []):
        right = check["status"] == "right"
        points = f"{check['points']:g} of {check['max_points']:g} points"
        known = check["misconception"]
        seen = f" · a known mistake: <em>{escape(known)}</em>" if known else ""
        yield (
            f"<h4>{escape(check['exercise'])}: {points}{seen}</h4>"
            f'<pre style="border-left: 4px solid {"#0072b2" if right else "#d55e00"}; '
            f'white-space: pre-wrap; word-break: normal; overflow-wrap: anywhere">'
            f"{escape(check['message'])}</pre>"
        )
    yield "</div>\n"
