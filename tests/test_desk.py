"""The student's desk: copies written once, newer releases next to them, code to read."""

import json
import os
import re

import pytest
from typer.testing import CliRunner

from course import cli, desk
from course.released import Cell, cells_of, released


def notebook(*cells: tuple[str, str]) -> str:
    made = [
        {"id": id, "cell_type": "markdown" if id[0] == "m" else "code", "source": source}
        | {"metadata": {}}
        for id, source in cells
    ]
    return json.dumps({"cells": made, "metadata": {}, "nbformat": 4, "nbformat_minor": 5})


FIRST = notebook(("m1", "# One"), ("c1", "a = 1"), ("m2", "## Two"), ("c2", "b = 2"))
SECOND = notebook(("m1", "# One"), ("c1", "a = 1"), ("m2", "## Two"), ("c3", "b = 3"))


@pytest.fixture
def release(tmp_path, monkeypatch):
    path = tmp_path / "wheel" / "01a.ipynb"
    path.parent.mkdir()
    path.write_text(FIRST)
    monkeypatch.setattr(desk, "released", lambda: {"01a": path})
    monkeypatch.setattr(desk, "_lay_out_code", lambda target: None)
    return path


def lines_of(folder) -> list[str]:
    lines: list[str] = []
    desk.lay_out(folder, say=lines.append)
    return lines


def test_a_new_desk_holds_a_copy_of_each_notebook_and_a_second_call_changes_nothing(
    tmp_path, release
):
    folder = tmp_path / "mine"
    assert lines_of(folder) == ["new      01a.ipynb"]
    assert (folder / "notebooks" / "01a.ipynb").read_text() == FIRST
    assert lines_of(folder) == []


def test_what_a_student_wrote_stays_and_a_newer_release_lies_next_to_it(tmp_path, release):
    folder = tmp_path / "mine"
    desk.lay_out(folder, say=str)
    own = folder / "notebooks" / "01a.ipynb"
    own.write_text(FIRST.replace("a = 1", "a = 'mine'"))
    release.write_text(SECOND)
    said = lines_of(folder)
    assert "mine" in own.read_text()
    assert (folder / "notebooks" / "01a.newer.ipynb").read_text() == SECOND
    assert said[0] == (
        "newer    01a.newer.ipynb is the new release; your 01a.ipynb stays as it is."
    )
    assert said[1].endswith("Changed: Two") and lines_of(folder) == []


def test_a_third_release_overwrites_neither_copy(tmp_path, release):
    folder = tmp_path / "mine"
    desk.lay_out(folder, say=str)
    for number, text in enumerate((SECOND, FIRST.replace("b = 2", "b = 4"))):
        release.write_text(text)
        desk.lay_out(folder, say=str)
        (folder / "notebooks" / "01a.newer.ipynb").write_text("the student's") if not number else 0
    names = sorted(path.name for path in (folder / "notebooks").iterdir())
    assert names == ["01a.ipynb", "01a.newer-2.ipynb", "01a.newer.ipynb"]
    assert (folder / "notebooks" / "01a.newer.ipynb").read_text() == "the student's"


def test_without_the_original_an_older_copy_is_known_by_its_cells(tmp_path, release):
    folder = tmp_path / "mine"
    desk.lay_out(folder, say=str)
    (folder / ".released" / "01a.ipynb").unlink()
    own = folder / "notebooks" / "01a.ipynb"
    own.write_text(FIRST.replace("a = 1", "a = 'mine'"))
    assert lines_of(folder) == []  # the same cells: the same release
    (folder / ".released" / "01a.ipynb").write_text("{broken")
    release.write_text(SECOND)
    assert "newer" in lines_of(folder)[0] and "mine" in own.read_text()


def test_a_copy_that_is_broken_stays_and_the_release_lies_next_to_it(tmp_path, release):
    folder = tmp_path / "mine"
    desk.lay_out(folder, say=str)
    own = folder / "notebooks" / "01a.ipynb"
    own.write_text("not a notebook")
    (folder / ".released" / "01a.ipynb").unlink()
    assert "01a.newer.ipynb" in lines_of(folder)[0] and own.read_text() == "not a notebook"


def test_a_release_that_only_lost_a_cell_names_the_section_it_was_in():
    before = [Cell("m1", "markdown", "# One", {}), Cell("c1", "code", "a", {})]
    assert desk.changed_sections(before, before[:1], by_text=True) == ["One"]


def test_a_folder_with_other_peoples_work_is_refused(tmp_path, release):
    (tmp_path / "notebooks").mkdir()
    with pytest.raises(ValueError, match="holds a 'notebooks' that course lab did not make"):
        desk.lay_out(tmp_path)
    file = tmp_path / "file"
    file.write_text("")
    with pytest.raises(ValueError, match="is a file; name a new folder"):
        desk.lay_out(file)


def test_the_repository_is_no_desk():
    with pytest.raises(ValueError, match="Name a new folder"):
        desk.lay_out(desk.PACKAGE.parent)


def test_code_is_there_to_read_and_an_older_versions_goes(tmp_path):
    target = tmp_path / "course"
    (target / "engine").mkdir(parents=True)
    (target / "engine" / "gone.py").write_text("old")
    (target / "engine" / "trainer.py").write_text("old")
    (target / "engine" / "trainer.py").chmod(0o400)
    desk._lay_out_code(target)
    desk._lay_out_code(target)
    assert not (target / "engine" / "gone.py").exists()
    trainer = target / "engine" / "trainer.py"
    assert "class Trainer" in trainer.read_text()
    assert not os.stat(trainer).st_mode & 0o222
    assert not list(target.rglob("*.pyc")) and not list(target.rglob("*.ipynb"))


def test_links_to_code_open_in_the_desk_and_in_the_repository():
    found = []
    for path in released().values():
        for cell in cells_of(path):
            found += re.findall(r"\]\((\.\./[^)#]+)\)", cell.source)
    assert "../course/engine/trainer.py" in found
    for link in found:
        assert link.startswith("../course/"), link
        linked = desk.PACKAGE.parent / link.removeprefix("../")
        assert linked.is_file() and linked.suffix in desk.SHOWN_CODE, link


def test_the_command_makes_the_desk_and_opens_the_lab_there(tmp_path, release, monkeypatch):
    opened = {}
    monkeypatch.setattr(desk, "open_lab", lambda folder, **how: opened.update(how, at=folder) or 0)
    result = CliRunner().invoke(cli.app, ["lab", str(tmp_path / "mine"), "--no-browser"])
    assert result.exit_code == 0, result.output
    assert opened == {"at": tmp_path / "mine", "browser": False, "port": None}
    assert "Your notebooks are in" in result.output


def test_without_jupyterlab_it_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setattr(desk.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ValueError, match="pip install jupyterlab"):
        desk.open_lab(tmp_path, browser=False, port=None)


def test_an_installation_without_notebooks_says_so(monkeypatch, tmp_path):
    monkeypatch.setattr("course.released.FOLDERS", (tmp_path, tmp_path))
    with pytest.raises(FileNotFoundError, match="installation is not whole"):
        released.__wrapped__()


def test_the_desk_server_holds_no_message_of_a_kernel_back(monkeypatch):
    from jupyter_server.serverapp import ServerApp
    from jupyter_server.services.kernels.websocket import KernelWebsocketHandler

    from course.desk_server import PromptConnection

    option, path = desk.LAB[1].removeprefix("--ServerApp.").split("=")
    server, asked = ServerApp(), []
    setattr(server, option, path)  # refused by traitlets where there is no such class
    assert server.kernel_websocket_connection_class is PromptConnection

    monkeypatch.setattr(PromptConnection.__base__, "connect", lambda self: "connected")
    monkeypatch.setattr(KernelWebsocketHandler, "set_nodelay", lambda self, on: asked.append(on))
    connection = PromptConnection.__new__(PromptConnection)
    connection.websocket_handler = KernelWebsocketHandler.__new__(KernelWebsocketHandler)
    assert (connection.connect(), asked) == ("connected", [True])
