"""Settings of a widget: a frozen dataclass whose fields define their controls and ranges.

    @dataclass(frozen=True, kw_only=True)
    class Settings(Checked):
        batch_size: int = choice(32, (8, 16, 32, 64), "batch size", unit="examples")
        lr: float = slider(0.1, (0.001, 0.01, 0.1, 1.0), "learning rate")
        shuffle: bool = toggle(True, "shuffle")

Every control has a finite list of values, which the page shows, Python accepts, and an exported
page enumerates. Rules between fields go into `check`, which raises ValueError.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, fields, replace
from itertools import product
from typing import Any, Literal, Self

from course.widgets.base.frames import as_frame


@dataclass(frozen=True, kw_only=True)
class Control:
    """The control of one field on the page."""

    kind: Literal["slider", "choice", "toggle"]
    default: Any
    values: tuple[Any, ...]
    """All allowed values, in the order of the page."""
    label: str
    unit: str = ""
    names: tuple[str, ...] = ()
    """The label of each value on the page; empty: the value itself."""
    hint: str = ""
    """One line, shown on hover."""
    hot: bool = False
    """Whether a running training takes a new value without starting over."""

    def check(self, name: str, value: Any) -> Any:
        """The value in the type of this control: 1 for 1.0, True for True.

        Raises:
            ValueError: It is not one of the control's values.
        """
        for known in self.values:
            if isinstance(known, float) and value == as_frame(known):
                return known  # infinity as the page spells it
            if type(known) is type(value) or (_is_number(known) and _is_number(value)):
                same = known == value
                if not same and _is_number(known):
                    same = math.isclose(known, value, rel_tol=1e-6)
                if same:
                    return known
        raise ValueError(f"{name} = {value!r}: expected {self.expected(value)}.")

    def expected(self, value: Any) -> str:
        """The range in words, and the nearest valid value."""
        if self.kind == "slider" and _is_number(value) and math.isfinite(value):
            nearest = min(self.values, key=lambda known: abs(known - value))
            low, high = self.values[0], self.values[-1]
            return f"{len(self.values)} values from {low:g} to {high:g}; the nearest is {nearest:g}"
        return "one of " + ", ".join(map(repr, self.values))

    def to_json(self, name: str) -> dict[str, Any]:
        """The data that the page needs to draw it."""
        words = {key: value for key, value in vars(self).items() if value != ()}
        return as_frame({"name": name, **words}, digits=9)


def slider(
    default: float,
    values: Sequence[float],
    label: str,
    *,
    unit: str = "",
    hint: str = "",
    hot: bool = False,
) -> Any:
    """A field with a slider over `values` in ascending order; see `steps` and `decades`."""
    return _as_field("slider", default, values, label=label, unit=unit, hint=hint, hot=hot)


def choice(
    default: Any,
    values: Sequence[Any],
    label: str,
    *,
    names: Sequence[str] = (),
    unit: str = "",
    hint: str = "",
    hot: bool = False,
) -> Any:
    """A field with a list to choose from; `names` are the labels of the values on the page."""
    assert not names or len(names) == len(values), f"{label}: give a name for each value, or none"
    words = {"names": tuple(names), "unit": unit, "hint": hint, "hot": hot}
    return _as_field("choice", default, values, label=label, **words)


def toggle(default: bool, label: str, *, hint: str = "", hot: bool = False) -> Any:
    """A field with a checkbox."""
    return _as_field("toggle", default, (False, True), label=label, hint=hint, hot=hot)


def _as_field(kind: str, default: Any, values: Sequence[Any], **words: Any) -> Any:
    control = Control(kind=kind, default=default, values=tuple(values), **words)
    assert default in control.values, f"{control.label}: {default!r} is not one of its values"
    return field(default=default, metadata={"control": control})


def steps(low: float, high: float, step: float) -> tuple[float, ...]:
    """From `low` to `high` in equal steps, without rounding noise; whole numbers stay whole.

    >>> steps(0.5, 1.5, 0.25)
    (0.5, 0.75, 1.0, 1.25, 1.5)
    """
    count = round((high - low) / step)
    made = [round(low + index * step, 10) for index in range(count + 1)]
    whole = all(isinstance(number, int) for number in (low, high, step))
    return tuple(int(number) if whole else number for number in made)


def decades(low: float, high: float, per_decade: Sequence[float] = (1, 3)) -> tuple[float, ...]:
    """From `low` to `high`, both powers of ten, with these factors in each decade.

    >>> decades(0.01, 1)
    (0.01, 0.03, 0.1, 0.3, 1.0)
    """
    first, last = round(math.log10(low)), round(math.log10(high))
    made = [
        float(f"{factor}e{exponent}") for exponent in range(first, last) for factor in per_decade
    ]
    return (*made, float(f"1e{last}"))


@dataclass(frozen=True, kw_only=True)
class Checked:
    """Settings that can hold only values that their controls have."""

    def __post_init__(self) -> None:
        for name, control in self.controls().items():
            object.__setattr__(self, name, control.check(name, getattr(self, name)))
        self.check()

    def check(self) -> None:
        """Raise ValueError if values that are valid alone do not fit together."""

    @classmethod
    def controls(cls) -> dict[str, Control]:
        """The control of each field, by its name, in order."""
        return {one.name: one.metadata["control"] for one in fields(cls)}

    def changed(self, **changes: Any) -> Self:
        """The same settings with these changed.

        Raises:
            ValueError: There is no such setting, or a value is out of range.
        """
        if unknown := [name for name in changes if name not in self.controls()]:
            raise ValueError(
                f"there is no setting {', '.join(map(repr, unknown))}; the settings are "
                f"{', '.join(self.controls())}."
            )
        return replace(self, **changes)

    def to_json(self) -> dict[str, Any]:
        """Values by name."""
        return {name: getattr(self, name) for name in self.controls()}

    def every(self, names: Sequence[str]) -> Iterator[Self]:
        """These settings with every valid combination of the named fields."""
        controls = self.controls()
        for values in product(*(controls[name].values for name in names)):
            try:
                yield self.changed(**dict(zip(names, values, strict=True)))
            except ValueError:
                continue


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)
