"""Every id of the sources: what it is, where the sources have it, and where it is found here."""

from course.ledger.homes import Home, homes, missing
from course.ledger.rows import SERIES, Row, find_row, rows, same_place, with_sources

__all__ = [
    "SERIES",
    "Home",
    "Row",
    "find_row",
    "homes",
    "missing",
    "rows",
    "same_place",
    "with_sources",
]
