"""`course museum [BUG]`: a bug's symptom beside the healthy run, evidence, fix and plot."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer


def museum(
    bug: Annotated[str | None, typer.Argument(help="A ledger id, as B01. None: the list.")] = None,
    plot: Annotated[Path | None, typer.Option(help="Draw both runs into this file.")] = None,
) -> None:
    """Switch a silent training bug on and look at it."""
    from course.debug.museum import exhibit, ids

    if bug is None:
        print("\n".join(f"{id}  {exhibit(id).title}" for id in ids()))
        return
    try:
        shown = exhibit(bug)
    except ValueError as error:
        print(error, file=sys.stderr)
        raise typer.Exit(2) from error
    print(shown.show())
    if plot is not None:
        try:
            shown.plot().savefig(plot)
        except (ValueError, OSError) as error:
            print(f"--plot {plot}: {error}. Try a name such as {bug}.png.", file=sys.stderr)
            raise typer.Exit(2) from error
        print(f"  plot     {plot}")
