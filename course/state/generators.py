"""Generators that a loader, a model or a loss holds: found wherever they are, saved, and restored.

A data set, transform, sampler or collate function may draw from its own generator. The global ones
are in every checkpoint; these would start from scratch in a resumed run. So they are searched for
in everything the loader is made of: attributes, lists, dictionaries, closures, and the globals that
a function names. States go into the checkpoint as tensors and text, which `weights_only=True`
reads.

Source: Lecture 3, "Saving and loading"; ledger C10, C14, F86, F103.
"""

from __future__ import annotations

import json
import random
import types
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

MOST_THINGS = 2000
"""Things looked at; a data set may hold a list of a million names."""
LONGEST = 100
"""Longer lists hold data."""
Own = torch.Generator | np.random.Generator | np.random.RandomState | random.Random
State = Tensor | str


def own_generators(*roots: Any, without: Iterable[Any] = ()) -> list[Own]:
    """Generators that can be reached from the roots, each once, in an order determined by the code.

    Args:
        without: Objects that are not searched.
    """
    seen = {id(thing): thing for thing in without}
    found: list[Own] = []
    waiting = list(roots)[::-1]
    while waiting and len(seen) < MOST_THINGS:
        thing = waiting.pop()
        if id(thing) in seen:
            continue
        seen[id(thing)] = thing
        if isinstance(thing, Own):
            found.append(thing)
        else:
            waiting += list(inside(thing))[::-1]
    return found


def inside(thing: Any) -> Iterator[Any]:
    """The parts of an object that may hold a generator."""
    if thing is None or isinstance(
        thing, (Tensor, np.ndarray, str, bytes, int, float, type, types.ModuleType)
    ):
        return
    if isinstance(thing, dict):
        if len(thing) <= LONGEST:
            yield from thing.values()
    elif isinstance(thing, (list, tuple)):
        if len(thing) <= LONGEST:
            yield from thing
    elif isinstance(thing, partial):
        yield from (thing.func, *thing.args, *thing.keywords.values())
    elif isinstance(thing, (types.MethodType, types.BuiltinMethodType)):
        yield thing.__self__
    elif isinstance(thing, types.FunctionType):
        yield from thing.__defaults__ or ()
        for cell in thing.__closure__ or ():
            try:
                yield cell.cell_contents
            except ValueError:  # not yet assigned
                continue
        read = (thing.__globals__.get(name) for name in thing.__code__.co_names)
        yield from (value for value in read if isinstance(value, Own))
    elif isinstance(state := getattr(thing, "__dict__", None), dict):
        # A DataLoader's iterator and its workers are of this process only.
        yield from (value for name, value in state.items() if name != "_iterator")


def rewinder(generator: Own) -> Callable[[], None]:
    """Return a function that resets the generator to its current state; call it at any time."""
    if isinstance(generator, torch.Generator):
        return partial(generator.set_state, generator.get_state())
    if isinstance(generator, random.Random):
        return partial(generator.setstate, generator.getstate())
    if isinstance(generator, np.random.RandomState):
        return partial(generator.set_state, generator.get_state())
    return partial(setattr, generator.bit_generator, "state", generator.bit_generator.state)


def state_of(generator: Own) -> State:
    """The state of a generator, as a tensor or as text."""
    if isinstance(generator, torch.Generator):
        return generator.get_state()
    if isinstance(generator, random.Random):
        return json.dumps(generator.getstate())
    if isinstance(generator, np.random.RandomState):
        return json.dumps(generator.get_state(legacy=False), default=_as_json)
    return json.dumps(generator.bit_generator.state, default=_as_json)


def put_back(generator: Own, state: State) -> None:
    """Reset a generator to a state from `state_of`."""
    if isinstance(generator, torch.Generator):
        generator.set_state(state)
        return
    document = json.loads(state, object_hook=_from_json)
    if isinstance(generator, random.Random):
        version, keys, gauss = document
        generator.setstate((version, tuple(keys), gauss))
    elif isinstance(generator, np.random.RandomState):
        generator.set_state(document)
    else:
        generator.bit_generator.state = document


def _as_json(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return {"array": value.tolist(), "dtype": value.dtype.name}
    return value.item()  # a NumPy number


def _from_json(document: dict[str, Any]) -> Any:
    if document.keys() == {"array", "dtype"}:
        return np.array(document["array"], dtype=document["dtype"])
    return document
