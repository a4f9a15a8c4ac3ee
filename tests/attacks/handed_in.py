# ruff: noqa: E501 (submissions are data)
"""Hostile files rather than hostile code: what lies in submitted/, and under which name.

Each is made from the released notebook with a right answer, so that whatever is read of it earns
its points honestly: `points` says how many, or `says` why there is no grade. The class is small:
the cells of 03a.clip and a written answer.
"""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import nbformat

from autograde import class_dir
from autograde.classroom.release import release
from autograde.sources import read_source, source_paths
from tests import short_class
from tests.attacks.submissions import HONEST

ASSIGNMENT = "a"
CELLS = ("clip", "clip-check", "clip-hidden", "who-counts-more")
FULL = 4.0
"""Points of a right answer; the written one waits for a person."""
Make = Callable[[Path], object]
Edit = Callable[[dict[str, Any]], object]


@dataclass(frozen=True, kw_only=True)
class HandedIn:
    """One submission: a name of a student's folder, and what becomes of the right notebook in it."""

    make: Make
    """Is given the path of the notebook, which is there, and right."""
    points: float | None = None
    """None: it is not graded."""
    says: str = ""
    """Words of the reason, or of a note."""
    folder: str = ""
    """Name in submitted/, if it is not the attack's own."""
    shown: str = ""
    """How it is named to people, where that is not the folder's name."""


def new_class(folder: Path) -> Path:
    """A class directory of the small assignment, released."""
    class_dir.init(folder, ["03a-training-recipe"])
    whole = read_source(source_paths()["03a-training-recipe"])
    cells = [c for c in whole.cells if c.metadata.get("nbgrader", {}).get("grade_id") in CELLS]
    imports = nbformat.v4.new_code_cell("import torch\n\nfrom autograde import check", id="imports")
    whole.cells = [nbformat.v4.new_markdown_cell("# Clip", id="title"), imports, *cells]
    for path in folder.glob("source/*/*"):
        path.unlink()
        path.parent.rmdir()
    source = folder / "source" / ASSIGNMENT / f"{ASSIGNMENT}.ipynb"
    source.parent.mkdir()
    nbformat.write(whole, source)
    release(folder, ASSIGNMENT)
    return folder


def answered(folder: Path) -> str:
    """The released notebook with a right answer."""
    path = folder / "release" / ASSIGNMENT / f"{ASSIGNMENT}.ipynb"
    notebook = json.loads(path.read_text("utf-8"))
    cell_of(notebook, "clip")["source"] = HONEST.strip()
    return json.dumps(notebook)


def hand_in(folder: Path, student: str | bytes, make: Make = lambda _path: None) -> None:
    """Put the right notebook into a student's folder, then do to it what is to be done."""
    make(short_class.hand_in(folder, os.fsdecode(student), ASSIGNMENT, answered(folder)))


def cell_of(notebook: dict[str, Any], grade_id: str) -> dict[str, Any]:
    """The cell with this grade_id."""
    marks = ((c, c["metadata"].get("nbgrader", {})) for c in notebook["cells"])
    return next(cell for cell, mark in marks if mark.get("grade_id") == grade_id)


def edited(edit: Edit) -> Make:
    """A notebook changed as JSON."""

    def make(path: Path) -> None:
        notebook = json.loads(path.read_text("utf-8"))
        edit(notebook)
        path.write_text(json.dumps(notebook), "utf-8")

    return make


def marks(grade_id: str, /, **changes: Any) -> Make:
    """nbgrader's metadata of a cell overwritten."""
    return edited(lambda nb: cell_of(nb, grade_id)["metadata"]["nbgrader"].update(changes))


def all_marks(**changes: Any) -> Make:
    """The same of every cell that has any."""
    return edited(lambda nb: [
        c["metadata"]["nbgrader"].update(changes) for c in nb["cells"] if "nbgrader" in c["metadata"]
    ])  # fmt: skip


def replaced(old: str, new: str) -> Make:
    """The file's text with something else in one place."""

    def make(path: Path) -> None:
        text = path.read_text("utf-8")
        assert old in text
        path.write_text(text.replace(old, new, 1), "utf-8")

    return make


def recoded(encoding: str, said: str = "") -> Make:
    """The same text, with something beyond ASCII in it, in another encoding."""

    def make(path: Path) -> None:
        notebook = json.loads(path.read_text("utf-8"))
        notebook["cells"][0]["source"] = ["Grüße, naïve café"]
        text = json.dumps(notebook, ensure_ascii=False)
        path.write_bytes(text.encode(encoding))

    return make


def beside(name: str | bytes, make: Callable[[str], object]) -> Make:
    """Something else in the folder."""

    def made(path: Path) -> None:
        make(os.path.join(path.parent, os.fsdecode(name)))

    return made


def instead(make: Callable[[str], object]) -> Make:
    """Something else in the notebook's place."""

    def made(path: Path) -> None:
        path.unlink()
        make(str(path))

    return made


def written(text: str | bytes) -> Callable[[str], object]:
    raw = text if isinstance(text, bytes) else text.encode()
    return lambda path: Path(path).write_bytes(raw)


def sparse(size: int) -> Callable[[str], object]:
    def make(path: str) -> None:
        with open(path, "wb") as file:
            file.truncate(size)

    return make


def listener(path: str) -> None:
    """A socket; bound by a relative name, as such names are short."""
    here = os.getcwd()
    os.chdir(os.path.dirname(path))
    try:
        socket.socket(socket.AF_UNIX).bind(os.path.basename(path))
    finally:
        os.chdir(here)


def deep_folders(levels: int) -> Make:
    def make(path: Path) -> None:
        here = os.getcwd()
        os.chdir(path.parent)
        try:
            for _ in range(levels):
                os.mkdir("d" * 20)
                os.chdir("d" * 20)
        finally:
            os.chdir(here)

    return make


def many_files(count: int) -> Make:
    def make(path: Path) -> None:
        for number in range(count):
            os.close(os.open(path.parent / f"f{number}", os.O_CREAT | os.O_WRONLY))

    return make


def inside(depth: int, text: str = "1") -> str:
    return "[" * depth + text + "]" * depth


def swap(first: int, second: int) -> Edit:
    def edit(nb: dict[str, Any]) -> None:
        cells = nb["cells"]
        cells[first], cells[second] = cells[second], cells[first]

    return edit


def code(source: str, **more: Any) -> dict[str, Any]:
    return {"cell_type": "code", "metadata": {}, "source": source, "outputs": [],
            "execution_count": None, "id": "added", **more}  # fmt: skip


def many_cells(count: int, source: str = "") -> Edit:
    return lambda nb: nb["cells"].extend(code(source, id=f"c{i}") for i in range(count))


def to(grade_id: str, **changes: Any) -> Edit:
    return lambda nb: cell_of(nb, grade_id).update(changes)


def as_version_3(path: Path) -> None:
    notebook = nbformat.convert(nbformat.read(path, 4), 3)
    path.write_text(json.dumps(notebook), "utf-8")


def turned(grade_id: str, kind: str, source: str) -> Make:
    """A code cell made one of another type."""

    def edit(nb: dict[str, Any]) -> None:
        cell = cell_of(nb, grade_id)
        cell.update(cell_type=kind, source=source)
        del cell["outputs"], cell["execution_count"]

    return edited(edit)


def metadata(**changes: Any) -> Make:
    return edited(lambda nb: nb["metadata"].update(changes))


def first_cell(**changes: Any) -> Make:
    return edited(lambda nb: nb["cells"][0].update(changes))


def added(*cells: dict[str, Any]) -> Make:
    return edited(lambda nb: nb["cells"].extend(cells))


def raw_number(text: str) -> Make:
    """A number of the file's, in the metadata of its first graded cell."""
    return replaced('"metadata": {"deletable"', f'"metadata": {{"x": {text}, "deletable"')


def hard_link(*to: str) -> Make:
    return lambda path: os.link(path.parents[3].joinpath(*to), path.with_name("notes.txt"))


def removed(path: Path) -> None:
    path.unlink()


def without_ids(nb: dict[str, Any]) -> None:
    nb["nbformat_minor"] = 0
    for cell in nb["cells"]:
        del cell["id"]


def read(make: Make, says: str = "", **more: Any) -> HandedIn:
    """Odd, and read all the same: full marks for the right answer in it."""
    return HandedIn(make=make, points=FULL, says=says, **more)


def refused(says: str, make: Make = lambda _path: None, **more: Any) -> HandedIn:
    """Not graded, for this reason."""
    return HandedIn(make=make, says=says, **more)


MINE = {"grade": True, "solution": False, "locked": True, "points": 50, "schema_version": 3}
EVIL_ID = "\x1b[31m\u202e\n<b>"

FORMAT = {
    "version-3": read(as_version_3),
    "version-4.0": read(edited(without_ids)),
    "version-4.2-with-ids": read(edited(lambda nb: nb.update(nbformat_minor=2))),
    "version-4.99": read(edited(lambda nb: nb.update(nbformat_minor=99))),
    "version-5": refused("is not a notebook (Unsupported nbformat version 5)", edited(lambda nb: nb.update(nbformat=5))),
    "version-null": refused("has nbformat None, but it should be the number 4", edited(lambda nb: nb.update(nbformat=None))),
    "schema-1": read(all_marks(schema_version=1)),
    "schema-4": read(all_marks(schema_version=4)),
    "schema-text": read(all_marks(schema_version="3")),
    "schema-null": read(all_marks(schema_version=None)),
    "schema-huge": read(all_marks(schema_version=10**400)),
    "another-kernel": read(metadata(kernelspec={"name": "../../evil", "display_name": "x", "argv": ["touch", "/tmp/autograde-canary"]})),
    "no-kernel": refused("is not a notebook", metadata(kernelspec=None)),
    "widget-state": read(metadata(widgets={"application/vnd.jupyter.widget-state+json": {"state": {f"m{i}": {"x": "y" * 1000} for i in range(2000)}}})),
    "attachment-climbs": read(first_cell(attachments={"../../../x.png": {"image/png": "A" * 10**6, "text/x-evil": "<script>"}})),
    "attachment-is-a-number": refused("is not a notebook", first_cell(attachments={"x": 5})),
    "same-cell-ids": read(edited(lambda nb: [cell.update(id="same") for cell in nb["cells"]])),
    "cell-id-climbs": refused("is not a notebook", first_cell(id="../x")),
    "cell-id-endless": refused("…). Ask", first_cell(id="x" * 10**6)),
    "title-escapes": read(metadata(title="</title><script>window.ran = 1</script>", authors=[{"name": 5}])),
}  # fmt: skip

MARKS = {
    "points-300": read(marks("clip-check", points=300)),
    "unlocked": read(all_marks(locked=False)),
    "check-not-graded": read(marks("clip-check", grade=False)),
    "check-is-a-solution": read(marks("clip-check", solution=True)),
    "solution-is-a-check": read(marks("clip", grade=True, points=50)),
    "all-are-tasks": read(all_marks(task=True)),
    "points-of-ones-own": read(added(code("100", metadata={"nbgrader": {**MINE, "grade_id": "mine"}}))),
    "check-is-text": read(turned("clip-check", "markdown", "100"), "check cell 'clip-check' was edited"),
    "check-is-raw": read(turned("clip-check", "raw", "100"), "check cell 'clip-check' was edited"),
    "solution-is-text": read(turned("clip", "markdown", HONEST)),
    "answer-is-code": read(edited(to("who-counts-more", cell_type="code", outputs=[], execution_count=None, source="2"))),
    "check-before-the-answer": HandedIn(make=edited(swap(2, 4)), points=1.0),
    "check-renamed": read(marks("clip-check", grade_id="clip-hidden"), "'clip-check' was deleted; it was restored"),
    "id-of-ones-own": read(added(*(code("1", id=i, metadata={"nbgrader": {"grade_id": EVIL_ID}}) for i in ("x", "y")))),
    "id-endless": read(added(*(code("1", id=i, metadata={"nbgrader": {"grade_id": "x" * 10**6}}) for i in ("x", "y")))),
}  # fmt: skip

BYTES = {
    "byte-order-mark": read(lambda path: path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())),
    "from-windows": read(lambda path: path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes().replace(b"\n", b"\r\n"))),
    "two-byte-order-marks": refused("is not valid JSON", lambda path: path.write_bytes(b"\xef\xbb\xbf" * 2 + path.read_bytes())),
    "utf-16": refused("is UTF-16 text", recoded("utf-16")),
    "latin-1": refused("is not UTF-8 text (byte 0xfc at", recoded("latin-1")),
    "zeros": refused("is not valid JSON", instead(sparse(2**20))),
    "sparse": refused("bytes but holds almost none", instead(sparse(10 * 2**30))),
    "nested-200": refused("more than 100 deep", raw_number(inside(200))),
    "nested-100000": refused("is not valid JSON", raw_number(inside(100_000))),
    "infinite": refused("holds the number inf", raw_number("1e999")),
    "not-a-number": refused("holds the number nan", raw_number("NaN")),
    "minus-zero": read(raw_number("-0")),
    "digits-400": read(raw_number("1" + "0" * 400)),
    "digits-5000": refused("is not a notebook", raw_number("1" + "0" * 5000)),
    "many-cells": refused("cells; at most 2,000", edited(many_cells(2500))),
    "many-values": refused("1,000,000 are read", metadata(x=[[]] * 1_000_000)),
    "null-byte-in-a-cell": read(added(code("x = 1\0"))),
}  # fmt: skip

PLACE = {
    "pipe": refused("a.ipynb is a pipe, a socket or a device", instead(os.mkfifo)),
    "socket": refused("a.ipynb is a pipe, a socket or a device", instead(listener)),
    "pipe-beside": refused("data is a pipe", beside("data", os.mkfifo)),
    "timestamp-is-a-pipe": refused("timestamp.txt is a pipe", beside("timestamp.txt", os.mkfifo)),
    "timestamp-is-a-folder": refused("timestamp.txt that is not a line", beside("timestamp.txt", os.mkdir)),
    "timestamp-endless": refused("timestamp.txt that is not a line", beside("timestamp.txt", written("1 " * 10**5))),
    "timestamp-nonsense": refused("which is not a time", beside("timestamp.txt", written("yesterday \x1b[31m"))),
    "timestamp-early": read(beside("timestamp.txt", written("0001-01-01 00:00 UTC"))),
    "timestamp-misread": refused("nbgrader would read as", beside("timestamp.txt", written("0001-01-01 00:00 +14:00"))),
    "two-notebooks": read(beside("b.ipynb", written("{}"))),
    "two-by-case": read(beside("A.ipynb", written("{}"))),
    "wrong-case": refused("does not exist (found A.ipynb: rename it)", lambda path: path.rename(path.with_name("A.ipynb"))),
    "no-text-for-a-name": refused(r"found caf\xe9.ipynb: rename it", lambda path: path.rename(path.with_name(os.fsdecode(b"caf\xe9.ipynb")))),
    "name-of-two-lines": refused(r"found x\n\x1b[31m.ipynb", lambda path: path.rename(path.with_name("x\n\x1b[31m.ipynb"))),
    "beside-no-text": read(beside(b"caf\xe9.txt", written("x"))),
    "beside-a-long-name": read(beside("x" * 255, written("x"))),
    "link-no-text": refused(r"a link (caf\xe9)", beside(b"caf\xe9", lambda path: os.symlink("/etc/passwd", path))),
    "hard-link": refused("a hard link to a file of this class directory", hard_link("source", ASSIGNMENT, f"{ASSIGNMENT}.ipynb")),
    "deep-folders": refused("folders 41 deep", deep_folders(1100)),
    "many-files": refused("more than 10,000 files", many_files(10_001)),
    "a-file-for-a-folder": refused("does not exist", lambda path: (path.unlink(), path.parent.rmdir(), path.parent.write_text("x"))),
}  # fmt: skip

NAMES = {
    "pattern": refused("contains [, and nbgrader", removed, folder="[a]da"),
    "everybody": refused("contains *, and nbgrader", folder="*"),
    "no-text": refused(r"contains \xe9, which cannot be shown", folder=os.fsdecode(b"caf\xe9"), shown=r"caf\xe9"),
    "two-lines": refused(r"contains \n, which", folder="new\nline", shown=r"new\nline"),
    "turned": refused(r"contains \u202e, which", folder="\u202eada", shown=r"\u202eada"),
    "blank": refused("begins or ends with a blank", folder=" ada"),
    "hidden": refused("begins with a dot", folder=".ada"),
    "endless": refused("is 240 characters long", folder="x" * 240, shown="x" * 80 + "…"),
    "wide": refused("takes 252 bytes", folder="\U0001f600" * 63, shown="\U0001f600" * 50 + "…"),
    "codes": refused(r"contains \U000e0001, which", folder="\U000e0001" * 50, shown=r"\U000e0001" * 20 + "…"),
    "formula-inside": read(lambda _path: None, folder="x;=1+1"),
    "formula": read(lambda _path: None, folder="=cmd()|'x'!A1"),
    "markup": refused("contains <, which nbgrader's pages would read", folder="<img src=x onerror=ran=1>"),
    "composed": read(lambda _path: None, folder="né"),
    "decomposed": read(lambda _path: None, folder="ne\u0301"),
    "case": read(lambda _path: None, folder="ADA"),
}  # fmt: skip

CODE = {
    "output-nested": read(added(code("from IPython.display import publish_display_data as p\nx = 1\nfor _ in range(500): x = [x]\np({'application/json': {'x': x}})"))),
    "outputs-many": read(added(code("from IPython.display import publish_display_data as p\nfor i in range(20_000): p({'text/plain': str(i)})"))),
    "output-infinite": read(added(code("from IPython.display import publish_display_data as p\np({'application/json': {'x': 1e999}})"))),
    "exception-is-markup": HandedIn(make=edited(to("clip", source="def clip_by_global_norm(*a): raise type('[/red]\\x1b[31m', (Exception,), {})('[/b]\\u202e')")), points=0.0),
    "pictures-multiplied": read(first_cell(source="![x](attachment:x.png)" * 5000, attachments={"x.png": {"image/png": "A" * 2 * 10**6}})),
    "markdown-endless": read(first_cell(source="[" * 50_000)),
}  # fmt: skip

HANDED_IN = {**FORMAT, **MARKS, **BYTES, **PLACE, **NAMES, **CODE}


def student_of(name: str) -> str:
    """The name of an attack's folder in submitted/."""
    return HANDED_IN[name].folder or name
