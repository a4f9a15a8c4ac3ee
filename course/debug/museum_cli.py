"""`course museum [BUG]`: a bug's symptom next to the healthy run, evidence, fix and plot."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer


def museum(
    bug: Annotated[
        str | None, typer.Argument(help="A ledger id such as B01. None: the list.")
    ] = None,
    plot: Annotated[
        Path | None, typer.Option(help="Save a figure of both runs to this file.")
    ] = None,
) -> None:
    """Switch a silent training bug on and look at it."""
    from course.debug.museum import exhibit, ids

    if plot is not None:
        _or_exit(_check_plot, bug and _as_id(bug), plot)
    if bug is None:
        print("\n".join(f"{id}  {exhibit(id).title}" for id in ids()))
        return
    shown = _or_exit(exhibit, _as_id(bug))
    print(shown.show())
    if plot is not None:
        _or_exit(shown.plot().savefig, plot)
        print(f"  plot     {plot}")


def _as_id(typed: str) -> str:
    """`b8` and `B-08` are B08; anything else stays as it was typed."""
    found = re.fullmatch(r"\s*[bB][-_ ]?0*(\d+)\s*", typed)
    return f"B{int(found[1]):02d}" if found else typed


def _check_plot(bug: str | None, plot: Path) -> None:
    from course.plots.files import check_figure_file

    if bug is None:
        raise ValueError(
            f"--plot {plot}: name the bug to plot, e.g. course museum B08 --plot {plot}."
        )
    check_figure_file(plot, example=f"{bug}.png")


def _or_exit(call: Callable[..., Any], *arguments: Any) -> Any:
    """A user's fault is one line and exit code 2."""
    try:
        return call(*arguments)
    except (ValueError, OSError) as error:
        print(f"course museum: {error}", file=sys.stderr)
        raise typer.Exit(2) from error
