"""What a worked numeric is: a function that computes a lecture example step by step.

    @worked("N20", title="Clipping", source="Lecture 3, ...", perturb={"max_norm": 2.0})
    def clipping(g=(3.0, 4.0), max_norm=1.0) -> Iterator[Step]:
        yield Step("norm before", computed=..., printed=5.0, formula="√(3² + 4²)")

Its arguments are the example's inputs, with the lecture's values as defaults; it yields the steps.
`printed` is what the lecture says, and the only place where its answer may stand: `computed` comes
from torch or exact arithmetic. `perturb` names another input under which some step must move, and a
test tries it, so that no row can print its own answer back.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import wraps
from pathlib import Path
from typing import Any, Literal

from course.catalogue import Entry, UnknownIdError, find_entry, read_catalogue
from course.worked.inputs import checked_inputs
from course.worked.startup import without_compiler
from course.worked.surroundings import torch_as_it_comes

Value = float | int | str | bool | None | list["Value"]
Verdict = Literal["agrees", "differs", "lecture differs", "lecture silent"]


@dataclass(frozen=True)
class Step:
    """One line of a worked example: what, as the lecture prints it, as computed here."""

    what: str
    """The quantity, in the lecture's words."""
    computed: Any
    """Number, string, or (nested) list of them; a tensor becomes a list of floats."""
    printed: Any = None
    """The lecture's value; None where it prints none."""
    tolerance: float = 1e-9
    """Largest absolute difference that is still equal: half a unit of the last printed digit."""
    formula: str = ""
    """The arithmetic of this step, as one would write it by hand."""
    correction: str = ""
    """Where the lecture's value is wrong: which value is right, and why. Empty: they must agree."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "computed", plain(self.computed))
        object.__setattr__(self, "printed", plain(self.printed))

    @property
    def verdict(self) -> Verdict:
        """`agrees`; `lecture differs` (explained); `lecture silent`; `differs`: our fault."""
        if self.printed is None:
            return "lecture silent"
        if close(self.printed, self.computed, self.tolerance):
            return "agrees"
        return "lecture differs" if self.correction else "differs"


@dataclass(frozen=True, kw_only=True)
class Worked:
    """A worked numeric, computed: prints as a table, renders in a notebook, goes to JSON."""

    entry: Entry
    inputs: dict[str, Any]
    """The example's inputs, by name."""
    reconstructed: str
    """Empty, or what was lost in the lecture's text, how it was rebuilt, and the alternatives."""
    steps: list[Step]
    lecture_inputs: dict[str, Any] = field(default_factory=dict)
    """The lecture's values of the inputs that were changed here; then it prints nothing to compare
    with. Empty: computed with the lecture's own inputs (another seed counts as its own)."""
    figure: Callable[..., Any] | None = field(default=None, repr=False)

    @property
    def verdict(self) -> Verdict:
        """The gravest verdict among the steps."""
        gravity: list[Verdict] = ["differs", "lecture differs", "agrees", "lecture silent"]
        return min((step.verdict for step in self.steps), key=gravity.index)

    def to_json(self) -> dict[str, Any]:
        """Plain numbers, strings and lists; non-finite numbers as strings."""
        return {
            "id": self.entry.id,
            "title": self.entry.title,
            "source": self.entry.source,
            "reconstructed": self.reconstructed,
            "inputs": _json_value(plain(self.inputs)),
            "lecture_inputs": _json_value(plain(self.lecture_inputs)),
            "verdict": self.verdict,
            "steps": [
                {key: _json_value(value) for key, value in vars(step).items()}
                | {"verdict": step.verdict}
                for step in self.steps
            ],
        }

    def plot(self) -> Any:
        """The figure that belongs to the example, as a matplotlib Figure.

        Raises:
            ValueError: The ledger names no figure for it.
        """
        if self.figure is None:
            raise ValueError(f"{self.entry.id} has no figure; print it or read its steps instead.")
        with without_compiler(), torch_as_it_comes():
            return self.figure(**self.inputs)

    def __str__(self) -> str:
        from course.worked.show import as_text

        return as_text(self)

    def _repr_html_(self) -> str:
        from course.worked.show import as_html

        return as_html(self)


def worked(
    id: str,
    *,
    title: str,
    source: str,
    perturb: Mapping[str, Any],
    reconstructed: str = "",
    figure: Callable[..., Any] | None = None,
) -> Callable[[Callable[..., Iterable[Step]]], Callable[..., Worked]]:
    """Register a generator of steps as a worked numeric.

    Args:
        id: The ledger's id, as `N19`.
        title: One line for the table.
        source: Lecture and slide, or chapter.
        perturb: Other inputs under which at least one step's `computed` must change.
        reconstructed: What was lost in the lecture's text and how it was rebuilt.
        figure: Takes the same inputs, returns a matplotlib Figure (which it imports itself).
    """

    def register(steps: Callable[..., Iterable[Step]]) -> Callable[..., Worked]:
        signature = inspect.signature(steps)
        unknown = set(perturb) - set(signature.parameters)
        assert not unknown and perturb, (
            f"{id}: perturb names no input of its own: {unknown or '{}'}"
        )

        @wraps(steps)
        def compute(*args: Any, **kwargs: Any) -> Worked:
            given = checked_inputs(id, steps, signature.bind(*args, **kwargs).arguments)
            lectures = {name: word.default for name, word in signature.parameters.items()}
            inputs = lectures | given
            changed = [n for n in inputs if inputs[n] != lectures[n] and n != "seed"]
            with without_compiler(), torch_as_it_comes():
                computed = _computed(id, steps, inputs, changed)
            return Worked(
                entry=catalogue()[id],
                inputs=inputs,
                reconstructed="" if changed else reconstructed,
                steps=computed,
                lecture_inputs={name: lectures[name] for name in changed},
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
        return [replace(step, printed=None, correction="") for step in steps(**inputs)]
    except Exception as fault:
        shown = ", ".join(f"{name} = {plain(inputs[name])}" for name in changed)
        all_of_them = ", ".join(f"{name} = {plain(value)}" for name, value in inputs.items())
        why = "".join(str(fault).strip().splitlines()[:1]).rstrip(".")
        raise ValueError(
            f"{id} makes no example with {shown} ({type(fault).__name__}: {why}). The inputs must "
            f"fit together; all of them here: {all_of_them}."
        ) from fault


def catalogue() -> dict[str, Entry]:
    """All registered worked numerics by id, without importing torch."""
    return read_catalogue("course.worked", Path(__file__).parent, "worked")


def compute(id: str, *, seed: int | None = None, **inputs: Any) -> Worked:
    """Compute one worked numeric, with the lecture's inputs where no others are given.

    Args:
        id: The ledger's id, as `N19`; typed loosely.
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


def plain(value: Any) -> Any:
    """Tensors, arrays, tuples and numbers as (nested) lists of Python's own numbers and strings."""
    if hasattr(value, "tolist"):  # a torch tensor or a NumPy array, neither imported here
        return plain(value.detach().tolist() if hasattr(value, "detach") else value.tolist())
    if isinstance(value, Mapping):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    return value


def close(a: Any, b: Any, tolerance: float) -> bool:
    """Equal shapes and every number within the tolerance; inf and nan equal themselves."""
    if isinstance(a, list) or isinstance(b, list):
        same = isinstance(a, list) and isinstance(b, list) and len(a) == len(b)
        return same and all(close(x, y, tolerance) for x, y in zip(a, b, strict=True))
    if isinstance(a, (str, bool)) or isinstance(b, (str, bool)):
        return a == b
    if not (math.isfinite(a) and math.isfinite(b)):
        return a == b or (math.isnan(a) and math.isnan(b))
    return abs(a - b) <= tolerance


def _json_value(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, dict):
        return {key: _json_value(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_json_value(item) for item in value]
    if value is None or isinstance(value, (int, float, str)):
        return value
    return str(value)
