"""The gradebook on a PostgreSQL server, named in the class's nbgrader_config.py as nbgrader has it.

The server is a real one, made for these tests and stopped after them: it listens on a socket in a
folder of its own, and on no port.
"""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from autograde.classroom import example, grading
from autograde.classroom.feedback import write_feedback
from autograde.classroom.gradebook import open_gradebook
from autograde.classroom.release import release
from autograde.classroom.report import read_rows
from autograde.demo import compare
from tests.short_class import short_class

ASSIGNMENT = example.ASSIGNMENT
GRADED = ("ben", "cleo")
pytestmark = pytest.mark.slow


def programs() -> Path | None:
    """Where initdb and pg_ctl lie; Debian keeps them off the PATH."""
    on_path = shutil.which("initdb")
    places = [Path(on_path).resolve().parent] if on_path else []
    places += sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    return next((p for p in places if (p / "initdb").exists() and (p / "pg_ctl").exists()), None)


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    """URL of an empty database on a server of our own."""
    found = programs()
    if found is None:
        pytest.skip("no PostgreSQL server is installed (Debian: apt-get install postgresql)")
    pytest.importorskip("psycopg", reason="psycopg is not installed: pip install 'psycopg[binary]'")
    folder = Path(tempfile.mkdtemp(prefix="pg-"))  # a socket's path is short
    data, become = folder / "data", []
    if os.geteuid() == 0:  # the server refuses root
        user = _somebody_else()
        os.chown(folder, user.pw_uid, user.pw_gid)
        become = ["setpriv", f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}", "--clear-groups"]

    def run(program: str, *words: str) -> None:
        command = [*become, str(found / program), "-D", str(data), *words]
        environment = {"PATH": os.environ["PATH"], "LC_ALL": "C"}
        with (folder / "log.txt").open("a") as log:
            subprocess.run(
                command,
                check=True,
                cwd=folder,
                timeout=120,
                env=environment,
                stdout=log,
                stderr=log,
            )

    try:
        run("initdb", "-U", "teacher", "-A", "trust", "-E", "UTF8", "--no-sync")
        settings = f"-k {folder} -c listen_addresses='' -c fsync=off"
        run("pg_ctl", "start", "-w", "-o", settings, "-l", str(folder / "server.txt"))
        try:
            yield f"postgresql+psycopg://teacher@/postgres?host={folder}"
        finally:
            run("pg_ctl", "stop", "-w", "-m", "immediate")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _somebody_else() -> pwd.struct_passwd:
    users = {entry.pw_name: entry for entry in pwd.getpwall()}
    return users.get("postgres") or users["nobody"]


def test_a_class_keeps_its_gradebook_on_the_server(server, tmp_path, isolation):
    folder = tmp_path / "class"
    short_class(folder)
    with (folder / "nbgrader_config.py").open("a") as config:
        config.write(f"c.CourseDirectory.db_url = {server!r}\n")
    release(folder, ASSIGNMENT)
    example.hand_in(folder)

    outcomes = grading.grade(folder, ASSIGNMENT, [*GRADED], jobs=1, trusted=isolation.trusted)
    assert [outcome.reason for outcome in outcomes] == ["", ""]
    rows = read_rows(folder, ASSIGNMENT)
    wanted = {name: example.expected()[name] for name in GRADED}
    assert compare(rows, wanted) == []
    assert all(page.exists() for page in write_feedback(folder, ASSIGNMENT, [*GRADED]))

    assert not list(folder.rglob("*.db")), "a gradebook in a file as well"
    with open_gradebook(folder) as gradebook:
        assert gradebook.db.get_bind().dialect.name == "postgresql"
        assert {student.id for student in gradebook.students} == set(GRADED)

    again = list(grading.grade(folder, ASSIGNMENT, [*GRADED], jobs=1, trusted=isolation.trusted))
    assert all(outcome.unchanged for outcome in again)
