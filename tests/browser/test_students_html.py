"""Nothing that a student wrote runs, or is fetched, in any page that an instructor opens.

One submission holds every vector of tests/attacks/vectors.py. What a page does is seen from
outside: dialogs, requests to other machines, a grade that changed, a kernel that was started.
"""

from __future__ import annotations

import json
import os
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import nbformat
import pytest

from autograde.classroom import example, grading
from autograde.classroom.clean import ORIGINAL
from autograde.classroom.feedback import write_feedback
from autograde.classroom.page import write_page
from autograde.classroom.release import release
from autograde.classroom.report import read_rows
from tests.attacks import vectors
from tests.browser.server import FORMGRADER, GUARD, serving
from tests.short_class import short_class, submission

ASSIGNMENT, STUDENT, ANSWER = example.ASSIGNMENT, "mallory", "who-counts-more"
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def hostile_class(tmp_path_factory) -> Path:
    """A class directory with one graded submission that is full of vectors."""
    from autograde.sandbox import protections

    folder = tmp_path_factory.mktemp("hostile") / "class"
    short_class(folder)
    release(folder, ASSIGNMENT)
    example.hand_in(folder)
    path = submission(folder, STUDENT, ASSIGNMENT)
    (folder / "submitted" / "ben").rename(folder / "submitted" / STUDENT)
    notebook = nbformat.read(path, as_version=4)
    vectors.fill(notebook, ANSWER)
    path.write_text(json.dumps(notebook), "utf-8")
    for name, text in vectors.FILES.items():
        (path.parent / name).write_text(text, "utf-8")
    trusted = bool(protections.missing()) and not os.environ.get("CI")
    (outcome,) = grading.grade(folder, ASSIGNMENT, [STUDENT], jobs=1, trusted=trusted)
    assert outcome.graded, outcome.reason
    write_feedback(folder, ASSIGNMENT)
    write_page(folder, ASSIGNMENT)
    return folder


class Watched:
    """What a page did that it should not: dialogs, requests that went out, windows."""

    def __init__(self, page) -> None:
        self.seen: list[str] = []
        page.on("dialog", self._dialog)
        page.context.on("page", lambda new: self.seen.append(f"a window: {new.url}"))
        page.context.route("**/*", self._request)  # what a policy refuses does not come here
        self.page = page

    def _dialog(self, dialog) -> None:
        self.seen.append(f"a dialog: {dialog.message}")
        dialog.dismiss()

    def _request(self, route) -> None:
        url, method = route.request.url, route.request.method
        if "canary" in url or ("/api/grade/" in url and method != "GET"):
            self.seen.append(f"a request: {method} {url}")
        if ("/api/kernels" in url and method == "POST") or "/formgrader/api/kernels" in url:
            self.seen.append(f"a request: {method} {url}")
        if url.startswith(("http://127.0.0.1:", "data:", "blob:")):
            route.fallback()
        else:
            route.abort()

    def poke(self, root: str = "body") -> None:
        """Move over, focus and click what a student could have put there."""
        self.page.evaluate(
            """root => {
                for (const element of document.querySelectorAll(`${root} *`)) {
                    for (const kind of ["mouseover", "pointerenter", "focus", "toggle"])
                        element.dispatchEvent(new Event(kind));
                    const href = element.getAttribute("href") || element.getAttribute("xlink:href");
                    if (href && /^\\s*(java|vb|data)/i.test(href.replace(/[\\s\\0]/g, "")))
                        element.dispatchEvent(new MouseEvent("click", {bubbles: true}));
                }
            }""",
            root,
        )
        self.page.wait_for_timeout(500)


@contextmanager
def nothing_changes(folder: Path, address: str = "") -> Iterator[None]:
    """No grade, no comment, no kernel."""
    before = read_rows(folder, ASSIGNMENT)
    kernels = _kernels(address) if address else []
    yield
    assert read_rows(folder, ASSIGNMENT) == before
    assert not address or _kernels(address) == kernels


def _kernels(address: str) -> list[str]:
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    return [kernel["id"] for kernel in json.load(direct.open(f"{address}/api/kernels", timeout=20))]


def test_the_vectors_do_run_where_nothing_guards(page):
    """Else the other tests here would show nothing."""
    watched = Watched(page)
    page.add_init_script("window.alert = () => top.ran.add(window.name || parent.name)")
    page.route(
        "http://127.0.0.1:9/", lambda route: route.fulfill(body="", content_type="text/html")
    )
    page.goto("http://127.0.0.1:9/")
    page.evaluate(
        """vectors => {
            window.ran = new Set();
            for (const [name, vector] of vectors) {
                const frame = document.createElement("iframe");
                frame.name = name;
                frame.srcdoc = `<!doctype html><body><div>${vector}</div>`;
                document.body.append(frame);
            }
        }""",
        list(vectors.HTML.items()),
    )
    page.wait_for_timeout(3000)
    ran = page.evaluate("[...window.ran]")
    fetched = {seen for seen in watched.seen if "canary" in seen}
    assert len(ran) >= 30 and len(fetched) >= 15, (ran, fetched)


@pytest.fixture(scope="module")
def server(hostile_class, tmp_path_factory) -> Iterator[str]:
    """formgrader and JupyterLab, with our policies."""
    home = tmp_path_factory.mktemp("home")
    extensions = [FORMGRADER, "jupyterlab", GUARD]
    with serving(hostile_class, home, extensions, "/formgrader") as address:
        yield address


def open_submission(page, server: str) -> None:
    """The road to a submission in formgrader, past all of its lists."""
    page.goto(f"{server}/formgrader/manage_submissions/{ASSIGNMENT}")
    page.goto(f"{server}/formgrader/manage_students/{STUDENT}")
    page.goto(f"{server}/formgrader/gradebook/{ASSIGNMENT}/{ASSIGNMENT}")
    page.get_by_role("link", name="Submission #1").click()


@pytest.mark.parametrize("policy", [True, False], ids=["with-policy", "cleaning-alone"])
def test_formgrader_shows_a_hostile_submission_and_runs_none_of_it(
    browser, hostile_class, server, policy
):
    context = browser.new_context(bypass_csp=not policy)
    page = context.new_page()
    watched, said = Watched(page), []
    page.on("console", lambda message: said.append(message.text))
    with nothing_changes(hostile_class, server):
        open_submission(page, server)
        page.locator(f"#{ANSWER}-comment").wait_for()
        page.wait_for_timeout(500)
        watched.poke("#notebook")
        assert watched.seen == []
        assert [text for text in said if "Content Security" in text and "mathjax" not in text] == []
        shown = page.locator("#notebook-container").first
        odd = "script, iframe, object, embed, form, style, base, meta, svg, math"
        assert shown.locator(f":is({odd})").count() == 0
        assert "alert(document.domain)" in shown.inner_text()
        page.locator("span.glyphicon.name-hidden").click()  # nbgrader's own scripts do run
        page.locator("a.name-shown", has_text=STUDENT).wait_for()
        for name in (*vectors.FILES, "evil.html.txt", ORIGINAL):
            answer = page.request.get(f"{page.url.partition('?')[0]}{name}")
            kind = answer.headers.get("content-type", "")
            assert answer.status == 404 or kind.startswith(("text/plain", "text/csv")), name
    context.close()


def test_a_page_that_was_not_cleaned_is_still_held_by_the_policy(page, hostile_class, server):
    """The second wall by itself: scripts in a page of formgrader's, as a hole would let them in."""
    watched = Watched(page)
    with nothing_changes(hostile_class, server):
        open_submission(page, server)
        page.locator(f"#{ANSWER}-comment").wait_for()
        html = [v for v in vectors.HTML.values() if "refresh" not in v]
        page.evaluate(
            """vectors => {
                const box = document.querySelector("#notebook");
                for (const vector of vectors)
                    box.append(document.createRange().createContextualFragment(vector));
            }""",
            html,
        )
        page.wait_for_timeout(1000)
        watched.poke("#notebook")
        assert watched.seen == []


def test_feedback_and_class_page_run_none_of_it(page, hostile_class):
    watched = Watched(page)
    pages = [
        hostile_class / "feedback" / STUDENT / ASSIGNMENT / f"{ASSIGNMENT}.html",
        hostile_class / "report" / f"{ASSIGNMENT}.html",
    ]
    with nothing_changes(hostile_class):
        for path in pages:
            page.set_content(path.read_text("utf-8"))
            page.wait_for_timeout(500)
            watched.poke()
            assert watched.seen == []
    assert "cleaned" in pages[1].read_text("utf-8")


@pytest.mark.parametrize("place", ["autograded", "submitted"])
def test_jupyterlab_opens_it_and_runs_none_of_it(page, hostile_class, server, place):
    watched = Watched(page)
    path = f"{place}/{STUDENT}/{ASSIGNMENT}/{ASSIGNMENT}.ipynb"
    before = len(_kernels(server))
    with nothing_changes(hostile_class):
        page.goto(f"{server}/lab/tree/{path}")
        page.locator(".jp-Notebook .jp-Cell").first.wait_for(timeout=60_000)
        panel = page.locator(".jp-WindowedPanel-outer").first
        for _ in range(40):
            panel.evaluate("box => box.scrollTop += 1500")
            page.wait_for_timeout(40)
        watched.poke(".jp-Notebook")
        assert watched.seen == []
        assert len(_kernels(server)) <= before + 1  # JupyterLab's own, for the notebook
