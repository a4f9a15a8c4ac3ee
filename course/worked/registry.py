"""Worked numbers: functions that recompute the lecture's examples step by step.

    @worked("N20", title="Clipping", perturb={"max_norm": 2.0})
    def clipping(g=(3.0, 4.0), max_norm=1.0) -> Iterator[Step]:
        yield Step("norm before", computed=..., printed=5.0, formula="√(3² + 4²)")

Its arguments are the example's inputs, with the lecture's values as defaults; it yields the steps.
`printed` is the value that the source prints, and the only place where its answer may appear;
`rebuilt` is a value that its text has lost; a step with neither is our own. `computed` comes from
torch or exact arithmetic. `perturb` names another input under which some step must move, and a test
tries it, so that no row can print its own answer back.
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
    """Register a generator of steps as a worked number.

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
            f"{id}: perturb = {unknown or '{}'} names no input of this example"
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
        ValueError: The example cannot be computed with the changed inputs.
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
            f"{id} cannot be computed with {shown} ({type(fault).__name__}: {why}). The inputs "
            f"must fit together; all inputs of this call: {all_of_them}."
        ) from fault


@lru_cache
def catalogue() -> dict[str, Entry]:
    """All registered worked numbers by id, without importing torch."""
    return with_sources(read_catalogue("course.worked", Path(__file__).parent, "worked"))


def compute(id: str, *, seed: int | None = None, **inputs: Any) -> Worked:
    """Compute one worked number, with the lecture's inputs unless others are given.

    Args:
        id: The ledger's id, e.g. `N19`; case and spaces do not matter.
        seed: Replaces the seed of an example that draws random numbers; other examples take no
            seed.
        inputs: Other inputs than the lecture's, by name.

    Raises:
        UnknownIdError: No such id; the message names the nearest one, or the command that knows it.
        ValueError: The example has no such input, or cannot be computed with this value; the
        message names the inputs it has.
    """
    if not isinstance(id, str):
        raise UnknownIdError(
            f"{id!r} is not the id of a worked number: expected a string, e.g. 'N20'."
        )
    if id.strip()[:1].upper() in ("F", "K") and id.strip()[1:].isdigit():
        raise UnknownIdError(
            f"'{id}' is not the id of a worked number (N01 to N62); claims are tried by "
            f"course.claims.compute, or on the command line by course claims {id.strip()}."
        )
    numeric = find_entry(catalogue(), id, kind="a worked number").load()
    _check_inputs(id, numeric, inputs)
    return numeric(**inputs, **_seed_for(numeric, seed))


def compute_all(seed: int | None = None) -> Iterator[Worked]:
    """Compute every worked number, in the order of the ids.

    Args:
        seed: Replaces the seeds of the examples that draw random numbers.
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
