"""An answer to a case: a function is called on it, and what it raises is an answer as well.

The conditions are the same in the student's process, for the reference in the referee, and in
`check` on a laptop: fresh settings, the same random numbers each time, and a copy of the case.
"""

from __future__ import annotations

import inspect
import linecache
import random
import re
import sys
import sysconfig
import traceback
from collections import UserDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import torch

from autograde.apart import RaisedApart, describing
from autograde.devices import advice, breaks_a_gpu
from autograde.exercise import Answer, AnswerError, Case, Exercise, NotAllowedError
from autograde.words import AT_THE_LINE, BY_A_MODEL
from course.state import fresh_settings, on_the_cpu, undisturbed

CPU = torch.device("cpu")
HERE = str(Path(__file__).parent)


@dataclass(frozen=True)
class Raised:
    """The function raised instead of answering: the exception's type and text."""

    kind: str
    text: str = ""


MOST_TEXT = 300
"""Characters of an exception's text; a message cannot be flooded."""
BLANK = Raised("NotImplementedError")
"""What a cell as released raises; torch's own errors of this kind have a text."""


def answer_of(
    exercise: Exercise,
    function: Callable[..., Any],
    case: Case,
    *,
    device: Any = CPU,
    spare: bool = False,
) -> Answer | Raised:
    """Call a function on a case, with the same random numbers each time: its answer, or what it
    raised.

    Args:
        device: Where it computes.
        spare: Try it on the CPU first, and give what it raised there if that would cost this
            process its GPU: an index that is out of range.
    """
    if spare and device != CPU:
        first = answer_of(exercise, function, case)
        if isinstance(first, Raised) and breaks_a_gpu(first.text):
            return first
    describe = partial(_described, exercise, function)
    try:
        with usual_torch(device), describing(describe):
            _look_at_arguments(exercise, function)
            if exercise.kind == "fix":
                from autograde.kinds.fix import must_differ

                must_differ(exercise, function)
            return exercise.run(function, Drawn(case), device)
    except RaisedApart as fault:
        return fault.raised
    except Exception as fault:
        return describe(fault)


def _described(exercise: Exercise, function: Callable[..., Any], fault: Exception) -> Raised:
    """What was raised, as an answer."""
    if isinstance(fault, NotImplementedError):
        return Raised("NotImplementedError", uncoloured(str(fault)))
    if isinstance(fault, (AnswerError, NotAllowedError)) and _raised_by_us(fault):
        return Raised(type(fault).__name__, uncoloured(str(fault)))
    text = shortened(" ".join(uncoloured(str(fault)).split()))
    if _in_our_own_code(fault, function):
        return Raised("AnswerError", _not_understood(exercise, type(fault).__name__, text))
    line = BY_A_MODEL if _by_a_model(fault, function) else _line_of(fault, function)
    said = text.removesuffix(".") if line else text
    own = "Own" if isinstance(fault, (AnswerError, NotAllowedError)) else ""
    return Raised(own + type(fault).__name__, said + line + advice(text))


COLOURS = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")


def uncoloured(text: str) -> str:
    """A text without a terminal's codes for colours and bold letters, which torch's errors have."""
    return COLOURS.sub("", text)


def shortened(text: str, most: int = MOST_TEXT) -> str:
    """A text of at most so many characters, cut after a sentence, or else after a word."""
    if len(text) <= most:
        return text
    cut = text[: most - 1]
    if (end := cut.rfind(". ")) > most // 3:
        return cut[: end + 1]
    return (cut.rpartition(" ")[0] or cut) + "…"


def _look_at_arguments(exercise: Exercise, function: Callable[..., Any]) -> None:
    """Refuse a function that cannot be called with as many arguments as it will be given."""
    names = exercise.arguments
    try:
        inspect.signature(function).bind(*names)
    except TypeError:
        takes = inspect.signature(function)
        name = getattr(function, "__name__", "Your function")
        raise AnswerError(
            f"{name}{takes} cannot be called as {exercise.signature}: it gets {len(names)} "
            "arguments, in this order. You may choose their names."
        ) from None
    except ValueError:  # a built-in function, which has no signature to look at
        pass


def _raised_by_us(fault: BaseException) -> bool:
    """Whether the line that raised an exception is one of ours."""
    *_, (frame, _) = traceback.walk_tb(fault.__traceback__)
    return frame.f_code.co_filename.startswith(HERE)


def _not_understood(exercise: Exercise, kind: str, text: str) -> str:
    what = f"what {exercise.name} returned or left behind"
    return f"The check could not read {what} ({kind}: {text}), though your own code raised nothing."


def _in_our_own_code(fault: BaseException, function: Callable[..., Any]) -> bool:
    """Whether an exception came through our own files alone: the student's code raised nothing."""
    files = {frame.f_code.co_filename for frame, _ in traceback.walk_tb(fault.__traceback__)}
    own = _file_of(function)
    return own is not None and own not in files and all(name.startswith(HERE) for name in files)


def _by_a_model(fault: BaseException, function: Callable[..., Any]) -> bool:
    """Whether a module raised that the check called, and no line of the student's was running."""
    files = {frame.f_code.co_filename for frame, _ in traceback.walk_tb(fault.__traceback__)}
    known = (str(Path(HERE).parent / "course"), HERE, *sysconfig.get_paths().values())
    return (
        _file_of(function) is not None
        and torch.nn.modules.module.__file__ in files
        and all(name.startswith(known) and name != _file_of(function) for name in files)
    )


def _line_of(fault: BaseException, function: Callable[..., Any]) -> str:
    """The innermost line of the student's own file that an exception came through."""
    own, line = _file_of(function), ""
    for frame, number in traceback.walk_tb(fault.__traceback__):
        if frame.f_code.co_filename == own:
            line = linecache.getline(own, number).strip()
    return f"{AT_THE_LINE}{line[:100]}" if line else ""


def _file_of(function: Callable[..., Any]) -> str | None:
    """The file that a function, or a class's first method, was written in."""
    codes = [function, *vars(function).values()] if isinstance(function, type) else [function]
    found = (getattr(inspect.unwrap(one), "__code__", None) for one in codes)
    return next((code.co_filename for code in found if code is not None), None)


@contextmanager
def usual_torch(device: Any) -> Iterator[None]:
    """Fresh settings inside, whatever a notebook has set; its own are restored afterwards.

    This covers the seeds of torch, NumPy and Python, torch's default dtype, grad and inference
    mode, autocast, and torch's compiler, which does not compile.
    """
    computes = torch.device(device)
    # Graded on the CPU, an answer's torch.manual_seed() seeds every device in use all the same.
    with (
        undisturbed(None if computes == CPU else computes),
        fresh_settings(),
        on_the_cpu(),
        _uncompiled(),
    ):
        generator = torch if device.type == "cuda" else torch.default_generator
        generator.manual_seed(0)  # torch's own also notes down the stack, for CUDA
        random.seed(0)
        np.random.seed(0)
        yield


class Drawn(UserDict[str, Any]):
    """A case that stays as it was drawn: each look at a value gives a copy of it.

    What a function was handed is its own to change; what is read from the case afterwards, to judge
    by, is not what the function has made of it.
    """

    def __getitem__(self, key: str) -> Any:
        """A copy of the value."""
        return copy_of(self.data[key])


@contextmanager
def _uncompiled() -> Iterator[None]:
    """Inside, what torch.compile has made runs as it was written: the same answer, without the
    half a minute that a first call may take, and without a C++ compiler."""
    is_loaded = "torch._dynamo.eval_frame" in sys.modules
    stance = torch.compiler.set_stance("force_eager") if is_loaded else nullcontext()
    with stance, mock.patch.object(torch, "compile", _as_it_is):
        yield


def _as_it_is(model: Any = None, **_options: Any) -> Any:
    """What torch.compile stands for meanwhile, called directly or as a decorator with options."""
    return _as_it_is if model is None else model


def copy_of(case: Any) -> Any:
    """A copy of plain data, so that no function sees what another changed in place."""
    if isinstance(case, torch.Tensor):
        return case.clone()
    if isinstance(case, dict):
        return {key: copy_of(value) for key, value in case.items()}
    if isinstance(case, (list, tuple)):
        return [copy_of(value) for value in case]
    return case
