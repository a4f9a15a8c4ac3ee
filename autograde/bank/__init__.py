"""The exercise bank: one module an exercise, found by the id it registers."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from course.catalogue import Entry, find_entry, read_catalogue

if TYPE_CHECKING:
    from autograde.exercise import Exercise


VALUES = ("Number", "Choice", "Choices", "Order", "Tune", "Write")
"""Classes of exercises answered by a value."""
CODE = ("Exercise",)
"""Classes of exercises answered by a function or a class, which a referee calls."""


def catalogue() -> dict[str, Entry]:
    """All exercises by id, without importing torch."""
    return read_catalogue("autograde.bank", Path(__file__).parent, (*CODE, *VALUES))


def asks_for_code() -> dict[str, Entry]:
    """Those answered by a function or a class."""
    return {id: entry for id, entry in catalogue().items() if entry.marker in CODE}


def asks_for_value() -> dict[str, Entry]:
    """Those answered by a number, an option, an order: see `autograde.kinds`."""
    return {id: entry for id, entry in catalogue().items() if entry.marker in VALUES}


def load(id: str) -> Exercise:
    """One exercise; imports its module only.

    Raises:
        UnknownIdError: No such id; the message names the nearest.
    """
    return find_entry(catalogue(), id, kind="an exercise").load()
