"""A student's notebook once it is cleaned: nothing active, and all that honest ones show."""

from __future__ import annotations

import base64
import io
import json
import struct
import time
from contextlib import suppress
from dataclasses import replace

import nbformat
import pytest
from bs4 import BeautifulSoup
from matplotlib.figure import Figure
from nbconvert.filters.markdown_mistune import markdown2html_mistune
from PIL import Image

from autograde import bank, class_dir
from autograde.answers import BLANK
from autograde.classroom.clean import (
    TOO_LARGE,
    Removed,
    _is_active,
    clean_cell,
    clean_data,
    clean_html,
    clean_markdown,
    clean_notebook,
    clean_output,
    files_beside,
    is_base64,
    is_inert,
    with_small_headings,
)
from autograde.classroom.pictures import is_too_large
from autograde.classroom.safe_html import LINK, PICTURE, TooDeepError, sanitize
from autograde.kinds import ValueExercise
from autograde.sandbox.outputs import values_in
from autograde.verdict import PartResult, Verdict
from autograde.words import as_html, message
from course.plots.theme import themed_svg
from tests.attacks import vectors

HONEST = (
    "Small batches are **noisier**: $a < b$, $$\\frac{1}{n} \\sum_i x_i$$ and `x < y`.",
    "- see [the docs](https://pytorch.org/docs) and [Kingma](https://arxiv.org/abs/1412.6980)",
    "| a | b |\n| - | - |\n| 1 | 2 |",
    "![loss](attachment:loss.png)\n\n> quoted &amp; &lt;b&gt;",
    "H<sub>2</sub>O, line<br>break, <b>bold</b>; 3 < 4 and 4 > 3",
    "```python\nfor i in range(3):\n    print(x[i], i)\n```",
    "E-mail me: [here](mailto:ada@example.org). [Up](#top)",
)


def shown(markdown: str) -> BeautifulSoup:
    cell = nbformat.v4.new_markdown_cell(markdown)
    clean_notebook([cell], {}, frozenset())
    return BeautifulSoup(markdown2html_mistune(cell.source), "html.parser")


@pytest.mark.parametrize("name", [*vectors.MARKDOWN, *vectors.HTML])
def test_markdown_renders_to_nothing_active(name):
    for element in shown({**vectors.HTML, **vectors.MARKDOWN}[name])(True):
        assert element.name not in ("script", "iframe", "svg", "math", "object", "style", "meta")
        for attribute, value in element.attrs.items():
            assert not attribute.startswith("on"), element
            assert attribute != "href" or LINK.match(value) or value == "attachment:nowhere.png"
            assert attribute != "src" or value.startswith("attachment:") or PICTURE.match(value)


@pytest.mark.parametrize("text", HONEST)
def test_what_honest_students_write_stays_as_it_is(text):
    said: list[str] = []
    assert clean_markdown(text, said.append) == text and not said


@pytest.mark.parametrize("name", vectors.MARKDOWN)
def test_cleaning_twice_changes_nothing_more(name):
    once = clean_markdown(vectors.MARKDOWN[name])
    assert clean_markdown(once) == once


def test_a_comparison_is_no_html_and_is_not_named():
    said: list[str] = []
    assert clean_markdown("a<b, Dict<K,V>, x[i](y)", said.append) == "a< b, Dict< K,V>, x[i] (y)"
    assert said == []
    clean_markdown("<script>x</script> ![](https://x.org/y.png) [x](javascript:1)", said.append)
    assert {*said} == {"HTML", "an image from elsewhere", "a link to javascript:"}


def test_a_picture_made_smaller_in_jupyterlab_stays_a_picture():
    text = '<img src="attachment:loss.png" width="400"/>'
    assert clean_markdown(text) == "![loss.png](attachment:loss.png)"


@pytest.mark.parametrize("name", vectors.OUTPUTS)
def test_an_output_keeps_only_forms_that_run_nothing(name):
    output = nbformat.v4.new_output(
        "display_data", data=vectors.OUTPUTS[name], metadata=vectors.ISOLATED
    )
    kept = clean_output(output)
    assert kept["metadata"] == {}
    for kind, value in kept["data"].items():
        assert kind in ("text/plain", "text/html", "text/markdown", "text/latex", "image/gif")
        assert (
            "\x1b]" not in value and not BeautifulSoup(value, "html.parser").find(onerror=True)
        ) or (kind == "text/plain")


def test_a_table_and_a_plot_stay():
    table = '<table class="dataframe"><tbody><tr><td>0.5</td></tr></tbody></table>'
    data = {"text/html": table, "image/png": "iVBORw0KGgo=\n", "text/plain": "\x1b[31mred\x1b[0m"}
    output = nbformat.v4.new_output("display_data", data=data, metadata={"image/png": {"width": 9}})
    assert clean_output(output) == {**output}


@pytest.mark.parametrize("id", bank.catalogue())
def test_no_question_and_no_check_of_ours_is_called_cleaned(id):
    exercise, said = bank.load(id), []
    if isinstance(exercise, ValueExercise):
        results = [
            exercise.judge_value(value, "ada") for value in (exercise.right_value("ada"), None)
        ]
        clean_html(exercise.shown_to("ada")._repr_html_(), said.append)
    else:
        parts = [PartResult(part, False, raised=BLANK) for part in exercise.parts]
        results = [Verdict(exercise_id=id, seed=0, points=0, max_points=1, parts=parts)]
        parts = [replace(p, raised=None, shows=w) for w in exercise.wrong for p in parts[:1]]
        results.append(Verdict(exercise_id=id, seed=0, points=0, max_points=1, parts=parts))
    for verdict in results:
        clean_html(as_html(message(verdict, exercise), verdict.passed), said.append)
    assert said == []


def test_words_of_an_output_are_not_active_and_what_a_tag_does_is():
    said: list[str] = []
    words = "your own data: for one = 2, javascript: is no url(x), x < y"
    clean_html(f"<pre style='color: red' title='on a = b'>{words}</pre>", said.append)
    assert said == []
    for tag in (
        "<b onclick = x>",
        "<a href= ' javascript:x'>",
        "<a title='>' href=data:text/html,>",
        "<p style='background: url( //x)'>",
        "<script>",
        '<img """><script>',
        "<svg><set to=javascript:1>",
    ):
        said.clear()
        clean_html(f"<p>{words}</p>{tag}", said.append)
        assert said == ["HTML"], tag


def test_a_figure_that_follows_the_theme_and_a_live_widget_are_their_pictures():
    figure = Figure()
    figure.subplots().plot([1, 2, 3], clip_on=True)
    data = {"text/html": themed_svg(figure), "image/png": "iVBORw0KGgo=", "text/plain": "figure"}
    data["application/vnd.jupyter.widget-view+json"] = {"model_id": "a"}
    said: list[str] = []
    assert {*clean_data(data, said.append)} == {"image/png", "text/plain"} and said == []
    data["text/html"] = "<svg onload=alert(1)></svg>"
    clean_data(data, said.append)
    assert said == ["HTML"]


@pytest.mark.parametrize("kind", ["application/x; all is well.\nhana: copied", "a/\u202eb\x1b[32m"])
def test_a_type_that_is_none_is_not_repeated(kind):
    said: list[str] = []
    clean_data({kind: "1"}, said.append)
    assert said == ["an output of an odd type"]
    marks = {"nbgrader": {"grade_id": f"{kind}, give all points"}}
    cell = nbformat.v4.new_markdown_cell("<script>", metadata=marks)
    assert Removed([cell], frozenset()).words() == ["cell 1: HTML"]


def test_names_and_metadata_keep_what_nbgrader_needs():
    notebook = nbformat.v4.new_notebook()
    vectors.fill(notebook, "none")
    clean_notebook(notebook.cells, notebook.metadata, frozenset())
    text = json.dumps([{k: v for k, v in c.items() if k != "source"} for c in notebook.cells])
    assert "alert" not in text.replace(json.dumps(""), "") and "canary" not in text
    assert set(notebook.metadata) == {"kernelspec", "language_info"}
    assert notebook.metadata.kernelspec.name == "python3"


def test_no_text_of_a_students_is_an_id_a_name_or_a_class_of_formgraders_page(tmp_path):
    """Its script binds a cell's points to the first element whose id is the cell's name."""
    from nbconvert import HTMLExporter
    from nbgrader.server_extensions.formgrader import handlers

    (tmp_path / "nbgrader_config.py").write_text(f"c = get_config()\n{class_dir.PROTECTION}")
    config = class_dir.nbgrader_config(tmp_path)
    config.HTMLExporter.template_name = "formgrade"  # as formgrader sets it
    config.HTMLExporter.extra_template_basedirs = [handlers.template_path]
    exporter, resources = HTMLExporter(config=config), {"index": 0, "total": 1}
    v4, marks = nbformat.v4, {"schema_version": 3, "solution": True, "grade": True, "points": 1}
    marks = {**marks, "grade_id": "who-counts-more", "locked": False}

    def of_the_page(texts, outputs):
        code = v4.new_code_cell("x", outputs=[v4.new_output("display_data", data=outputs)])
        cells = [*(v4.new_markdown_cell(text) for text in texts), code]
        cells += [v4.new_markdown_cell(texts[0], metadata={"nbgrader": marks})]
        for number, cell in enumerate(cells):
            cell["id"] = str(number)
        html, _ = exporter.from_notebook_node(v4.new_notebook(cells=cells), resources)
        found = BeautifulSoup(html, "html.parser")("div", id="notebook")[0](True)
        ids = [element["id"] for element in found if "id" in element.attrs]
        assert [ids.count(f"who-counts-more{end}") for end in ("", "-comment")] == [1, 1]
        names = ("id", "name", "for", "class")
        return {
            (k, str(e[k])) for e in found for k in e.attrs if k in names or k.startswith("data")
        }

    texts, plain = list(vectors.MARKDOWN.values()), ["```text\ncode\n```"] * len(vectors.MARKDOWN)
    outputs = (vectors.OUTPUTS["heading-id"], {"text/html": "".join(vectors.HTML.values())})
    for shown in outputs:
        ours = of_the_page(plain, dict.fromkeys(shown, "text"))
        assert ("id", "who-counts-more") in ours and of_the_page(texts, shown) - ours == set()


def test_what_everybody_was_given_is_left_alone():
    ours = "<details>a hint</details>"
    cell = nbformat.v4.new_markdown_cell(ours)
    clean_notebook([cell], {}, frozenset([ours]))
    assert cell.source == ours
    assert Removed([cell], frozenset([ours])).words() == []


def test_files_that_a_browser_or_python_would_run_become_text(tmp_path):
    for name, text in {**vectors.FILES, "a.ipynb": "{}", "ours.py": "x = 1"}.items():
        (tmp_path / name).write_text(text)
    files_beside(tmp_path, "a.ipynb", b"as it came", {"ours.py"})
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(
        [
            "a.ipynb",
            "as-handed-in.txt",
            "data.csv",
            "debugpy.py.txt",
            "evil.html.txt",
            "evil.svg.txt",
            "evil.xhtml.txt",
            "ours.py",
            "second.ipynb.txt",
        ]
    )
    assert is_inert("model.pt") and is_inert("Loss.PNG") and is_inert("=HYPERLINK(1).csv")


ODD_FILES = (
    *("jupyter_notebook_config.json", "a.vl.json", "evil.desktop", "x.html ", "x.HTML.", "A.SVG"),
    *("page.html.gz", "x.xhtml;a", "Makefile", ".hidden.txt", "\u202egnp.lmth", "a.md\n", "-rf"),
    *("README.md", "a.MARKDOWN", "a.geojson", "a.vega", "a.pdf", "a.latex", "a.csv.md"),
    *("n" * 251 + ".exe", b"\xff.js".decode("utf-8", "surrogateescape"), "new.kind-of-2030"),
)


@pytest.mark.parametrize("name", ODD_FILES)
def test_only_forms_known_to_do_nothing_keep_their_names(tmp_path, name):
    (tmp_path / name).write_text("x")
    (tmp_path / f"{name[:200]}.txt").write_text("another's, of the name that comes to mind")
    files_beside(tmp_path, "a.ipynb", None, set())
    found = sorted(path.name for path in tmp_path.iterdir())
    assert len(found) == 2 and all(is_inert(one) or one.startswith(".") for one in found)


@pytest.mark.parametrize(
    "text",
    ["![" * 200_000, "<img src=attachment:a " * 40_000, "](" * 300_000, "]:\n" * 200_000,
     "&#" * 300_000, "\x1b]" * 300_000, "[x](https://" + "(" * 400_000, "<" * 500_000],
)  # fmt: skip
def test_no_text_takes_the_cleaner_long(text):
    started = time.process_time()
    clean_markdown(text)
    assert time.process_time() - started < 5


@pytest.mark.parametrize(
    "piece", ["<", "< ", "<a '", '<a b="', "<on ", "<p href=", "<p url ", "/on"]
)
def test_no_html_takes_the_cleaner_long(piece):
    """In proportion to its length: four times the text would take sixteen times as long."""
    started = time.process_time()
    _is_active("<p " + piece * (500_000 // len(piece)))
    assert time.process_time() - started < 5


WORST = {
    "html-blanks": (clean_html, "<", " ", ""),
    "html-blanks-closing": (clean_html, "</", " ", ""),
    "html-on": (clean_html, "onx", " ", ""),
    "html-unopened": (clean_html, "", "<b></x>", ""),
    "html-in-attributes": (clean_html, "", '<b title="</b>">', ""),
    "html-in-comments": (clean_html, "", "<!--></b>--><b>", ""),
    "html-in-tables": (clean_html, "", "<div><table></div></table>", ""),
    "html-as-text": (clean_html, "", "<b><textarea></b></textarea>", ""),
    "link-blanks": (clean_markdown, "](", " ", "!"),
    "link-blanks-pointed": (clean_markdown, "](<", " ", "!"),
    "link-title": (clean_markdown, "](http://a", " ", '"'),
    "fence": (clean_markdown, "", "`", "!"),
    "fence-blanks": (clean_markdown, "```", " ", "!"),
    "picture": (clean_markdown, "", "<img src=attachment:a" + "b" * 190, ">"),
    "environments": (sanitize, "", "<p>" + "\\begin{a}" * 900 + "</p>", ""),
    "base64": (is_base64, "", " ", "!"),
    "base64-end": (is_base64, "", "=", "!"),
    "reply": (values_in, "," * 100_001 + '"', '\\"', ""),
    "reply-cut": (values_in, "," * 100_001 + '"', '\\"', "\\"),
}
"""What reads a text, and how its worst one begins, goes on and ends."""
SIZE = 2**15


@pytest.mark.parametrize("name", WORST)
def test_the_time_for_the_worst_text_grows_as_its_length(name):
    """Four times the length takes sixteen times as long where a pattern is quadratic."""
    read, first, again, last = WORST[name]

    def seconds(length):
        text = first + again * (length // len(again) + 1) + last
        text = text.encode() if read is values_in else text
        started = time.process_time()
        with suppress(TooDeepError):
            read(text)
        return time.process_time() - started

    seconds(SIZE)  # imports
    assert min(seconds(4 * SIZE) for _ in range(2)) < 8 * seconds(SIZE) + 0.05


def test_a_large_table_and_an_odd_page_are_still_shown():
    rows = "".join(f"<tr><td id='a{i}'>{i}</td><td>b<br></td></tr>" for i in range(3000))
    styled = f"<style>td {{ color: red }}</style><!-- a --><table class='dataframe'>{rows}</table>"
    assert clean_html(styled).count("</td>") == 6000
    assert "nested" not in clean_html("<ul><li>a<li>b</ul><p>c" * 300)


def test_a_class_directory_of_before_gets_the_lines_that_protect(tmp_path):
    folder = tmp_path / "class"
    folder.mkdir()
    (folder / "nbgrader_config.py").write_text(class_dir.CONFIG.format(course_id="old"))
    assert not class_dir.is_protected(folder)
    said: list[str] = []
    class_dir.init(folder, [], say=said.append)
    assert class_dir.is_protected(folder) and "added" in said[0]
    once = (folder / "nbgrader_config.py").read_text()
    class_dir.init(folder, [])
    assert (folder / "nbgrader_config.py").read_text() == once and "old" in once


@pytest.mark.parametrize("form", ["PNG", "GIF", "JPEG", "WEBP", "BMP"])
def test_the_size_of_a_picture_is_what_a_browser_goes_by(form):
    """Pillow writes it; that a name says another form changes nothing."""
    for size, large in (((300, 200), False), ((16_000, 4_100), True)):
        file = io.BytesIO()
        Image.new("1" if form in ("PNG", "BMP") else "L", size).save(file, form)
        assert is_too_large(base64.b64encode(file.getvalue()).decode()) is large, size


def test_what_is_no_picture_is_none_that_is_too_large():
    for data in ("", "=", "a", "ab=c", "aGVsbG8=", "iVBORw0KGgo=", "/9j/", "R0lGODlh", "UklGRg=="):
        assert not is_too_large(data)


def huge():
    """A PNG's head that says 40,000 by 40,000."""
    head = b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR" + struct.pack(">II", 40_000, 40_000)
    return base64.b64encode(head + bytes(9)).decode()


def test_a_picture_that_would_fill_a_browser_is_left_out_and_named():
    said: list[str] = []
    wide = '<svg xmlns="http://www.w3.org/2000/svg" width="40000" height="40000"></svg>'
    for data in ({"image/png": huge()}, {"image/svg+xml": wide}):
        kept = clean_output(nbformat.v4.new_output("display_data", data=data), said.append)
        assert kept["data"] == {"text/plain": "(nothing here can be shown)"}
    assert "src" not in clean_html(f'<img src="data:image/png;base64,{huge()}">', said.append)
    assert huge() not in clean_markdown(f"![a](data:image/png;base64,{huge()})", said.append)
    cell = {"cell_type": "markdown", "source": "![a](attachment:a.png)", "metadata": {}}
    cell["attachments"] = {"a.png": {"image/png": huge()}}
    clean_cell(cell, (), said.append)
    assert cell["attachments"] == {} and set(said) == {TOO_LARGE} and len(said) == 5


def test_nothing_in_an_output_is_so_wide_or_high_that_it_covers_a_page():
    for style in (
        *("padding:400px", "border-top: 20000px solid white", "padding: 1px 10vw"),
        *("/*:*/padding:90em", "PADDING:1e5px", "border-left:calc(9px) solid"),
    ):
        assert "px" not in clean_html(f'<p style="{style}">x</p>') and "vw" not in style[:7]
    for kept in ("padding:5px", "border:1px solid rgb(255, 255, 0)", "color:#400000"):
        assert kept in clean_html(f'<p style="{kept}">x</p>')
    assert "30000" not in clean_html('<img alt="" width="30000" height=" 30000px"><td width=90000>')
    assert 'width="400"' in clean_html('<img alt="" width="400">')


@pytest.mark.parametrize(("text", "cleaned"), [
    ("# Recipe (Score: 46.0 / 46.0)", "#### Recipe (Score: 46.0 / 46.0)"),
    ("a\r## b", "a\n#### b"),
    ("Score\n===", "Score\n\n==="),
    ("- a\n\n      ### b", "- a\n\n      #### b"),
    ("> # a", "> #### a"),
    ("```python\n# a comment\n```\n# a", "```python\n# a comment\n```\n#### a"),
    ("`` ``` ``\n# a", "`` ``` ``\n#### a"),
    ("#### a\n#tag\n    # code\n| a |\n|---|", "#### a\n#tag\n    # code\n| a |\n|---|"),
])  # fmt: skip
def test_a_students_headings_are_smaller_than_a_pages_own(text, cleaned):
    assert with_small_headings(text) == cleaned == with_small_headings(cleaned)


def test_headings_of_the_assignment_and_of_an_output():
    ours = {"cell_type": "markdown", "source": "# Ours", "metadata": {}}
    theirs = {"cell_type": "markdown", "source": "# Theirs", "metadata": {}}
    clean_cell(ours, {"# Ours"}, print), clean_cell(theirs, {"# Ours"}, print)
    assert [ours["source"], theirs["source"]] == ["# Ours", "#### Theirs"]
    assert clean_html("<h1 id=a>Score</h1>") == "<h4>Score</h4>"


def test_headings_are_found_in_time_whatever_the_text():
    started = time.process_time()
    for text in ("> " * 10**5, "- " * 10**5, " " * 10**5, "-" * 10**5 + "x", "`" * 10**5):
        with_small_headings(f"{text}\n{text}# a")
    assert time.process_time() - started < 2.0
