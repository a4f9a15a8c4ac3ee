"""nbgrader's side of a class run: one process writes results to its gradebook and folders.

A result takes the place of stock Execute; the rest of `nbgrader autograde` stays the same:
restoring locked cells, saving scores, late penalties, the notebook in autograded/. Writes are
idempotent, so one that was interrupted is simply repeated.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

from jsonschema.exceptions import best_match
from jsonschema.validators import validator_for
from nbformat import NotebookNode, from_dict, reader
from nbgrader import api
from nbgrader.coursedir import CourseDirectory
from nbgrader.nbgraderformat import common
from nbgrader.preprocessors import NbGraderPreprocessor
from sqlalchemy.engine import make_url
from sqlalchemy.exc import SQLAlchemyError
from traitlets.config import Config

from autograde.class_dir import ClassDirError, nbgrader_config
from autograde.classroom.cells import restore
from autograde.classroom.clean import clean_notebook, files_beside, given_sources
from autograde.classroom.files import lock, write_whole
from autograde.classroom.release import NbgraderFault, ask_nbgrader, let_alembic_be_found
from autograde.classroom.settled import SaveGrades, looked_at_before, noted
from autograde.classroom.stamps import MisreadError, read_stamp
from autograde.classroom.verdicts import own_fault, verdict_path


class RestoreCells(NbGraderPreprocessor):
    """Makes a submission's graded cells match the assignment, and the rest harmless.

    (Stock DeduplicateIds leaves what stock CheckCellMetadata refuses.)
    """

    assigned: ClassVar[list[dict[str, Any]]] = []
    """The assignment's cells that have a grade_id; set for each submission."""
    given: ClassVar[frozenset[str]] = frozenset()
    """Sources that everybody was given."""

    def preprocess(self, nb: NotebookNode, resources: dict) -> tuple[NotebookNode, dict]:
        """Settle types, metadata and locked sources, put missing cells back, clean the others."""
        restore(nb.cells, [from_dict(cell) for cell in self.assigned])
        clean_notebook(nb.cells, nb.metadata, self.given)
        return nb, resources


class FillIn(NbGraderPreprocessor):
    """Replaces Execute: the outputs are known, because the cells ran elsewhere."""

    known: ClassVar[list[dict[str, Any]]] = []
    """Source and outputs of each code cell; set for each submission, as config is copied a lot."""

    def preprocess(self, nb: NotebookNode, resources: dict) -> tuple[NotebookNode, dict]:
        """Fill in every code cell's outputs."""
        cells = [cell for cell in nb.cells if cell.cell_type == "code"]
        if [cell.source for cell in cells] != [known["source"] for known in self.known]:
            raise RuntimeError(
                "the cells in nbgrader's gradebook differ from the source notebook: run autograde "
                "release again"
            )
        for count, (cell, known) in enumerate(zip(cells, self.known, strict=True), start=1):
            cell.outputs = [from_dict(output) for output in known["outputs"]]
            cell.execution_count = None if known.get("not_run") else count
        return nb, resources


def write(job: dict[str, Any]) -> dict[str, Any]:
    """Write a result: reasons to verdicts/, points to the gradebook, the notebook to autograded/.

    Args:
        job: `folder` (the class directory), `student`, `path` (for messages), `assignment`,
            `seed` and the `result` of `autograde.classroom.marking.mark`.

    Returns:
        `reason`: why there is no grade; empty if there is one.
    """
    with _alone(Path(job["folder"])):
        return {"reason": _write(job)}


def _write(job: dict[str, Any]) -> str:
    folder, assignment, result = Path(job["folder"]), job["assignment"]["name"], job["result"]
    reason = result.get("reason", "")
    if result["graded"]:
        reason = _bad_timestamp(folder, assignment, job)
    if result["graded"] and not reason:
        try:
            _into_gradebook(folder, assignment, job)
        except Exception as fault:
            words = str(fault) if isinstance(fault, NbgraderFault) else f"{fault!r}"
            reason = own_fault(job["path"], f"nbgrader gave up: {words}")
    if reason and (folder / "autograded" / job["student"] / assignment).exists():
        reason += " The grade of an earlier submission stands until then."
    document: dict[str, Any] = {"not_graded": reason, "notes": result["notes"]}
    document["looked_at"] = noted(folder, assignment, job["student"])  # by that earlier grade
    if not reason:
        kept = ("ended", "checks", "notes", "cleaned", "not_run", "noted")
        document = {"seed": job["seed"], "device": result.get("device", job.get("device", "cpu"))}
        document |= {k: result[k] for k in kept if k in result}
        document["code_cells"] = len(result["cells"])
        document["looked_at"] = SaveGrades.now
    document["seconds"] = result["seconds"]
    text = json.dumps(document, indent=2, ensure_ascii=False)
    write_whole(verdict_path(folder, assignment, job["student"]), text)
    return reason


def _bad_timestamp(folder: Path, assignment: str, job: dict[str, Any]) -> str:
    """Why nbgrader could not read when the work was handed in; empty if it can, or need not."""
    path = folder / "submitted" / job["student"] / assignment / "timestamp.txt"
    text = path.read_text("utf-8", errors="replace").strip() if path.is_file() else ""
    try:
        if text:
            read_stamp(text)
    except (ValueError, OverflowError) as fault:
        why = str(fault) if isinstance(fault, MisreadError) else "which is not a time"
        return (
            f"{job['path']}: its timestamp.txt holds {text[:40]!r}, {why}. Write it as 2026-03-01 "
            "12:00:00 UTC, or remove the file; then grade again."
        )
    return ""


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """One write at a time: others are of another assignment's run, or of one that was killed."""
    descriptor = lock(folder / "journal" / ".writing", wait=True)
    try:
        yield
    finally:
        os.close(descriptor)


def _into_gradebook(folder: Path, assignment: str, job: dict[str, Any]) -> None:
    about, result = job["assignment"], job["result"]
    RestoreCells.assigned, FillIn.known = about["cells"], result["cells"]
    RestoreCells.given = given_sources(about)
    SaveGrades.before = looked_at_before(folder, assignment, job["student"])
    config = _with_our_steps(nbgrader_config(folder))
    share_engines()
    check_schemas_once()
    pass_over_marks()
    ask_nbgrader(config, "autograde", assignment, job["student"], force=True, create=True)
    source = folder / "source" / assignment
    files_beside(
        folder / "autograded" / job["student"] / assignment,
        f"{assignment}.ipynb",
        Path(job["path"]).read_bytes() if result.get("cleaned") else None,
        {path.relative_to(source).as_posix() for path in source.rglob("*") if path.is_file()},
    )


def _with_our_steps(config: Config) -> Config:
    """The config of a class directory with our three steps in the place of three of nbgrader's."""
    from nbgrader.converters import Autograde
    from nbgrader.preprocessors import DeduplicateIds, Execute, SaveAutoGrades

    def stock(name: str) -> list:
        return list(Autograde.class_traits()[name].default())

    sanitize, execute = stock("sanitize_preprocessors"), stock("autograde_preprocessors")
    sanitize[sanitize.index(DeduplicateIds)] = RestoreCells
    execute[execute.index(Execute)] = FillIn
    execute[execute.index(SaveAutoGrades)] = SaveGrades
    config.Autograde.sanitize_preprocessors = sanitize
    config.Autograde.autograde_preprocessors = execute
    config.NotebookExporter.optimistic_validation = True  # once, after all steps: it takes long
    return config


MARK = "\ufeff"
"""A byte order mark, as text."""
LOCK_WAIT_S = 60
"""How long a write may wait while formgrader, say, holds an SQLite gradebook."""


@lru_cache
def share_engines() -> None:
    """Let nbgrader open a gradebook repeatedly without a new SQL engine each time.

    It opens one some seven times a submission; an engine keeps its compiled statements. (Closing a
    Gradebook only empties the engine's pool of connections.)
    """
    plain = api.create_engine

    @lru_cache
    def engine_for(db_url: str, **options: Any) -> Any:
        if db_url.startswith("sqlite"):
            options["connect_args"] = {"timeout": LOCK_WAIT_S}
        return plain(db_url, **options)

    api.create_engine = engine_for


@lru_cache
def check_schemas_once() -> None:
    """Let nbgrader check cells' metadata without checking its own schema for each of them.

    That is a third of the time in which a submission is written.
    """
    validators: dict[str, Any] = {}

    def validate(instance: Any, schema: dict[str, Any]) -> None:
        text = json.dumps(schema, sort_keys=True)
        if text not in validators:
            kind = validator_for(schema)
            kind.check_schema(schema)
            validators[text] = kind(schema)
        if fault := best_match(validators[text].iter_errors(instance)):
            raise fault

    common.jsonschema = SimpleNamespace(validate=validate)


@lru_cache
def pass_over_marks() -> None:
    """Let nbformat read a notebook that begins with a byte order mark: nbgrader asks it to, and it
    would refuse."""
    plain = reader.parse_json

    def parse_json(text: str, **options: Any) -> Any:
        return plain(text.removeprefix(MARK), **options)

    reader.parse_json = parse_json


@contextmanager
def open_gradebook(folder: Path) -> Iterator[api.Gradebook]:
    """nbgrader's gradebook of a class directory, wherever its config puts it.

    Raises:
        ClassDirError: The database cannot be used: it is not a gradebook, is locked, or its server
        is not running.
    """
    share_engines()
    course = CourseDirectory(config=nbgrader_config(folder))
    let_alembic_be_found()
    try:
        with api.Gradebook(course.db_url, course.course_id) as gradebook:
            yield gradebook
    except SQLAlchemyError as fault:
        words = str(getattr(fault, "orig", None) or fault).strip().splitlines()[0]
        raise ClassDirError(
            f"The gradebook {shown_url(course.db_url)} cannot be used ({words}). Nothing in it was "
            "changed. Is the file intact, is another program using it, is its server running?"
        ) from None


def shown_url(db_url: str) -> str:
    """A database's address without its password."""
    return make_url(db_url).render_as_string(hide_password=True)
