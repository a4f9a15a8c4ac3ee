"""Interactive simulations of the lecture: folders with state.py, widget.py, widget.js and twin.py.

    from course.widgets import TrainingArithmetic
    TrainingArithmetic(batch_size=64)

`catalogue()` lists them in the lecture's order without importing any; `find("S01")` returns the
class for a name or a ledger id; `export(widget, "page.html")` writes a single page that needs no
kernel. How they are built: course/widgets/base/widget.py.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from course.catalogue import Entry, UnknownIdError, find_entry, read_catalogue

if TYPE_CHECKING:
    from course.widgets.base.widget import CourseWidget


def catalogue() -> dict[str, Entry]:
    """All widgets by id, in the lecture's order; none is imported."""
    return read_catalogue("course.widgets", Path(__file__).parent, "widget", "*/widget.py")


def find(wanted: str) -> type[CourseWidget]:
    """The class of the widget called `wanted`: its id, e.g. `arithmetic`, or a ledger id, `S01`.

    Raises:
        UnknownIdError: There is no such widget; the message names the nearest one.
    """
    for entry in catalogue().values():
        if wanted.upper() in entry.ledger:
            return entry.load()
    return find_entry(catalogue(), wanted, kind="a widget").load()


def export(widget: CourseWidget, path: Path | str) -> Path:
    """Write one self-contained HTML page that works from a file, without a kernel or network.

    A widget with few settings is written with the frames of all of them, and one that trains with
    recorded runs.

    Args:
        widget: A widget, set as the page should start.
        path: The file to write, e.g. `arithmetic.html`.

    Raises:
        ValueError: The page would be larger than 500 kB.
    """
    from course.widgets.base.page import export as write

    return write(widget, Path(path))


def __getattr__(name: str) -> Any:
    for entry in catalogue().values():
        if entry.name == name:
            return entry.load()
    raise AttributeError(
        f"course.widgets has no {name}; it has "
        + ", ".join(entry.name for entry in catalogue().values())
    )


def __dir__() -> list[str]:
    return [*__all__, *(entry.name for entry in catalogue().values())]


__all__ = ["UnknownIdError", "catalogue", "export", "find"]
