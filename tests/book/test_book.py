"""What the book's pages are made of, without making it: parts, links, addresses, jobs."""

import ast
import inspect
import json
import re
from itertools import pairwise
from pathlib import Path

import pytest

from book.build import BookError, build, check_names, check_target, put_in_place
from book.evidence import EvidenceError, Job, _run, digest
from book.links import LinkError, check_links
from book.pages.api import modules
from book.pages.notebooks import imported
from book.pages.text import linked
from book.parts import parts, parts_of
from course.ledger import rows
from course.released import released


def test_every_id_has_a_part():
    without = [id_ for id_ in rows() if not parts_of(id_)]
    assert not without, f"add their places to book/parts.toml: {without}"


def test_every_notebook_has_a_part():
    assert {name.partition("-")[0] for name in released() if name[:1].isdigit()} <= {
        part.key for part in parts()
    }


def test_what_a_part_says_names_known_ids():
    from course.ledger.homes import named

    for part in parts():
        assert len(part.says.split()) >= 40, f"{part.key} says too little"
        assert set(named(part.says)) <= set(rows())


@pytest.mark.parametrize(
    ("html", "links"),
    [
        ("see N19 there", 1),
        ("F27-F28 and B08", 3),
        ("<code>N19</code> <a href='x'>N19</a>", 0),
        ("Z99 and N999", 0),
        ("<p>N19</p><img src='N19.png'>", 1),
    ],
)
def test_known_ids_outside_code_and_links_become_links(html, links):
    assert linked(html).count("ledger-id") == links


def test_an_id_is_not_linked_on_its_own_page():
    assert "ledger-id" not in linked("N19", itself="N19")


def test_a_broken_link_is_named_with_its_page(tmp_path):
    (tmp_path / "a.html").write_text('<a href="b.html#there">x</a><a href="https://x.y">y</a>')
    (tmp_path / "b.html").write_text('<p id="there">x</p>')
    assert check_links(tmp_path) == 1
    (tmp_path / "b.html").write_text('<p id="elsewhere">x</p>')
    import book.links

    book.links._addresses.cache_clear()
    with pytest.raises(LinkError, match=r"a\.html: b\.html#there"):
        check_links(tmp_path)


def test_a_link_out_of_the_book_is_broken(tmp_path):
    (tmp_path / "outside.html").write_text("x")
    (tmp_path / "book").mkdir()
    (tmp_path / "book" / "a.html").write_text('<a href="../outside.html">x</a>')
    with pytest.raises(LinkError):
        check_links(tmp_path / "book")


def test_a_folder_of_something_else_is_left_alone(tmp_path):
    (tmp_path / "thesis.txt").write_text("mine")
    with pytest.raises(BookError, match="not a book"):
        build(tmp_path)
    with pytest.raises(BookError, match="is a file"):
        check_target(tmp_path / "thesis.txt")
    assert (tmp_path / "thesis.txt").read_text() == "mine"


def test_an_unknown_notebook_is_named():
    with pytest.raises(BookError, match="No notebook '99z'"):
        check_names(["99z"])
    assert check_names(["01a"]) == ["01a-tensors-and-autograd"]


def test_a_whole_book_takes_the_place_of_the_old_one(tmp_path):
    for name, text in (("new", "new"), ("book", "old")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "index.html").write_text(text)
    (tmp_path / "book" / "stale.html").write_text("stale")
    put_in_place(tmp_path / "new", tmp_path / "book")
    assert [path.name for path in (tmp_path / "book").iterdir()] == ["index.html"]
    assert (tmp_path / "book" / "index.html").read_text() == "new"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["book", "new"]


def test_a_failing_job_is_named_with_what_it_said(tmp_path, monkeypatch):
    monkeypatch.setattr("book.evidence.CACHE", tmp_path)
    with pytest.raises(
        EvidenceError, match=r"widget no-such-widget failed:\n[\s\S]*no-such-widget"
    ):
        _run(Job("widget", "no-such-widget"))
    assert not list(tmp_path.iterdir())


def test_a_cell_that_fails_is_named_with_its_notebook(monkeypatch):
    from autograde.run_through import RunThrough
    from book import evidence

    broken = RunThrough("01a", None, ("accumulate = 3: NameError",))
    monkeypatch.setattr("autograde.run_through.run_through", lambda name: broken)
    with pytest.raises(EvidenceError, match=r"01a\.py: accumulate = 3: NameError"):
        evidence.notebook("01a")


def test_a_key_changes_with_what_the_result_rests_on(tmp_path, monkeypatch):
    monkeypatch.setattr("book.evidence.ROOT", tmp_path)
    (tmp_path / "a.py").write_text("1")
    digest.cache_clear()
    first = digest(("a.py",))
    (tmp_path / "a.py").write_text("2")
    assert digest(("a.py",)) == first  # of one build, the code is what it was at its start
    digest.cache_clear()
    assert digest(("a.py",)) != first
    digest.cache_clear()


def test_an_id_without_a_home_fails_the_build(tmp_path, monkeypatch):
    monkeypatch.setattr("book.build.missing", lambda: ["N99"])
    with pytest.raises(BookError, match="N99"):
        build(tmp_path / "book")
    assert not (tmp_path / "book").exists()


def test_what_a_notebook_imports_leads_to_where_it_is_written():
    code = (
        "from course.engine import Trainer\nfrom course.data import (\n    load,  # digits\n)\n"
        "from autograde import check\nimport torch\nfrom torch import nn\n"
    )
    found = imported(code)
    assert found["Trainer"] == "course.engine.trainer.Trainer"
    assert set(found) == {"Trainer", "load", "check"}


def test_answers_of_exercises_are_not_in_the_reference():
    names = [name for name, _ in modules()]
    assert "course.engine.step" in names and "autograde.bank" in names
    assert not [name for name in names if name.startswith("autograde.bank.")]


def test_sphinx_reads_what_the_build_knows(tmp_path):
    from book.build import about_now

    about = json.loads(json.dumps(about_now()))
    assert {"torch", "Python", "date", "commit"} <= set(about)


def test_what_goes_on_in_a_list_of_a_docstring_is_indented():
    """Else the list ends there, and what is quoted across the two lines becomes a broken link."""
    for path in sorted((Path(__file__).parents[2] / "course").rglob("*.py")):
        text = path.read_text("utf-8")
        for node in ast.walk(ast.parse(text)) if re.search("^ *- ", text, re.MULTILINE) else ():
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                for line, after in pairwise(inspect.cleandoc(node.value).splitlines()):
                    goes_on = line.startswith("- ") and after
                    assert not goes_on or after.startswith(("- ", "  ")), f"{path.name}: {after}"
