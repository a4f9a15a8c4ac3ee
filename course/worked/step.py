"""A worked number after it is computed: each step as the source prints it and as computed here."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any, Literal

from course.catalogue import Entry
from course.report import json_ready, plain
from course.view import view
from course.worked.show import as_html, as_text
from course.worked.startup import without_compiler

FIGURES = "course.worked.figures"
"""Imported when a figure is drawn: figures depend on the numbers, not the other way round."""

Value = float | int | str | bool | None | list["Value"]
Verdict = Literal["agrees", "differs", "lecture differs", "rebuilt", "lecture silent"]
VERDICTS: tuple[Verdict, ...] = (
    "differs",
    "lecture differs",
    "agrees",
    "rebuilt",
    "lecture silent",
)
"""From the gravest to the mildest."""
Provenance = Literal["printed", "rebuilt", "derived"]


@dataclass(frozen=True)
class Step:
    """One line of a worked example: a quantity, as the lecture prints it and as computed here."""

    what: str
    """The quantity, in the lecture's words."""
    computed: Any
    """Number, string, or (nested) list of them; a tensor becomes a list of floats."""
    printed: Any = None
    """The value as the source prints it; None if it prints none."""
    tolerance: float = 1e-9
    """Largest absolute difference that counts as equal: half a unit of the last printed digit."""
    formula: str = ""
    """The arithmetic of this step, as one would write it by hand."""
    correction: str = ""
    """If the printed value is wrong: which value is right, and why. Empty: the two must agree."""
    rebuilt: Any = None
    """A value missing from the source's text; `reconstructed` says once how it was rebuilt."""
    as_printed: str = ""
    """The source's own digits if it writes the value in another form, e.g. `2^{16}`."""
    at: str = ""
    """Where it is printed, named as in the ledger, if that is not the example's first place."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "computed", plain(self.computed))
        object.__setattr__(self, "printed", plain(self.printed))
        object.__setattr__(self, "rebuilt", plain(self.rebuilt))

    @property
    def provenance(self) -> Provenance:
        """`printed` in the source, `rebuilt` from what is left of it, or `derived` by us."""
        if self.printed is not None:
            return "printed"
        return "derived" if self.rebuilt is None else "rebuilt"

    @property
    def verdict(self) -> Verdict:
        """`agrees`, `lecture differs` (explained), `rebuilt`, `lecture silent` or `differs`.

        Only what is printed can agree with the lecture or differ from it.
        """
        if self.provenance == "derived":
            return "lecture silent"
        expected = self.rebuilt if self.printed is None else self.printed
        if close(expected, self.computed, self.tolerance):
            return "agrees" if self.provenance == "printed" else "rebuilt"
        return "lecture differs" if self.correction else "differs"


@dataclass(frozen=True, kw_only=True)
class Worked:
    """A worked number, computed: prints as a table, renders in a notebook, exports to JSON."""

    entry: Entry
    inputs: dict[str, Any]
    """The example's inputs, by name."""
    reconstructed: str
    """Empty, or what the lecture's text has lost, how it was rebuilt, and the alternatives."""
    steps: list[Step]
    lecture_inputs: dict[str, Any] = field(default_factory=dict)
    """The lecture's values of the inputs that were changed here; there is then nothing printed to
    compare with. Empty: computed with the lecture's own inputs (another seed is no change)."""
    tells: str = ""
    """Name of the step that matters most, if the lecture prints none of them."""
    figure: str = field(default="", repr=False)

    @property
    def code(self) -> str:
        """The file and the function that compute it."""
        return f"{self.entry.module.replace('.', '/')}.py: {self.entry.name}"

    @property
    def verdict(self) -> Verdict:
        """The gravest verdict among the steps."""
        return min((step.verdict for step in self.steps), key=VERDICTS.index)

    def to_json(self) -> dict[str, Any]:
        """Plain numbers, strings and lists; non-finite numbers as strings."""
        return {
            "id": self.entry.id,
            "title": self.entry.title,
            "source": self.entry.source,
            "reconstructed": self.reconstructed,
            "inputs": json_ready(self.inputs),
            "lecture_inputs": json_ready(self.lecture_inputs),
            "verdict": self.verdict,
            "steps": [
                {key: json_ready(value) for key, value in vars(step).items()}
                | {"provenance": step.provenance, "verdict": step.verdict}
                for step in self.steps
            ],
        }

    def plot(self) -> Any:
        """The figure that belongs to the example, as a matplotlib Figure.

        For a student the figure waits for the guess, as the table does: until then this is the
        table.

        Raises:
            ValueError: No figure is registered for it.
        """
        if not self.figure:
            raise ValueError(f"{self.entry.id} has no figure; print it or read its steps instead.")
        from course.state.fresh import fresh_settings

        if (student := view()) and student.curtain(self):
            return self
        with without_compiler(), fresh_settings():
            return getattr(import_module(FIGURES), self.figure)(**self.inputs)

    def __str__(self) -> str:
        return as_text(self)

    def _repr_html_(self) -> str:
        return as_html(self)


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
