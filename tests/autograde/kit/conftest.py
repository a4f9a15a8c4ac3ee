"""A record of one's own for each test, in a file as a notebook would have it."""

from collections.abc import Iterator

import pytest

from autograde.kit import record, student
from course.view import student_view


@pytest.fixture
def kept(tmp_path, monkeypatch) -> Iterator[record.Record]:
    monkeypatch.delenv("NBGRADER_EXECUTION", raising=False)
    monkeypatch.setattr(student, "_name", "")
    made = record.Record(tmp_path / record.FILE)
    monkeypatch.setattr(record, "_here", made)
    yield made
    student_view(None)
