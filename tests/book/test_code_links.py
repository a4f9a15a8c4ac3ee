"""Names in a notebook's code that lead to the reference, and those that must not."""

import re

import pytest
from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import PythonLexer

from book.links import LinkError, check_links
from book.pages.code_links import names_in, with_links

CLIP = "course.engine.clipping.clip_by_global_norm"
NUMBER = "course.worked.registry.compute"
START = '<div class="cell_input docutils container">\n<div class="highlight-python notranslate">'
LINK = re.compile(r'<a class="api" href="([^"]*)" title="([^"]*)">(.*?)</a>')


def page(*cells: str) -> str:
    """Cells as Sphinx writes them, each with its own highlighted code."""
    made = (highlight(code, PythonLexer(stripnl=False), HtmlFormatter()) for code in cells)
    return "<h1>A page</h1>".join(f"{START}{code}</div></div>" for code in made)


def links(*cells: str) -> list[tuple[str, str]]:
    """(word, dotted name) of each link on the page of these cells."""
    made = with_links(page(*cells), lambda name: f"../api/{name}.html")
    assert LINK.sub(r"\3", made) == page(*cells)  # nothing else has changed
    assert all(href == f"../api/{name}.html" for href, name, _ in LINK.findall(made))
    return [(word, name) for _, name, word in LINK.findall(made)]


def test_a_name_leads_to_where_it_is_written_also_in_later_cells():
    found = links(
        "from course.engine import (\n    clip_by_global_norm,  # joint\n)",
        "x = '→ < &', clip_by_global_norm([], 1.0)",
    )
    assert found == [
        ("course.engine", "course.engine"),
        ("clip_by_global_norm", CLIP),
        ("clip_by_global_norm", CLIP),
    ]


def test_a_module_and_what_is_taken_from_it():
    assert links("from course import worked", "worked.compute('N20').steps") == [
        ("course", "course"),
        ("worked", "course.worked"),
        ("worked", "course.worked"),
        ("compute", NUMBER),
    ]


def test_another_name_given_at_the_import():
    found = links("import course.worked as w\nfrom course.engine import clip_by_global_norm as c")
    assert found[0] == ("course.worked", "course.worked")
    assert links("from course.engine import clip_by_global_norm as c", "c([], 1)")[-1] == (
        "c",
        CLIP,
    )
    assert links("import course.worked", "course.worked.compute('N20')")[1:] == [
        ("course", "course"), ("worked", "course.worked"), ("compute", NUMBER),
    ]  # fmt: skip


IMPORT = "from course.engine import clip_by_global_norm"


@pytest.mark.parametrize(
    "cell",
    [
        "# clip_by_global_norm, in 'course.engine'",
        "model.clip_by_global_norm()",
        "train(clip_by_global_norm=3)",
        "def clip_by_global_norm(parameters):\n    return clip_by_global_norm",
        "def f(clip_by_global_norm):\n    return clip_by_global_norm",
        "clip_by_global_norm = 3\nprint(clip_by_global_norm)",
        "clip_by_global_norm(  # not Python yet",
        "torch.nn.utils.clip_by_global_norm",
        "import torch.nn.functional as F",
    ],
)
def test_another_thing_of_that_name_is_no_link(cell):
    assert len(links(IMPORT, cell)) == 2  # the import's own


def test_a_notebooks_own_function_takes_the_name_over_and_an_import_gives_it_back():
    call = "clip_by_global_norm([], 1)"
    own = "def clip_by_global_norm(parameters):\n    ..."
    argument = "def f(clip_by_global_norm):\n    ..."
    assert len(links(IMPORT, own, call)) == 2
    assert len(links(IMPORT, own, IMPORT, call)) == 5
    assert len(links(IMPORT, argument, call)) == 3


def test_magics_are_passed_over():
    assert len(links("%matplotlib inline\n!ls\n" + IMPORT)) == 2


def test_what_the_reference_does_not_have_is_no_link():
    assert with_links(page(IMPORT), lambda name: None) == page(IMPORT)


def test_code_outside_cells_is_left_alone():
    other = page(IMPORT).replace("cell_input", "cell_output")
    assert with_links(other, lambda name: "x.html") == other


def test_every_place_holds_its_name():
    code = f"{IMPORT}\ntext = '→ ½ 😀'; clip_by_global_norm(text)\n"
    found = names_in(code, {})
    assert sorted(code[start:end] for start, end in found) == [
        "clip_by_global_norm", "clip_by_global_norm", "course.engine",
    ]  # fmt: skip


def test_a_link_of_the_code_that_leads_nowhere_fails_the_build(tmp_path):
    (tmp_path / "a.html").write_text(with_links(page(IMPORT), lambda name: "b.html#" + name))
    (tmp_path / "b.html").write_text(f'<p id="{CLIP}">x</p>')
    with pytest.raises(LinkError, match=r"1 links? .*\n.*a\.html: b\.html#course\.engine"):
        check_links(tmp_path)
