"""Programs that a student's code starts while one of its functions is asked: the grader is told.

Guards are in force in the student's process and in its forks. A program begins without them: a
fresh interpreter calls what an exercise asks to write by hand. Another Python is refused then, and
every other program is told, but for a few that show how the machine is, and for those of torch's
compiler. What an earlier cell has started stands still meanwhile (`still`).
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable
from pathlib import PosixPath
from types import FrameType
from typing import Any

import torch

STARTED = "autograde.started"
"""Event of our own: `multiprocessing` starts interpreters past the events of Python."""
EVENTS = {"subprocess.Popen", "os.exec", "os.posix_spawn", "os.system", "pty.spawn", STARTED}
PYTHON = re.compile(r"python|/proc/", re.IGNORECASE)
SHOWS = re.compile(
    r"(\S*sh )*(-c )?((\S*/)?(nvidia-smi|lscpu|nproc|uname|free|ldconfig|git) )*"
    r"(\S*/)?(nvidia-smi|lscpu|nproc|uname|free|ldconfig|git (status|rev-parse|log|describe|"
    r"(--)?version))( [\w\s./=,:-]*)?"
)
"""Programs that show something of the machine or the folder, and compute nothing."""
COMPILER = str(os.path.join(os.path.dirname(torch.__file__), "_inductor"))
WHY = (
    "Another Python was started while your function was called. It runs without what this exercise "
    "forbids, so it may not be started then. Compute the answer in the function itself."
)


def install() -> None:
    """Let an event tell of the interpreters that `multiprocessing` starts."""
    import _posixsubprocess

    start = _posixsubprocess.fork_exec

    def fork_exec(words: Any, programs: Any, *more: Any) -> int:
        sys.audit(STARTED, programs, words)
        return start(words, programs, *more)

    _posixsubprocess.fork_exec = fork_exec


def looked_at() -> Callable[[FrameType | None, bool, tuple[Any, ...]], tuple[bool, bool]]:
    """What says of an event in EVENTS whether to tell of it, and whether to refuse; and asks where
    from, with what arguments, and whether the exercise is written by hand: then nothing need be
    compiled (`by_hand.as_written`)."""
    command, compiles, shows, python = _command, _compiles, SHOWS.fullmatch, PYTHON.search
    path, environment = os.environ.get("PATH"), os.environ

    def look(frame: FrameType | None, by_hand: bool, args: tuple[Any, ...]) -> tuple[bool, bool]:
        given = args[-1] if type(args[-1]) is dict else environment
        text = command(args)
        if (not by_hand and compiles(frame)) or (given.get("PATH", path) == path and shows(text)):
            return False, False
        return True, python(text) is not None

    return look


def _command(args: tuple[Any, ...]) -> str:
    words = [w for part in args[:2] for w in (part if type(part) in (list, tuple) else (part,))]
    return " ".join(os.fsdecode(w) for w in words if type(w) in (str, bytes, PosixPath))


def _compiles(frame: FrameType | None) -> bool:
    """Whether torch's compiler starts it, through nothing but the standard library."""
    from autograde.sandbox.reaching import PACKAGES, STANDARD

    while frame is not None:
        file = frame.f_code.co_filename
        if file == __file__:
            frame = frame.f_back
            continue
        if not file.startswith((*STANDARD, "<frozen")) or file.startswith(PACKAGES):
            return file.startswith(COMPILER)
        frame = frame.f_back
    return False
