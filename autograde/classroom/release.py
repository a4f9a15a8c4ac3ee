"""The student release: stock nbgrader, called through its API, one assignment at a time."""

from __future__ import annotations

import functools
import logging
import os
import re
import sys
import warnings
from pathlib import Path

from traitlets.config import Config

from autograde.class_dir import nbgrader_config
from autograde.classroom.files import FULL


class NbgraderFault(RuntimeError):
    """nbgrader failed; the message contains its last log line."""


def release(folder: Path, assignment: str) -> Path:
    """Make release/ASSIGNMENT from source/ASSIGNMENT: no solutions, no hidden checks, no outputs.

    Args:
        folder: A class directory, absolute.
        assignment: Its name.

    Returns:
        The student notebook.

    Raises:
        NbgraderFault: nbgrader refused the source.
    """
    config = nbgrader_config(folder)
    config.ClearMarkScheme.enforce_metadata = False  # as CONFIG says; a class may be older
    ask_nbgrader(config, "generate_assignment", assignment, force=True, create=True)
    return folder / "release" / assignment / f"{assignment}.ipynb"


def ask_nbgrader(config: Config, command: str, *args: str, **options: object) -> str:
    """Call one of nbgrader's commands through its API; returns its log.

    Raises:
        NbgraderFault: The command did not succeed.
    """
    from nbgrader.apps.api import NbGraderAPI

    logging.getLogger("alembic").setLevel(logging.WARNING)
    # There nbgrader's gradebook repeats, with an SQL statement's parameters, what it raises.
    logging.getLogger("tornado.application").setLevel(logging.CRITICAL)
    let_alembic_be_found()
    _ask_alembic_once()
    api = NbGraderAPI(config=config)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # nbgrader's own queries, and odd cell ids: named elsewhere
        result = getattr(api, command)(*args, **options)
    log = result.get("log", "") or ""
    if not result["success"]:
        raise NbgraderFault(last_words(f"{log}\n{result.get('error') or ''}"))
    return log


def let_alembic_be_found() -> None:
    """Put our commands on PATH, because nbgrader calls alembic by name for a new gradebook."""
    scripts = str(Path(sys.executable).parent)
    if scripts not in os.environ.get("PATH", "").split(os.pathsep):
        os.environ["PATH"] = scripts + os.pathsep + os.environ.get("PATH", "")


@functools.cache
def _ask_alembic_once() -> None:
    """For each new gradebook nbgrader starts alembic, seconds, to hear the same version again."""
    from nbgrader import api

    api.get_alembic_version = functools.cache(api.get_alembic_version)


def last_words(log: str) -> str:
    """The line in an nbgrader log that says what went wrong.

    A line that only points at those above it, as nbgrader's own exception does, says nothing. Where
    the disk is full, what comes before and after comes of that.
    """
    lines = [line.strip() for line in log.splitlines() if line.strip()]
    lines = [line for line in lines if "above traceback" not in line]
    raised = [line for line in lines if re.match(r"[\w.]*(Error|Exception|Exit|Entry)\b", line)]
    logged = [line for line in lines if line.startswith("[ERROR]")]
    full = [line for line in lines if FULL.search(line)]
    return (full or raised or logged or lines or ["nbgrader gave no reason"])[0]
