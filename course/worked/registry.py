"""What a worked numeric is: a function that computes a lecture example step by step.

    @worked("N20", title="Clipping", perturb={"max_norm": 2.0})
    def clipping(g=(3.0, 4.0), max_norm=1.0) -> Iterator[Step]:
        yield Step("norm before", computed=..., printed=5.0, formula="√(3² + 4²)")

Its arguments are the example's inputs, with the lecture's values as defaults; it yields the steps.
`printed` is what the source prints, and the only place where its answer may stand; `rebuilt` is
what its text has lost; a step with neither is ours. `computed` comes from torch or exact
arithmetic. `perturb` names another input under which some step must move, and a test tries it, so
that no row can print its own answer back.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import lru_cache, wraps
from pathlib import Path
from typing import Any

from course.catalogue import Entry, UnknownIdError, find_entry, read_catalogue
from course.ledger.rows import with_sources
from course.report import plain
from course.worked.inputs import checked_inputs
from course.worked.startup import without_compiler
from course.worked.step import Step, Worked


def worked(
    id: str,
    *,
    title: str,
    perturb: Mapping[str, Any],
    reconstructed: str = "",
    tells: str = "",
    figure: str = "",
) -> Callable[[Callable[..., Iterable[Step]]], Callable[..., Worked]]:
    """Register a generator of steps as a worked numeric.

    Args:
        id: The ledger's id, e.g. `N19`.
        title: One line for the table.
        perturb: Other inputs under which at least one step's `computed` must change.
        reconstructed: What was lost in the lecture's text and how it was rebuilt.
        tells: Name of the step that matters most, where the lecture prints none of them.
        figure: A function of `course.worked.figures` by name: it takes the same inputs.
    """

    def register(steps: Callable[..., Iterable[Step]]) -> Callable[..., Worked]:
        signature = inspect.signature(steps)
        unknown = set(perturb) - set(signature.parameters)
        assert not unknown and perturb, (
            f"{id}: perturb names no input of its own: {unknown or '{}'}"
        )

        @wraps(steps)
        def compute(*args: Any, **kwargs: Any) -> Worked:
            from course.state.fresh import fresh_settings  # torch: not for a mere list

            given = checked_inputs(id, steps, signature.bind(*args, **kwargs).arguments)
            lectures = {name: word.default for name, word in signature.parameters.items()}
            inputs = lectures | given
            changed = [n for n in inputs if inputs[n] != lectures[n] and n != "seed"]
            with without_compiler(), fresh_settings():
                computed = _computed(id, steps, inputs, changed)
            return Worked(
                entry=catalogue()[id],
                inputs=inputs,
                reconstructed="" if changed else reconstructed,
                steps=computed,
                lecture_inputs={name: lectures[name] for name in changed},
                tells=tells,
                figure=figure,
            )

        compute.perturb = dict(perturb)  # type: ignore[attr-defined]
        return compute

    return register


def _computed(
    id: str, steps: Callable[..., Iterable[Step]], inputs: dict[str, Any], changed: list[str]
) -> list[Step]:
    """The steps; with other inputs than the lecture's, without the lecture's values.

    Raises:
        ValueError: Inputs that were changed make no example.
    """
    if not changed:
        return list(steps(**inputs))
    try:
        return [
            replace(step, printed=None, rebuilt=None, correction="") for step in steps(**inputs)
        ]
    except Exception as fault:
        shown = ", ".join(f"{name} = {plain(inputs[name])}" for name in changed)
        all_of_them = ", ".join(f"{name} = {plain(value)}" for name, value in inputs.items())
        why = "".join(str(fault).strip().splitlines()[:1]).rstrip(".")
        raise ValueError(
            f"{id} makes no example with {shown} ({type(fault).__name__}: {why}). The inputs must "
            f"fit together; all of them here: {all_of_them}."
        ) from fault


@lru_cache
def catalogue() -> dict[str, Entry]:
    """All registered worked numerics by id, without importing torch."""
    return with_sources(read_catalogue("course.worked", Path(__file__).parent, "worked"))


def compute(id: str, *, seed: int | None = None, **inputs: Any) -> Worked:
    """Compute one worked numeric, with the lecture's inputs where no others are given.

    Args:
        id: The ledger's id, e.g. `N19`; typed loosely.
        seed: Handed to an example that draws at random, in place of its own; others take none.
        inputs: Other inputs than the lecture's, by name.

    Raises:
        UnknownIdError: No such id; the message names the nearest, or who knows it.
        ValueError: The example has no such input, or cannot be computed with this one; the message
            names those it has.
    """
    if not isinstance(id, str):
        raise UnknownIdError(
            f"{id!r} is not the id of a worked numeric: expected a text, as 'N20'."
        )
    if id.strip()[:1].upper() in ("F", "K") and id.strip()[1:].isdigit():
        raise UnknownIdError(
            f"'{id}' is not the id of a worked numeric (N01 to N62); claims are tried by "
            f"course.claims.compute, or on the command line by course claims {id.strip()}."
        )
    numeric = find_entry(catalogue(), id, kind="a worked numeric").load()
    _check_inputs(id, numeric, inputs)
    return numeric(**inputs, **_seed_for(numeric, seed))


def compute_all(seed: int | None = None) -> Iterator[Worked]:
    """Compute every worked numeric, in the order of their ids.

    Args:
        seed: Handed to those that draw at random, in place of their own.
    """
    for entry in catalogue().values():
        numeric = entry.load()
        yield numeric(**_seed_for(numeric, seed))


def _seed_for(numeric: Callable[..., Worked], seed: int | None) -> dict[str, int]:
    takes_one = seed is not None and "seed" in inspect.signature(numeric).parameters
    return {"seed": seed} if takes_one else {}


def _check_inputs(id: str, numeric: Callable[..., Worked], inputs: Mapping[str, Any]) -> None:
    known = inspect.signature(numeric).parameters
    if unknown := [name for name in inputs if name not in known]:
        raise ValueError(
            f"{id} has no input {', '.join(map(repr, unknown))}; it takes {', '.join(known)}."
        )
