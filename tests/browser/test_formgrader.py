"""nbgrader's formgrader in a class that `autograde grade` has graded: grades given by hand count.

The road of an instructor's evening: open formgrader, open a submission, read the written answer,
give points and a comment, see the total change; grade the class again and find them still there.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import expect

from autograde.classroom import example, grading
from autograde.classroom.gradebook import open_gradebook
from autograde.classroom.release import release
from autograde.classroom.report import read_rows
from tests.browser.server import FORMGRADER, GUARD, serving
from tests.short_class import short_class

ASSIGNMENT, STUDENT, ANSWER = example.ASSIGNMENT, "ben", "who-counts-more"
COMMENT = "Right, and say by how much."
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def trusted() -> bool:
    """Where this machine cannot lock submissions away, the tests' own are trusted; not in CI."""
    from autograde.sandbox import protections

    return bool(protections.missing()) and not os.environ.get("CI")


@pytest.fixture(scope="module")
def class_of_one(tmp_path_factory, trusted) -> Path:
    """A class directory with one graded submission, whose written answer waits for a person."""
    folder = tmp_path_factory.mktemp("browser") / "class"
    short_class(folder)
    release(folder, ASSIGNMENT)
    example.hand_in(folder)
    (outcome,) = grading.grade(folder, ASSIGNMENT, [STUDENT], jobs=1, trusted=trusted)
    assert outcome.graded, outcome.reason
    return folder


@pytest.fixture(scope="module")
def formgrader(class_of_one, tmp_path_factory) -> Iterator[str]:
    """Address of formgrader on a Jupyter server of its own, started and stopped here."""
    home = tmp_path_factory.mktemp("home")
    with serving(class_of_one, home, [FORMGRADER, GUARD], "/formgrader") as address:
        yield f"{address}/formgrader"


def _total_of(page, address: str) -> str:
    """The student's total as formgrader's list of submissions shows it."""
    page.goto(f"{address}/manage_students/{STUDENT}")
    row = page.locator("tr", has_text=ASSIGNMENT)
    return row.locator("td").nth(1).inner_text().strip()


def test_a_grade_given_in_formgrader_counts_and_outlives_a_regrade(
    page, formgrader, class_of_one, trusted
):
    (row,) = read_rows(class_of_one, ASSIGNMENT)
    assert row.to_grade_by_hand == [ANSWER] and row.total == 16
    assert _total_of(page, formgrader).startswith("16")

    page.goto(formgrader)
    page.get_by_role("link", name="Manual Grading").click()
    page.get_by_role("link", name=ASSIGNMENT).click()
    page.get_by_role("link", name=ASSIGNMENT).click()
    page.get_by_role("link", name="Submission #1").click()

    score = page.locator(f"#{ANSWER}")
    expect(score).to_have_class(re.compile("needs_manual_grade"))
    with page.expect_response(lambda r: "/api/grade/" in r.url and r.request.method == "PUT"):
        score.fill("1.5")
        score.press("Tab")
    with page.expect_response(lambda r: "/api/comment/" in r.url and r.request.method == "PUT"):
        comment = page.locator(f"#{ANSWER}-comment")
        comment.fill(COMMENT)
        comment.press("Tab")

    assert _total_of(page, formgrader).startswith("17.5")
    (row,) = read_rows(class_of_one, ASSIGNMENT)
    assert row.total == 17.5 and row.to_grade_by_hand == []

    again = grading.grade(class_of_one, ASSIGNMENT, [STUDENT], jobs=1, trusted=trusted, force=True)
    assert all(outcome.graded and not outcome.unchanged for outcome in again)
    assert _total_of(page, formgrader).startswith("17.5")
    (row,) = read_rows(class_of_one, ASSIGNMENT)
    assert row.total == 17.5 and row.to_grade_by_hand == []  # the answer is what it was
    assert _comment_on(class_of_one) == COMMENT


def _comment_on(folder: Path) -> str:
    with open_gradebook(folder) as gradebook:
        notebook = gradebook.find_submission_notebook(ASSIGNMENT, ASSIGNMENT, STUDENT)
        (comment,) = [comment for comment in notebook.comments if comment.name == ANSWER]
        return comment.comment
