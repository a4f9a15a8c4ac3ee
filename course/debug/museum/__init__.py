"""The museum: the bugs of the ledger's section B, each of which can be switched on and seen."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

from course.debug.museum.exhibit import Exhibit


def ids() -> list[str]:
    """Ids of all exhibits, in order."""
    return sorted(path.name[:3].upper() for path in Path(__file__).parent.glob("b[0-9][0-9]_*.py"))


def exhibit(id: str) -> Exhibit:
    """Return the exhibit with this ledger id.

    Raises:
        ValueError: There is none; the message lists the exhibits.
    """
    for path in Path(__file__).parent.glob(f"{id.lower()}_*.py"):
        return import_module(f"course.debug.museum.{path.stem}").EXHIBIT
    raise ValueError(f"{id!r} is not an exhibit. Choose from {', '.join(ids())}.")


def cannot_see() -> dict[str, str]:
    """Bugs that `diagnose` cannot see in any set-up, by id, and why or what finds them instead."""
    return {e.id: f"{e.title}: {e.why_not}" for e in map(exhibit, ids()) if not e.names}


__all__ = ["Exhibit", "cannot_see", "exhibit", "ids"]
