"""What is said of cells that are not as they were released."""

import pytest

from autograde.classroom.notebook_text import _oddities

CHECK = 'check("03a.clip", clip)\nprint("done")'


def cell(source: str) -> dict:
    marks = {"grade_id": "clip-check", "grade": True, "solution": False, "locked": True}
    return {"cell_type": "code", "source": source, "metadata": {"nbgrader": marks}}


@pytest.mark.parametrize(("source", "noted"), [
    (CHECK, False), (f"{CHECK}\n\n", False), (f"\n{CHECK}  ", False),
    (CHECK.replace("\n", "  \r\n"), False), (CHECK.replace("\n", "\n\n"), True),
    (CHECK.replace("print", "  print"), True), (CHECK.upper(), True), ("", True),
])  # fmt: skip
def test_blanks_at_the_ends_are_no_edit(source, noted):
    """Editors add and take them away unasked; blanks in front mean something in Python."""
    notes = _oddities([cell(source)], ["clip-check"], ["clip-check"], {"clip-check": CHECK})
    assert bool(notes) is noted
    assert all("was edited" in note for note in notes)
