"""A copy of what an exercise asks to write by hand is not run in a student's process.

    torch's     its file read again, or compiled from its text: functions without a guard
    the course's     a code with a guard, taken over into a function from which the guard is gone

An audit hook, which nothing takes off again, sees every code that is run or made a function. It
compares bytecode, not names; what somebody has written that does the same is other bytecode.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Iterable, Iterator
from types import CodeType, FunctionType
from typing import Any

from autograde.exercise import NotAllowedError

Known = dict[tuple[str, ...], set[bytes]]
"""Bytecode by the names that it looks up, which are compared first."""
LONG = 100
"""Bytes of bytecode that nobody writes twice by chance; a shorter method counts as its class."""


Hook = Callable[[str, tuple[Any, ...]], None]


def install(hook: Hook) -> None:
    """From now on, in this process and its forks."""
    sys.addaudithook(hook)
    gc.freeze()  # the hook, too: who looks through all objects does not find it


def hook_for(guarded: Iterable[CodeType], guard: Any, by_hand: Iterable[FunctionType]) -> Hook:
    """What refuses copies.

    Args:
        guarded: Codes that hold the guard.
        guard: A constant that all of them hold.
        by_hand: Functions of other packages, as their files define them.
    """
    return _hook(_by_names(guarded), guard, _by_names(_originals(by_hand)))


def _hook(guarded: Known, guard: Any, originals: Known) -> Hook:
    code_type, kind, fault = CodeType, type, NotAllowedError

    def is_copy(code: CodeType) -> bool:
        waiting = [code]
        for one in waiting:  # grows on the way
            names = one.co_names
            if names in originals and one.co_code in originals[names]:
                return True
            if names in guarded and guard not in one.co_consts and one.co_code in guarded[names]:
                return True
            waiting += [const for const in one.co_consts if kind(const) is code_type]
        return False

    def look(event: str, args: tuple[Any, ...]) -> None:
        if event != "exec" and event != "function.__new__":
            return
        if kind(args[0]) is code_type and is_copy(args[0]):
            raise fault(
                "This code is a copy of a function that an exercise asks to write yourself: it is "
                "not run here."
            )

    return look


def _by_names(codes: Iterable[CodeType]) -> Known:
    known: Known = {}
    for code in codes:
        known.setdefault(code.co_names, set()).add(code.co_code)
    return known


def _originals(functions: Iterable[FunctionType]) -> Iterator[CodeType]:
    """The codes of functions as their files have them; of a method also its class's."""
    for function in functions:
        module = sys.modules[function.__module__]
        found = list(_inside(module.__loader__.get_code(module.__name__)))
        name = function.__qualname__
        yield from (c for c in found if c.co_qualname == name and len(c.co_code) >= LONG)
        owner = name.rpartition(".")[0]
        yield from (c for c in found if owner and c.co_qualname == owner)


def _inside(code: CodeType) -> Iterator[CodeType]:
    for const in code.co_consts:
        if isinstance(const, CodeType):
            yield const
            yield from _inside(const)
