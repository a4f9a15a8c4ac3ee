"""A copy of what an exercise asks to write by hand is not run in a student's process.

    torch's     its file read again, or compiled from its text: functions without a guard
    the course's     a code with a guard, taken over into a function from which the guard is gone

An audit hook, which nothing takes off again, sees every code that is run or made a function. It
compares bytecode; what somebody has written that does the same is other bytecode. A function of
torch is also known by all the names that it looks up, some of them torch's private ones: statements
added to its text do not hide those, nor does getattr, which takes them as texts; and of 150,000
functions of ten other libraries none has them.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Iterable, Iterator
from inspect import CO_OPTIMIZED
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
    originals = list(_originals(by_hand))
    return _hook(_by_names(guarded), guard, _by_names(originals), list(_names_of(originals)))


def _hook(guarded: Known, guard: Any, originals: Known, named: list[frozenset[str]]) -> Hook:
    code_type, text, kind, fault = CodeType, str, type, NotAllowedError
    private = frozenset(name for names in named for name in names if _is_private(name))

    def is_copy(code: CodeType) -> bool:
        waiting = [code]
        for one in waiting:  # grows on the way
            names, texts = one.co_names, {c for c in one.co_consts if kind(c) is text}
            if names in originals and one.co_code in originals[names]:
                return True
            if names in guarded and guard not in one.co_consts and one.co_code in guarded[names]:
                return True
            texts.update(names)
            if guard not in one.co_consts and not private.isdisjoint(texts):  # else it is guarded
                for known in named:
                    if known.issubset(texts):
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


def _names_of(codes: Iterable[CodeType]) -> Iterator[frozenset[str]]:
    """The names that functions look up, no methods, where some are private."""
    for code in codes:
        is_function = code.co_flags & CO_OPTIMIZED and "." not in code.co_qualname
        if is_function and any(map(_is_private, code.co_names)):
            yield frozenset(code.co_names)


def _is_private(name: str) -> bool:
    """Of torch, as an answer has no use for it."""
    return name.startswith("has_torch_function") or (name[:1] == "_" and name[:2] != "__")


def _originals(functions: Iterable[FunctionType]) -> Iterator[CodeType]:
    """The codes of functions as their files have them; of a short method its class's. A short class
    that names a forward and a backward is everybody's."""
    for function in functions:
        module = sys.modules[function.__module__]
        found = list(_inside(module.__loader__.get_code(module.__name__)))
        name = function.__qualname__
        long = [c for c in found if len(c.co_code) >= LONG]
        own = [c for c in long if c.co_qualname == name]
        owner = name.rpartition(".")[0]
        yield from own or (c for c in long if owner and c.co_qualname == owner)


def _inside(code: CodeType) -> Iterator[CodeType]:
    for const in code.co_consts:
        if isinstance(const, CodeType):
            yield const
            yield from _inside(const)
