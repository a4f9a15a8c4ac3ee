"""nbgrader's formgrader in a class that `autograde grade` has graded: grades given by hand count.

The road of an instructor's evening: open formgrader, open a submission, read the written answer,
give points and a comment, see the total change; grade the class again and find them still there.
"""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from playwright.sync_api import expect

from autograde import class_dir
from autograde.classroom import example, grading
from autograde.classroom.gradebook import open_gradebook
from autograde.classroom.release import release
from autograde.classroom.report import read_rows

ASSIGNMENT, STUDENT, ANSWER = example.ASSIGNMENT, "ben", "who-counts-more"
COMMENT = "Right, and say by how much."
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def trusted() -> bool:
    """Where this machine cannot lock submissions away, the tests' own are trusted; not in CI."""
    from autograde.sandbox import doctor

    return bool(doctor.missing()) and not os.environ.get("CI")


@pytest.fixture(scope="module")
def class_of_one(tmp_path_factory, trusted) -> Path:
    """A class directory with one graded submission, whose written answer waits for a person."""
    folder = tmp_path_factory.mktemp("browser") / "class"
    class_dir.init(folder, [ASSIGNMENT])
    release(folder, ASSIGNMENT)
    example.hand_in(folder)
    (outcome,) = grading.grade(folder, ASSIGNMENT, [STUDENT], jobs=1, trusted=trusted)
    assert outcome.graded, outcome.reason
    return folder


@pytest.fixture(scope="module")
def formgrader(class_of_one, tmp_path_factory) -> Iterator[str]:
    """Address of formgrader on a Jupyter server of its own, started and stopped here."""
    home = tmp_path_factory.mktemp("home")
    with closing(socket.create_server(("127.0.0.1", 0))) as free:
        port = free.getsockname()[1]
    environment = {
        **{k: v for k, v in os.environ.items() if not k.lower().endswith("_proxy")},
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "HOME": str(home),
        "JUPYTER_CONFIG_DIR": str(home / "config"),
        "JUPYTER_DATA_DIR": str(home / "data"),
        "JUPYTER_RUNTIME_DIR": str(home / "runtime"),
    }
    log = home / "server.log"
    command = [
        *(sys.executable, "-m", "jupyter_server", "--no-browser", "--allow-root"),
        *("--ip=127.0.0.1", f"--port={port}", "--ServerApp.port_retries=0"),
        *("--IdentityProvider.token=", "--ServerApp.password="),
        f"--ServerApp.root_dir={class_of_one}",
        "--ServerApp.jpserver_extensions={'nbgrader.server_extensions.formgrader': True}",
    ]
    with log.open("w") as opened:
        server = subprocess.Popen(
            command, cwd=class_of_one, env=environment, stdout=opened, stderr=opened
        )
    address = f"http://127.0.0.1:{port}/formgrader"
    try:
        _wait_for(address, server, log)
        yield address
    finally:
        server.terminate()
        try:
            server.wait(10)
        except subprocess.TimeoutExpired:
            server.kill()
            server.wait()


def _wait_for(address: str, server: subprocess.Popen, log: Path) -> None:
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    deadline = time.monotonic() + 90
    while server.poll() is None and time.monotonic() < deadline:
        try:
            direct.open(address, timeout=10).close()
            return
        except urllib.error.HTTPError as answered:
            pytest.fail(f"formgrader answers {answered.code}:\n{log.read_text()[-3000:]}")
        except OSError:
            time.sleep(0.2)
    pytest.fail(f"the Jupyter server did not come up:\n{log.read_text()[-3000:]}")


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
