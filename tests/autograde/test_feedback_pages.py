"""Hostile notebooks shown to people: no script runs, no request leaves, the feedback is there."""

import errno
import json
import os
import shutil
from pathlib import Path

import nbformat
import pytest
from nbgrader.api import Gradebook

from autograde.class_dir import FILTERS, PROTECTION
from autograde.classroom import feedback
from autograde.classroom.clean import clean_data
from autograde.classroom.clean_steps import clean_html
from autograde.classroom.feedback import write_feedback
from autograde.classroom.release import NbgraderFault
from autograde.classroom.safe_html import sanitize
from tests.autograde.paper_class import ASSIGNMENT, MAX, Paper, make
from tests.browser.chromium import NONE_HERE, chromium, found

EVIL = "http://evil.invalid"
HTML = [
    "<script>window.ran = 1; fetch('{evil}/script')</script>",
    "<img src=x onerror=\"window.ran = 2; new Image().src='{evil}/onerror'\">",
    "<img src='{evil}/pixel.png'><img srcset='{evil}/set.png 2x'>",
    "<svg onload='window.ran = 3'><script>window.ran = 4</script><image href='{evil}/i'/></svg>",
    "<iframe src='{evil}/frame'></iframe>"
    "<iframe srcdoc='<script>parent.ran = 5</script>'></iframe>",
    "<a id=link href='javascript:window.ran = 6'>click</a>",
    "<a href='&#106;ava&#x09;script:window.ran = 7'>click</a>",
    "<a href='data:text/html,<script>window.ran = 8</script>'>click</a>",
    "<meta http-equiv=refresh content='0; url={evil}/refresh'><base href='{evil}/'>",
    "<style>@import '{evil}/import.css'; body {{ background: url({evil}/style) }}</style>",
    "<link rel=stylesheet href='{evil}/link.css'><link rel=prefetch href='{evil}/prefetch'>",
    "<div style=\"position: fixed; inset: 0; background: url('{evil}/css')\">Score: 99 / 10</div>",
    "<object data='{evil}/object'></object><embed src='{evil}/embed'>",
    "<form action='{evil}/form'><button autofocus onfocus='window.ran = 9'>ok</button></form>",
    "<video src='{evil}/video' autoplay></video><audio src='{evil}/audio' autoplay></audio>",
    '<math><mtext><table><mglyph><style><!--</style><img title="--&gt;'
    '&lt;img src=1 onerror=window.ran=10&gt;">',
    "<noscript><p title=\"</noscript><img src=x onerror='window.ran = 11'>\">",
    "<details open ontoggle='window.ran = 12'>x</details>",
    "<template><script>window.ran = 13</script></template></body><script>window.ran = 14</script>",
    "<input type=image src='{evil}/input'><body onload='window.ran = 15' background='{evil}/b'>",
]
HTML = [text.format(evil=EVIL) for text in HTML]
MARKDOWN = [
    f"![x]({EVIL}/markdown.png) [x](javascript:window.ran=20) <script>window.ran = 21</script>",
    '[x](data:text/html;base64,PHNjcmlwdD5hbGVydCgxKTwvc2NyaXB0Pg==) ![x](x" onerror="ran=22)',
    "$\\href{javascript:window.ran=23}{x}$ <img src=x onerror=window.ran=24>",
    "![a](attachment:evil.svg)",
]


def hostile_notebook() -> nbformat.NotebookNode:
    v4 = nbformat.v4
    made = v4.new_notebook(metadata={"language_info": {"name": "</style><script>ran=30</script>"}})
    svg = "<svg xmlns='http://www.w3.org/2000/svg' onload='top.ran=31'><script>top.ran=32</script>"
    svg += f"<image href='{EVIL}/svg.png' width='9' height='9'/></svg>"
    outputs = [v4.new_output("display_data", {"text/html": html}) for html in HTML]
    outputs += [
        v4.new_output("display_data", {"application/javascript": "window.ran = 33"}),
        v4.new_output("display_data", {"image/svg+xml": svg}),
        v4.new_output("display_data", {"text/markdown": MARKDOWN[0]}),
        v4.new_output("display_data", {"text/latex": "$x$<script>window.ran = 34</script>"}),
        v4.new_output("display_data", {"image/png": '"><script>window.ran = 35</script>'}),
        v4.new_output("stream", name="stdout", text="</pre><script>window.ran = 36</script>"),
        v4.new_output("error", ename="E", evalue="x", traceback=["<script>window.ran=37</script>"]),
    ]
    made.cells = [v4.new_code_cell("</div><script>window.ran = 38</script>", outputs=outputs)]
    made.cells += [v4.new_markdown_cell(text) for text in MARKDOWN]
    made.cells[-1].attachments = {"evil.svg": {'x" onerror="ran=39': "aaaa"}}
    marks = {"grade": True, "locked": True, "solution": False, "task": False, "schema_version": 3}
    for name, points in MAX.items():
        meta = {"nbgrader": {**marks, "grade_id": name, "points": points, "cell_type": "code"}}
        if name == "why":
            meta["nbgrader"].update(solution=True, locked=False, cell_type="markdown")
            made.cells.append(v4.new_markdown_cell("my <b>answer</b>" + HTML[0], metadata=meta))
        else:
            made.cells.append(v4.new_code_cell("check(...)", metadata=meta))
    return made


@pytest.fixture(scope="module")
def hostile_class(tmp_path_factory):
    papers = {
        "mallory": Paper(clip=1, status={"03a.clip": "by-value"}, ended="<script>ran=40</script>"),
        "trent": Paper(not_graded="submitted/x: <script>window.ran = 41</script> is no notebook."),
    }
    folder = make(tmp_path_factory.mktemp("hostile") / "class", papers)
    path = folder / "verdicts" / ASSIGNMENT / "mallory.json"
    verdict = json.loads(path.read_text())
    verdict["checks"][0]["message"] = "clipped by value <script>window.ran = 42</script>"
    path.write_text(json.dumps(verdict))
    place = folder / "autograded" / "mallory" / ASSIGNMENT
    place.mkdir(parents=True)
    nbformat.write(hostile_notebook(), place / f"{ASSIGNMENT}.ipynb")
    (place / "index.html").write_text("<script>window.ran = 43</script>")
    return folder


@pytest.fixture(scope="module")
def stock_page(hostile_class, tmp_path_factory) -> Path:
    """What nbgrader alone makes of it: the control."""
    from autograde.class_dir import nbgrader_config
    from autograde.classroom.release import ask_nbgrader

    config = nbgrader_config(hostile_class)
    ask_nbgrader(config, "generate_feedback", ASSIGNMENT, "mallory", force=True)
    page = hostile_class / "feedback" / "mallory" / ASSIGNMENT / f"{ASSIGNMENT}.html"
    return Path(shutil.copy(page, tmp_path_factory.mktemp("stock") / "stock.html"))


@pytest.fixture(scope="module")
def pages(hostile_class, stock_page) -> dict[str, Path]:
    mallory, trent = write_feedback(hostile_class, ASSIGNMENT)
    return {"mallory": mallory, "trent": trent, "stock": stock_page}


def visit(page: Path) -> tuple[object, list[str]]:
    """Open a page in Chromium and click its links; what ran, and what was asked for."""
    if found() is None:
        pytest.skip(NONE_HERE)
    requests = []

    def answer(route):
        url = route.request.url
        if url == page.as_uri():
            route.continue_()
        else:
            requests.append(url)
            route.abort()

    with chromium() as browser:
        tab = browser.new_page()
        tab.route("**/*", answer)
        tab.goto(page.as_uri(), wait_until="load")
        tab.wait_for_timeout(500)
        for link in tab.query_selector_all("a[href^='javascript'], a[href^='data'], #link"):
            link.evaluate("element => element.click()")
        tab.wait_for_timeout(200)
        ran = tab.evaluate("window.ran")
    return ran, [url for url in requests if not url.startswith("data:")]


@pytest.mark.slow
@pytest.mark.parametrize("who", ["mallory", "trent"])
def test_in_chromium_no_script_runs_and_no_request_leaves(pages, who):
    assert visit(pages[who]) == (None, [])


@pytest.mark.slow
def test_the_same_notebook_in_nbgraders_own_page_does_both(pages):
    """Without this, the test above could pass on a page that shows nothing."""
    ran, requests = visit(pages["stock"])
    assert ran is not None or any("refresh" in url for url in requests)
    assert any(url.startswith(EVIL) for url in requests)


@pytest.mark.slow
def test_without_the_policy_the_page_is_still_harmless(pages, tmp_path):
    """Two locks: this is the second alone, so that neither hides the other's failure."""
    text = pages["mallory"].read_text("utf-8")
    assert text.count("Content-Security-Policy") == 1
    path = tmp_path / "open.html"
    path.write_text(text.replace("Content-Security-Policy", "X-None"))
    assert visit(path) == (None, [])


def test_the_page_says_what_the_checks_say_and_keeps_nbgraders_scores(pages):
    text = pages["mallory"].read_text("utf-8")
    assert "clipped by value" in text and "by-value" in text and "1 of 4 points" in text
    assert "(Score: 7.0 / 10.0)" in text and "my <b>answer</b>" in text
    assert "<script" not in text.lower() and "is no notebook" in pages["trent"].read_text("utf-8")


def test_a_page_brings_no_other_file_of_the_student_along(pages):
    assert [path.name for path in pages["mallory"].parent.iterdir()] == [f"{ASSIGNMENT}.html"]


@pytest.mark.parametrize("html", HTML)
def test_a_fragment_keeps_no_handler_no_script_and_no_address(html):
    from bs4 import BeautifulSoup

    for element in BeautifulSoup(sanitize(html), "html.parser")(True):
        assert element.name not in ("script", "style", "iframe", "form", "meta", "base", "link")
        for name, value in element.attrs.items():
            assert not name.startswith("on"), element
            assert EVIL not in str(value) and "script:" not in str(value), element


def test_what_honest_students_show_stays():
    picture = '<img alt="loss" src="data:image/png;base64,iVBORw0KGgo=">'
    cell = '<td style="text-align:right">0.5</td>'
    table = f'<table class="dataframe"><tbody><tr>{cell}</tr></tbody></table>'
    link = '<a href="https://pytorch.org/docs" rel="noopener noreferrer">docs</a>'
    for html in (picture, table, link, "<p>a &lt; b</p>"):
        assert sanitize(html) == html


def test_a_drawing_becomes_a_picture_and_a_widget_its_text():
    drawn = clean_data({"image/svg+xml": "<svg onload='x()'/>", "text/plain": "Figure"})
    assert set(drawn) == {"text/plain", "text/html"} and "<svg" not in drawn["text/html"]
    widget = {"application/vnd.jupyter.widget-view+json": {}, "text/plain": "IntSlider()"}
    assert clean_data(widget) == {"text/plain": "IntSlider()"}
    assert clean_data({"application/javascript": "1"}) == {
        "text/plain": "(nothing here can be shown)"
    }


def test_a_part_of_nbgraders_page_keeps_its_looks_and_no_name():
    assert f"c.HTMLExporter.filters = {FILTERS}" in PROTECTION
    shown = clean_html(
        '<div style="padding:1em"><p id="clip" name="clip" onclick="f()">A</p><h3>B</h3>'
        '<table><tr><td style="text-align:left">1</td></tr></table><script>f()</script>'
        '<div class="highlight"><pre><span class="k">for</span></pre></div></div>'
    )
    assert "<p>A</p><h3>B</h3>" in shown and '<td style="text-align:left">1</td>' in shown
    assert '<span class="k">for</span>' in shown
    assert not [word for word in ("id=", "name=", "onclick", "script", "&lt;") if word in shown]
    assert clean_html(b"<b>" * 1500).startswith("<pre>&lt;b&gt;")


def test_html_that_defeats_the_parser_leaves_what_the_checks_say():
    deep = f"<html><head></head><body>{'<div>' * 20_000}<img src=x onerror=ran=1></body>"
    for page in (deep, "", "no page at all <img src=x onerror=ran=1>"):
        text = feedback._made_safe(page, "<h1>checks</h1>")
        assert "<h1>checks</h1>" in text and "onerror" not in text


def test_nbgraders_own_page_never_lies_where_students_find_theirs(
    pages, hostile_class, monkeypatch
):
    """A kill may come when it is made and not yet made safe."""
    page = pages["mallory"]
    seen = []
    ask = feedback.ask_nbgrader

    def ask_and_look(*words: object, **options: object) -> str:
        log = ask(*words, **options)
        seen.append(page.exists() and "<script>window.ran" in page.read_text("utf-8"))
        return log

    monkeypatch.setattr(feedback, "ask_nbgrader", ask_and_look)
    write_feedback(hostile_class, ASSIGNMENT, ["mallory"])
    assert seen == [False] and [path.name for path in page.parent.iterdir()] == [page.name]


def test_a_student_is_told_that_an_answer_waits_and_is_no_zero(tmp_path):
    folder = make(tmp_path / "class", {"ada": Paper(why=None), "ben": Paper()})
    ada, ben = (page.read_text("utf-8") for page in write_feedback(folder, ASSIGNMENT))
    assert "<b>One written answer is not graded yet</b>; the score shown is 0" in ada
    assert "not graded yet" not in ben


def test_who_was_refused_gets_a_page_although_nobody_has_marks(tmp_path):
    folder = make(tmp_path / "class", {"ada": Paper(not_graded="x.ipynb: is empty. Ask for it.")})
    with Gradebook(f"sqlite:///{folder}/gradebook.db") as gradebook:
        gradebook.remove_assignment(ASSIGNMENT)
    (page,) = write_feedback(folder, ASSIGNMENT)
    assert "x.ipynb: is empty" in page.read_text("utf-8")


def test_a_full_disk_is_no_reason_for_a_page_without_the_notebook(tmp_path, monkeypatch):
    def full(*_args: object, **_how: object) -> None:
        raise NbgraderFault("OSError: [Errno 28] No space left on device: 'page.html'")

    def full_too(path: Path, _text: str) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))

    (tmp_path / "nbgrader_config.py").write_text("c = get_config()\n")
    monkeypatch.setattr(feedback, "ask_nbgrader", full)
    assert feedback._nbgraders_page(tmp_path, ASSIGNMENT, "ada") == "", "a student's words alone"
    monkeypatch.setattr(feedback, "write_whole", full_too)
    with pytest.raises(OSError, match="No space left on device"):
        feedback._nbgraders_page(tmp_path, ASSIGNMENT, "ada")
