"""A signal's handler that a student's code has set runs beside that code, never beside the check.

Python calls a handler between any two steps of whatever runs, and hands it the frame that runs: of
the check, if a timer rings after a function has returned. Here it is called where the student's
code runs, with a stack of its own; a signal that comes while the check looks is let pass.
"""

from __future__ import annotations

import _signal
import signal
from collections.abc import Callable
from functools import partial
from types import FrameType, FunctionType
from typing import Any

from torch.utils.data._utils import signal_handling

from autograde.sandbox.reaching import shows_the_check

OthersLeft = Callable[[], bool]
"""Takes away handlers that were set in another way, and says whether there were any."""


def keep_beside_students_code(alone: Callable[..., Any]) -> OthersLeft:
    """From now on, in this process.

    Args:
        alone: See `stacks.Alone`.
    """
    set_, get, default = _signal.signal, _signal.getsignal, _signal.SIG_DFL
    numbers = sorted(map(int, signal.valid_signals()))
    missing, usual = object(), {}
    for number in numbers:
        handler = get(number)
        if type(handler) is not FunctionType and _is_harmless(handler):
            usual[number] = handler

    def set_kept(number: int, handler: Any) -> Any:
        return _asked_for(set_(number, _kept(handler, alone)))

    def others_left() -> bool:
        found = [
            number
            for number in numbers
            if (now := get(number)) is not usual.get(number, missing) and not _is_harmless(now)
        ]
        for number in found:
            set_(number, default)
        return bool(found)

    _signal.signal, _signal.getsignal = set_kept, lambda number: _asked_for(get(number))
    for name in ("signal", "getsignal"):
        getattr(signal, name).__wrapped__ = getattr(_signal, name)
    return others_left


def interrupts() -> tuple[Callable[[], Any], Callable[[], Any]]:
    """Two functions for this thread: one puts interrupts off, the other lets them come."""
    mask, interrupt = _signal.pthread_sigmask, [int(signal.SIGINT)]
    return (
        partial(mask, int(signal.SIG_BLOCK), interrupt),
        partial(mask, int(signal.SIG_UNBLOCK), interrupt),
    )


def _kept(handler: Any, alone: Callable[..., Any]) -> Any:
    if _is_harmless(handler):
        return handler

    def handled(number: int, frame: FrameType | None) -> Any:
        if alone.is_on():
            return alone(handler, (number, None if shows_the_check(frame) else frame))
        return None

    handled.asked_for = handler
    return handled


HANDLED = next(c for c in _kept.__code__.co_consts if getattr(c, "co_name", "") == "handled")


def _asked_for(handler: Any) -> Any:
    return handler.asked_for if getattr(handler, "__code__", None) is HANDLED else handler


def _is_harmless(handler: Any) -> bool:
    """Whether it is Python's own, that of a DataLoader for its workers, or kept already."""
    if type(handler) is FunctionType:
        code = handler.__code__
        return code is HANDLED or code.co_filename == signal_handling.__file__
    return not callable(handler) or handler is signal.default_int_handler
