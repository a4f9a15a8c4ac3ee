"""Exported pages of all widgets, each made once for all tests of a session."""

from functools import lru_cache

import course.widgets as widgets
from course.widgets.base.page import page_of


@lru_cache
def page(id: str) -> str:
    """The page of a widget as it comes."""
    made = widgets.find(id)()
    try:
        return page_of(made)
    finally:
        made.close()
