"""What else of a student's own code runs while a loop to fix is called: nobody counts its lines.

A text shows what a loop calls by its name. Not so what stands under the name of a builtin, what an
operator does, what was put into a library, what a library made of a text. So Python counts in C, as
for cProfile, each code that runs in the call: of a library, of the loop, or of neither.

Libraries make code from texts, too, as for a data class: it counts where other code of the
student's calls it.
"""

from __future__ import annotations

import dis
import re
from _lsprof import Profiler
from collections.abc import Callable, Iterable, Iterator
from threading import getprofile, setprofile
from types import CodeType, FrameType, FunctionType
from typing import Any

from autograde.kinds.fix import codes_in, hash_of
from autograde.sandbox import reaching
from autograde.sandbox.stacks import Alone, nothing

MOST_TOLD, MOST_NAME = 50, 80
"""How much code is told of, the largest, and characters of a name."""
CALLS = frozenset(dis.opmap[name] for name in dis.opmap if re.match("CALL(?!_INTRINSIC)", name))
"""Of Python's instructions those that call."""


FROM_TEXTS = ("<ipython-", "<timed ", "<magic-", "<timeit-", "<doctest ", "<console>", "<stdin>")
"""Where code is from that a student wrote, though it is in no file."""
OF_DATA_CLASSES = "__create_fn__.<locals>."


class Further:
    """Looks on while a function is called.

    Args:
        function: The loop.
        tell: Tells the grader that somebody looked away meanwhile.
    """

    def __init__(self, function: Any, tell: reaching.Tell) -> None:
        code = function.__code__ if type(function) is FunctionType else None
        self.own = set(codes_in(code)) if code else set[CodeType]()
        self.code, self.tell = code, tell
        self.ran: set[CodeType] = set()

    def watching(self, alone: Alone) -> Alone:
        """The same, with what is called looked at."""

        def watched(function: Callable[..., Any], args: Any = (), kwargs: Any = nothing) -> Any:
            counter = Profiler(subcalls=True, builtins=False)
            try:
                counter.enable()
            except ValueError:  # from Python 3.12 on: an earlier cell has not ended its own
                self.tell(reaching.UNCOUNTED)
                return alone(function, args, kwargs)
            before = getprofile()
            setprofile(self._in_a_thread)
            try:
                return alone(function, args, kwargs)
            finally:
                setprofile(before)
                counter.disable()
                ran = counter.getstats()
                self._note({one.code for one in ran}, ((a.code, b.code) for a, b in _calls(ran)))

        return watched

    def _in_a_thread(self, frame: FrameType, event: str, _value: Any) -> None:
        """Called for each call in a thread that is started meanwhile, which the counter is not."""
        if event == "call":
            caller = frame.f_back and frame.f_back.f_code
            self._note({self.code, frame.f_code}, [(caller, frame.f_code)])

    def _note(self, ran: set[Any], calls: Iterable[tuple[Any, Any]]) -> None:
        if self.code and self.code not in ran:
            self.tell(reaching.UNCOUNTED)
        of_nobody = {code for code in ran if type(code) is CodeType and reaching.is_students(code)}
        of_nobody -= self.own
        self.ran |= {code for code in of_nobody if is_surely_written(code)}
        made = {c for c in of_nobody - self.ran if not c.co_qualname.startswith(OF_DATA_CLASSES)}
        calls = [pair for pair in calls if pair[1] in made] if made else []
        for _ in made:  # a chain is no longer
            called = {code for caller, code in calls if caller in self.own or caller in self.ran}
            if called <= self.ran:
                break
            self.ran |= called

    def found(self) -> dict[str, list[Any]]:
        """Name and size of each further code, by its hash."""
        sizes = {hash_of(code): [code.co_qualname[:MOST_NAME], size_of(code)] for code in self.ran}
        return dict(sorted(sizes.items(), key=lambda one: -one[1][1])[:MOST_TOLD])


def size_of(code: CodeType) -> int:
    """Lines of a code, or its calls if there are more: one line has room for many."""
    lines = {line for _, _, line in code.co_lines() if line is not None}
    return max(len(lines), sum(one in CALLS for one in code.co_code[::2]))


def is_surely_written(code: CodeType) -> bool:
    """Whether code is of a cell or a file, and not of a text that a library may have made."""
    return code.co_filename[:1] != "<" or code.co_filename.startswith(FROM_TEXTS)


def _calls(ran: list[Any]) -> Iterator[tuple[Any, Any]]:
    """Pairs of a caller and what it called, as cProfile's counter has them."""
    for caller in ran:
        for called in caller.calls or ():
            yield caller, called
