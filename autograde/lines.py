"""Lines of a message, so narrow that `nbgrader validate`, which cuts at 83, leaves them whole."""

from __future__ import annotations

import textwrap

WIDTH = 78


def wrapped(text: str, first: str = "    ", then: str = "    ") -> list[str]:
    """Lines of at most WIDTH; none for an empty text."""
    return textwrap.wrap(text, WIDTH, initial_indent=first, subsequent_indent=then)
