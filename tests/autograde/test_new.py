"""Skeletons: a new exercise of every kind, and a new notebook, pass the tests as they are."""

import importlib.util
import sys

import pytest

from autograde import bank, check, new, student
from autograde.exercise import KINDS
from autograde.expand import expand
from autograde.kinds import Number, ValueExercise
from autograde.sources import read_source


@pytest.fixture(params=KINDS)
def made(request, tmp_path, monkeypatch):
    path = new.new_exercise("99z.first-try", request.param, tmp_path)
    name = f"autograde.bank.{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, name, module)
    spec.loader.exec_module(module)
    entries = bank.read_catalogue("autograde.bank", tmp_path, (*bank.CODE, *bank.VALUES))
    assert [entry.id for entry in entries.values()] == ["99z.first-try"]
    monkeypatch.setattr(bank, "load", lambda _id: module.EXERCISE)
    monkeypatch.setattr(bank, "catalogue", lambda: entries)
    student("ada")
    return module.EXERCISE


def test_a_skeleton_says_its_kind_and_has_three_hints(made):
    assert made.kind in KINDS and len(set(made.hints)) == 3 and made.points > 0


def test_right_ones_pass_and_wrong_ones_are_named(made):
    if isinstance(made, ValueExercise):
        assert check(made.id, made.right_value("ada")).passed
        assert check(made.id, None).verdict.status == "blank"
        if isinstance(made, Number):
            made.inputs_of("ben")
        return
    for seed in range(5):
        for right in made.right:
            result = check(made.id, right, parts="all", seed=seed)
            assert result.passed, f"{right}\n{result.message}"
        for wrong in made.wrong:
            result = check(made.id, wrong.function, parts="all", seed=seed)
            assert not result.passed, wrong.name
            assert result.verdict.misconception in ("", wrong.name), result.message


def test_its_cells_are_made_from_the_bank(made):
    body = ""
    if made.kind in ("function", "class", "number"):
        what = {"function": f"def {made.signature}:", "class": f"class {made.name}:"}
        line = what.get(made.kind, "x = 0")
        body = f"{line}\n    ### BEGIN SOLUTION\n    pass\n    ### END SOLUTION\n"
    text = expand(f"# %% exercise {made.id}\n{body}\n# %% [markdown]\n# after\n")
    assert 'check("99z.first-try", ' in text and "# after" in text
    assert ("At most 3 lines may differ." in text) == (made.kind == "fix")
    assert '"grade_id": "first-try-check"' in text


def test_a_new_notebook_reads_as_a_source(tmp_path):
    path = new.new_notebook("99z-first-try", tmp_path)
    cells = read_source(path).cells
    assert cells[0].source.startswith("# 99z · First try")
    with pytest.raises(ValueError, match="there already"):
        new.new_notebook("99z-first-try", tmp_path)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("03a.clip",), "already in the bank"),
        (("clip",), "not an exercise's id"),
        (("03a.Clip it",), "not an exercise's id"),
        (("03a.../../x",), "not an exercise's id"),
        (("99a.new", "essay"), "not a kind"),
    ],
)
def test_a_bad_id_or_kind_is_refused_and_nothing_is_written(tmp_path, words, message):
    with pytest.raises(ValueError, match=message):
        new.new_exercise(*words, folder=tmp_path)
    assert not list(tmp_path.iterdir())
