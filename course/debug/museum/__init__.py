"""The museum: bugs of the ledger's section B, each to be switched on and seen."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

from course.debug.museum.exhibit import Exhibit


def ids() -> list[str]:
    """Ids of all exhibits, in order."""
    return sorted(path.name[:3].upper() for path in Path(__file__).parent.glob("b[0-9][0-9]_*.py"))


def exhibit(id: str) -> Exhibit:
    """One exhibit by its ledger id.

    Raises:
        ValueError: There is none; the message lists those there are.
    """
    for path in Path(__file__).parent.glob(f"{id.lower()}_*.py"):
        return import_module(f"course.debug.museum.{path.stem}").EXHIBIT
    raise ValueError(f"{id!r} is no exhibit. There are {', '.join(ids())}.")


def cannot_see() -> dict[str, str]:
    """Bugs that `diagnose` sees in no set-up, by id, and why not or who finds them instead."""
    return {e.id: f"{e.title}: {e.why_not}" for e in map(exhibit, ids()) if not e.names}


__all__ = ["Exhibit", "cannot_see", "exhibit", "ids"]
