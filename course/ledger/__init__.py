"""Every id of the sources: one line, where the sources have it, and where it lives here."""

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
