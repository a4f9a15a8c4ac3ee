# ruff: noqa: E501 (floods are data)
"""Replies and pages made to hold who reads them: each costs its own submission, and little time."""

import json
import time
from pathlib import Path
from types import SimpleNamespace

import nbformat
import pytest
import torch

from autograde import bank, questions
from autograde.answers import Raised
from autograde.classroom import feedback, grading, student_code
from autograde.classroom.clean import clean_output
from autograde.classroom.feedback import write_feedback
from autograde.classroom.marking import MAX_OUTPUTS, _Run
from autograde.classroom.notebook_text import MAX_CELLS
from autograde.classroom.page import class_page
from autograde.classroom.report import read_rows
from autograde.classroom.student_code import read_code
from autograde.compare import CHANGED, SHORT, first_difference
from autograde.sandbox.bounds import TooMuchError, at_most, cpu_seconds
from autograde.sandbox.limits import Limits
from autograde.sandbox.outputs import MAX_VALUES, plain_outputs, values_in
from autograde.sandbox.session import StudentSession
from tests.attacks.further import SEND
from tests.attacks.handed_in import ASSIGNMENT, FULL, hand_in, new_class

SENDS = SEND + "send(('{\"id\": 1, \"outputs\": [' + TEXT + ']}').encode())"
SHOWN = '\'{"output_type":"display_data","metadata":{},"data":%s}\''
FLOODS = {
    "keys": SHOWN + " % ('{' + ','.join('\"a/%d\":\"x\"' % i for i in range(900_000)) + '}')",
    "metadata": "'{\"output_type\":\"display_data\",\"data\":{},\"metadata\":{' + ','.join('\"a%d\":[]' % i for i in range(900_000)) + '}}'",
    "lines": "'{\"output_type\":\"stream\",\"name\":\"stdout\",\"text\":[' + ','.join(['\"x\"'] * 3_000_000) + ']}'",
    "traceback": "'{\"output_type\":\"error\",\"ename\":\"E\",\"evalue\":\"x\",\"traceback\":[' + ','.join(['\"x\"'] * 3_000_000) + ']}'",
    "lists": SHOWN + " % ('{\"a/b\":' + '[' * 900 + '],[' * 2_000_000 + ']' * 900 + '}')",
    "nested": SHOWN + " % ('{\"a/b\":' + '[' * 5_000_000 + ']' * 5_000_000 + '}')",
    "objects": "','.join(['{\"output_type\":\"stream\",\"name\":\"stdout\",\"text\":\"x\"}'] * 200_000)",
    "html": SHOWN + " % ('{\"text/html\":\"' + '<b ' * 3_000_000 + '\"}')",
    "html-deep": SHOWN + " % ('{\"text/html\":\"' + '<b>' * 3_000_000 + '\"}')",
    "markdown": SHOWN + " % ('{\"text/markdown\":\"' + '![' * 3_000_000 + '\"}')",
    "colours": "'{\"output_type\":\"stream\",\"name\":\"stdout\",\"text\":\"' + r'\\u001b[1m' * 1_500_000 + '\"}'",
    "escapes": "'{\"output_type\":\"stream\",\"name\":\"stdout\",\"text\":\"' + r'\\\"' * 7_000_000 + '\"}'",
}  # fmt: skip
QUICK_S = 8.0
"""Processor time that reading one reply may take; an ordinary one takes a thousandth of this."""


@pytest.mark.slow
@pytest.mark.parametrize("name", FLOODS)
def test_a_flooding_reply_is_read_quickly_or_not_at_all(name):
    with StudentSession(None, Limits(cell_s=30.0)) as session:
        used = time.process_time()
        outputs = [
            clean_output(output) for output in session.run(SENDS.replace("TEXT", FLOODS[name]))
        ]
        assert time.process_time() - used < QUICK_S
    assert len(json.dumps(outputs)) < 3_000_000 and len(outputs) <= 1001
    for output in outputs:
        nbformat.validate(nbformat.from_dict(output), "output", version=4)


NOTES = """
import os, struct
def send(raw):
    for n in range(3, 40):
        try: os.write(n, (struct.pack('!i', len(raw)) + raw) * 200)
        except (OSError, KeyboardInterrupt): pass
while True:
    send(b'{"noted": "objects"}')
"""


def test_who_goes_on_telling_notes_is_stopped():
    used = time.process_time()
    with StudentSession(None, Limits(cell_s=20)) as asked:
        asked.run(NOTES)
        assert "more than 1,000 messages" in asked.ended and asked.noted == {"objects"}
    assert time.process_time() - used < 1


def test_words_with_commas_are_no_values():
    text = json.dumps({"id": 1, "outputs": [{"text": "[1, 2], " * 200_000 + '\\"'}]})
    assert values_in(text.encode()) < 20
    assert values_in(b"[" * (MAX_VALUES + 1)) > MAX_VALUES


def test_an_ordinary_output_is_kept_as_it_is():
    made = [
        nbformat.v4.new_output("stream", name="stderr", text="a\nb"),
        nbformat.v4.new_output("display_data", data={"text/plain": "x", "image/png": "aa=="}),
        nbformat.v4.new_output("error", ename="E", evalue="v", traceback=["a", "b"]),
    ]
    assert plain_outputs([dict(output) for output in made]) == made
    assert plain_outputs([{"output_type": "x"}, 5, None])[0]["text"].startswith("(an output of")
    assert plain_outputs("x") == [] and plain_outputs([{"output_type": "error"}])[0]["ename"] == ""


def test_a_notebooks_outputs_are_bounded_together():
    run = SimpleNamespace(outputs_left=5)
    cells = [_Run._kept(run, [{"output_type": "error", "ename": str(n)}] * 3) for n in range(3)]
    assert [len(cell) for cell in cells] == [3, 3, 1]
    assert cells[1][-1]["text"].startswith("1 more outputs are not kept: a notebook has room for")
    assert MAX_OUTPUTS >= 1000 and cells[2][0]["text"].startswith("3 more")


def test_a_report_reads_submissions_as_bounded_as_grading(tmp_path, monkeypatch):
    def handed_in(student, sources):
        cells = [{"cell_type": "code", "metadata": {}, "source": source} for source in sources]
        path = tmp_path / "submitted" / student / "a" / "a.ipynb"
        path.parent.mkdir(parents=True)
        path.write_text(json.dumps({"cells": cells}), "utf-8")

    handed_in("cells", ["x = 1"] * (MAX_CELLS + 1))
    handed_in("joined", ["a" * 20_000] * 1500)  # joined one by one they were copied 1500 times
    handed_in("zoe", ["x = 1", "y = 2"])
    beside = tmp_path / "submitted" / "zoe" / "a"
    for number in range(student_code.MAX_BESIDE + 1):
        (beside / f"own{number:02}.py").write_text("a" * 10**6 if number else "import marshal")
    (beside / "own01.py").unlink()
    (beside / "own01.py").symlink_to("/dev/zero")
    used = time.process_time()
    found, _given, unread = read_code(tmp_path, "a", ["cells", "joined", "zoe"])
    assert time.process_time() - used < 3
    assert set(found) == {"joined", "zoe"}
    (few,) = unread.pop("zoe")
    assert not unread and few.startswith("51 Python files lie next to its notebook, and only the")
    assert few.endswith("first 50 were read, up to “own49.py”")
    assert found["zoe"].pop("further cells") == "x = 1\n\0\ny = 2"
    assert found["zoe"]["“own00.py”"] == "import marshal"
    assert max(map(len, found["zoe"].values())) == student_code.MAX_SOURCE + 1
    assert len(found["zoe"]) == student_code.MAX_BESIDE - 1

    monkeypatch.setattr(student_code, "READ_S", 0.1)
    handed_in("slow", ["x = 1"])
    monkeypatch.setattr(student_code, "fingerprints", burn)
    found, _given, unread = read_code(tmp_path, "a", ["slow"])
    assert not found and unread == {
        "slow": ["reading its code takes more than 0.1 s of processor time; it was not compared"]
    }
    monkeypatch.setattr(student_code, "fingerprints", {}.__getitem__)
    found, _given, unread = read_code(tmp_path, "a", ["slow"])
    assert not found
    assert unread == {"slow": ["its code could not be read (KeyError); it was not compared"]}


def burn(_source):
    while True:
        pass


@pytest.mark.slow
def test_a_class_of_floods_is_graded_shown_and_reported_and_nobody_else_waits(
    tmp_path, monkeypatch
):
    folder = new_class(tmp_path / "class")
    hand_in(folder, "keys", lambda path: with_cell(path, SENDS.replace("TEXT", FLOODS["keys"])))
    hand_in(folder, "brackets", lambda path: with_answer(path, "[" * 60_000))
    hand_in(folder, "names", with_made_up_names)
    hand_in(folder, "zoe")
    (_seconds,) = [list(grading.grade(folder, ASSIGNMENT, limits=Limits(cell_s=10.0), jobs=1))]
    rows = {row.student: row for row in read_rows(folder, ASSIGNMENT)}
    assert rows["zoe"].total == FULL and rows["names"].total == FULL
    monkeypatch.setattr(feedback, "PAGE_S", 2.0)
    used = time.process_time()
    pages = write_feedback(folder, ASSIGNMENT)
    assert len(pages) == 4 and "clip_by_global_norm" in pages[-1].read_text("utf-8")
    page = class_page(folder, ASSIGNMENT)
    assert time.process_time() - used < 30 and "zoe" in page


def with_cell(path: Path, source: str) -> None:
    notebook = nbformat.read(path, as_version=4)
    notebook.cells.insert(0, nbformat.v4.new_code_cell(source))
    path.write_text(json.dumps(notebook), "utf-8")


def with_answer(path: Path, text: str) -> None:
    notebook = nbformat.read(path, as_version=4)
    notebook.cells[-1].source = text
    path.write_text(json.dumps(notebook), "utf-8")


def with_made_up_names(path: Path) -> None:
    """Cells of names nobody gave, each with as much code as is compared."""
    notebook = nbformat.read(path, as_version=4)
    for number in range(30):
        cell = nbformat.v4.new_code_cell("if 0:\n" + "    a = b + c * d\n" * 6000)
        cell.metadata["nbgrader"] = {"grade_id": f"made-up-{number}"}
        notebook.cells.append(cell)
    path.write_text(json.dumps(notebook), "utf-8")


def test_a_bound_ends_what_burns_or_fills_and_leaves_no_trace():
    with pytest.raises(TooMuchError, match="processor time"), at_most(0.05, 2**30):
        while True:
            pass
    with pytest.raises(TooMuchError, match="memory"), at_most(5.0, 2**28):
        bytearray(2**34)
    with at_most(5.0, 2**30):
        pass
    assert len(bytearray(2**29)) == 2**29


def test_waiting_is_not_counted_as_work():
    import os

    before = cpu_seconds(os.getpid())
    with at_most(0.2, 2**30):
        time.sleep(0.4)
    assert cpu_seconds(os.getpid()) - before < 0.3


class Counted(list):
    """A list that counts how much of it was looked at."""

    seen = 0

    def __iter__(self):
        for one in super().__iter__():
            self.seen += 1
            yield one


def test_of_a_long_answer_no_more_is_written_out_than_a_message_shows():
    """Each known mistake is compared with it: twelve answers held a grader for half a minute."""
    long = Counted(["\U0001f600" + "a" * 46] * 190_000)
    for expected in (["a"], 0.5, {"a": 1}):
        found = first_difference({"norm": expected}, {"norm": long})
        assert found is not None and len(found.got) <= SHORT
    assert long.seen < 1000
    several = first_difference({CHANGED: []}, {CHANGED: [f"weight {n}" for n in range(1000)]})
    assert several.reason.endswith("weight 19 and 980 more, which should stay as they were.")


def test_what_failed_for_want_of_memory_is_asked_again(monkeypatch):
    """The memory may have been taken by another submission's answer."""
    answers = iter(
        [Raised("MemoryError"), Raised("RuntimeError", "can't allocate memory"), {"a": 1}]
    )
    monkeypatch.setattr(questions, "answer_of", lambda *_, **__: next(answers))
    right = questions.Reference(bank.load("03a.clip"), None, torch.device("cpu"))
    case = {}
    assert [right(case) for _ in range(4)][2:] == [{"a": 1}, {"a": 1}]
