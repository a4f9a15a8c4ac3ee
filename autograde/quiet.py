"""Suppress what a student's function prints or warns while it is checked."""

from __future__ import annotations

import io


class quiet:
    """Inside, what a student's function prints or warns is discarded.

    nbgrader gives no points to a cell with anything on stderr; an honest warning must not cost
    points.
    """

    def __enter__(self) -> None:
        import contextlib
        import warnings

        self.stack = contextlib.ExitStack()
        self.stack.enter_context(contextlib.redirect_stdout(io.StringIO()))
        self.stack.enter_context(contextlib.redirect_stderr(io.StringIO()))
        self.stack.enter_context(warnings.catch_warnings())
        warnings.simplefilter("ignore")

    def __exit__(self, *_exc: object) -> None:
        self.stack.close()
