"""What is shown for cells that were not run: their outputs as handed in, and a line that says so.

Nothing reads these outputs for points. They are a stranger's: cut, counted and cleaned as those of
cells that were run, and named as what they are.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from autograde.answers import Raised
from autograde.classroom.cell_code import read_code
from autograde.classroom.cells import Cell
from autograde.classroom.clean import Say, clean_output
from autograde.sandbox.outputs import plain_outputs
from autograde.sandbox.session import OURS
from autograde.verdict import Verdict

SAYS = "Not run here: no exercise needs this cell."
MARK = {"output_type": "stream", "name": "stdout", "text": f"{SAYS}\n"}
BELOW = {"output_type": "stream", "name": "stdout", "text": f"{SAYS} As handed in:\n"}
MAX_OUTPUTS = 50
"""Outputs of a cell that are shown; an honest one has a few."""
MAX_BYTES = 2**20
"""Bytes of one cell's outputs that are shown; a page of figures has a quarter of it."""
UNBOUND = ("NameError", "UnboundLocalError")


def handed_in(cell: Cell, say: Say) -> list[dict[str, Any]]:
    """A cell's outputs as handed in, below a line that says so.

    Args:
        cell: Of a submission.
        say: Told what was taken out.
    """
    stored = plain_outputs(list(cell.get("outputs") or ())[:MAX_OUTPUTS])
    shown = [BELOW]
    left = MAX_BYTES
    for output in stored:
        left -= len(json.dumps(output))
        if left < 0:
            say("outputs as handed in that are too long")
            break
        if output.get("ename") in OURS:
            output["ename"] = f"Own{output['ename']}"
        shown.append(clean_output(output, say))
    return shown if shown[1:] else [MARK]


def names_given(cells: Sequence[Mapping[str, Any]]) -> set[str]:
    """Words by which an exception would name what cells that were not run bind or import."""
    codes = [read_code(cell["source"]) for cell in cells if cell.get("not_run")]
    modules = {part for code in codes for name in code.union("modules") for part in name.split(".")}
    return set().union(*(code.union("binds") for code in codes)) | modules


def misses_something(cells: Sequence[Mapping[str, Any]], verdicts: Sequence[Verdict]) -> bool:
    """Whether a run shows that it might have gone otherwise with every cell run.

    A cell ended in an error, so it may have bound less than it says; or a name that a cell binds
    that was not run was missing in an answer.

    Args:
        cells: Source and outputs of each code cell, and whether it was not run.
        verdicts: Of the checks.
    """
    run = [cell for cell in cells if not (cell.get("not_run") or cell.get("check"))]
    if any(_is_own_error(output) for cell in run for output in cell["outputs"]):
        return True
    given = names_given(cells)
    raised = [part.raised for verdict in verdicts for part in verdict.parts if part.raised]
    return any(_names_one(one, given) for one in raised)


def _is_own_error(output: Mapping[str, Any]) -> bool:
    """An exception of the cell's own code; what we stopped, we would stop again."""
    return output["output_type"] == "error" and output["ename"] not in OURS


def _names_one(raised: Raised, given: set[str]) -> bool:
    of_module = raised.kind == "AttributeError" and "module" in raised.text
    words = set(raised.text.replace("'", " ").replace(".", " ").split())
    return (raised.kind in UNBOUND or of_module) and bool(words & given)
