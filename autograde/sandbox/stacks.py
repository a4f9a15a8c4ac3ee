"""Stacks of their own, at whose bottom a student's code runs: it has no callers to be read.

A frame leads to its caller, and so from a student's function to the variables of the check that
called it. A greenlet's stack begins with the function itself, in the same thread.

While the check itself runs, nothing of a student's runs beside it: what Python calls at each call
or line is taken away, and no garbage is collected, whose finalizers Python would call. Both happen
before the check goes on, on a third stack between the two, which leads to neither.
"""

from __future__ import annotations

import contextvars
import ctypes
import gc
import operator
import sys
from collections.abc import Callable
from functools import cache, partial
from threading import get_ident
from typing import Any

Alone = Callable[..., Any]
"""Calls a function, as `alone(function, args, kwargs)`, at the bottom of a stack of its own: it has
no callers, through whose frames it could read what judges it. The thread stays the same. Whether
one is on such a stack says `alone.is_on()`."""
nothing: dict[str, Any] = {}


def as_usual(function: Callable[..., Any], args: Any = (), kwargs: Any = nothing) -> Any:
    """Calls a function where it is asked to."""
    return function(*args, **kwargs)


def greenlets() -> Any:
    """A greenlet's stack begins with it. A student's process cannot import it: see `stubs`."""
    from greenlet import getcurrent, greenlet

    modules_of_greenlets()
    return greenlet, greenlet.switch, greenlet.gr_context.__set__, getcurrent


def stack_of_its_own(found: Any) -> Alone:
    """In this thread, all that is called has one context: what a cell sets there, as np.seterr
    does, lasts, and who looks at its doings has another. What that has set meanwhile holds inside.
    So does whether garbage is collected: from now on none is where the check runs.
    """
    greenlet, switch, take_context, current = found
    root = current()
    copied, theirs, this_thread = contextvars.copy_context, contextvars.copy_context(), get_ident()
    before, missing = dict(theirs), object()
    collect, do_not_collect, collects = gc.enable, gc.disable, gc.isenabled
    wanted = [collects()]
    at_once, call = tuple, operator.call
    not_watched = (partial(sys.setprofile, None), partial(sys.settrace, None))
    monitors = getattr(sys, "monitoring", None)  # by which cProfile watches, from Python 3.12 on

    def run(context: Any, function: Callable[..., Any], args: Any, kwargs: Any = nothing) -> Any:
        stack = greenlet(function)
        take_context(stack, context)
        return switch(stack, *args, **kwargs)

    def between(function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        stack = greenlet(function)
        take_context(stack, theirs)
        if wanted[0]:
            collect()
        try:
            return switch(stack, *args, **kwargs)
        finally:
            at_once(map(call, not_watched))  # in one step, between whose parts nothing is called
            for tool in range(6) if monitors else ():
                if monitors.get_tool(tool) is not None:
                    monitors.set_events(tool, 0)
            wanted[0] = collects()
            do_not_collect()

    def alone(function: Callable[..., Any], args: Any = (), kwargs: Any = nothing) -> Any:
        now = copied()
        if get_ident() != this_thread:
            return run(now, function, args, kwargs)
        of_now = [(at, value) for at, value in now.items() if before.get(at, missing) is not value]
        tokens = run(theirs, _set, (of_now,)) if of_now else []
        try:
            if current() is not root:
                return run(theirs, function, args, kwargs)
            return switch(greenlet(between), function, args, kwargs)
        finally:
            if tokens:
                run(theirs, _set_back, (tokens,))

    do_not_collect()
    alone.is_on = lambda: current() is not root
    return alone


def _set(values: list[tuple[Any, Any]]) -> list[tuple[Any, Any]]:
    return [(at, at.set(value)) for at, value in values]


def _set_back(tokens: list[tuple[Any, Any]]) -> None:
    for at, token in tokens:
        at.reset(token)


@cache
def modules_of_greenlets() -> list[str]:
    """Names of the modules that are loaded with them: asked first in the warm parent, as a look at
    every module's name costs a fork 8 ms, in which it copies what holds the names."""
    return [name for name in sys.modules if name.partition(".")[0] == "greenlet"]


def show_no_stacks() -> None:
    """From now on no stack shows its frames, nor who called it: greenlet's type, which is among
    `object.__subclasses__()`, loses every attribute but the one that it needs itself."""
    from greenlet import greenlet

    (shown,) = gc.get_referents(vars(greenlet))
    for name in [name for name in shown if name[:2] != "__" and name != "run"]:
        del shown[name]
    ctypes.pythonapi.PyType_Modified(ctypes.py_object(greenlet))
