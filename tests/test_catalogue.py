"""What registers is found by its text, as parsing whole modules would find it."""

import ast

import pytest

from autograde import bank
from course import catalogue
from course.catalogue import read_catalogue

MARKERS = (*bank.CODE, *bank.VALUES)


def found_by_parsing(text: str) -> list[tuple[str, str]]:
    found = []
    for node in ast.parse(text).body:
        call = node.value if isinstance(node, ast.Assign) else None
        if isinstance(call, ast.Call) and getattr(call.func, "id", "") in MARKERS:
            words = {keyword.arg: keyword.value for keyword in call.keywords}
            found.append((node.targets[0].id, ast.literal_eval(words["id"])))
    return found


def test_every_exercise_is_found_and_no_other():
    (folder,) = bank.__path__
    parsed = {
        (f"autograde.bank.{path.stem}", *one)
        for path in bank.Path(folder).glob("*.py")
        for one in found_by_parsing(path.read_text("utf-8"))
    }
    assert {(one.module, one.name, one.id) for one in bank.catalogue().values()} == parsed


MODULE = """
GIVEN = '''
def step(): ...
)
'''
ONE = Number(id="1", title="a",
    question='''
at the margin(
''', source="here")


@Exercise(
    id="2", title="b", ledger=("N01",),
)
@other
class Two:
    inside = Number(id="3", title="c")
last = Number(id="4", title="d")"""


def test_strings_with_lines_at_the_margin_and_decorators_are_read(tmp_path):
    (tmp_path / "a.py").write_text(MODULE)
    found = read_catalogue("a", tmp_path, MARKERS)
    assert {id: (one.name, one.marker) for id, one in found.items()} == {
        "1": ("ONE", "Number"),
        "2": ("Two", "Exercise"),
        "4": ("last", "Number"),
    }
    assert found["1"].source == "here" and found["2"].ledger == ("N01",)


def test_the_head_of_a_call_says_what_the_whole_call_says(monkeypatch):
    """A list shows four arguments of an exercise; the others, ten times as long, are not parsed."""
    read, (folder,) = read_catalogue.__wrapped__, map(bank.Path, bank.__path__)
    parsed = []
    call_from = catalogue._call_from
    monkeypatch.setattr(catalogue, "_call_from", lambda *a: parsed.append(a) or call_from(*a))
    by_head = read("autograde.bank", folder, MARKERS)
    assert len(parsed) < len(by_head) / 4
    monkeypatch.setattr(catalogue, "_head_of_call", lambda *_args: None)
    assert read("autograde.bank", folder, MARKERS) == by_head


@pytest.mark.parametrize(
    ("text", "fault", "words"),
    [
        ("\n\nONE = Number(id=name, title='a')\n", ValueError, "line 3: Number"),
        ("\nONE = Number(id='a'\n", SyntaxError, "line 2: a call that is not closed"),
    ],
)
def test_what_cannot_be_read_is_named_with_its_line(tmp_path, text, fault, words):
    (tmp_path / "a.py").write_text(text)
    with pytest.raises(fault, match=words):
        read_catalogue("a", tmp_path, MARKERS)
