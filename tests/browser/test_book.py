"""The book in a real browser, from a file and from loopback: whole, quiet, findable, readable.

Its pages are all there; of what they show some numbers, a claim, a bug and two widgets were run,
and of the reference the engine is written out.
"""

from __future__ import annotations

import functools
import html
import json
import re
import threading
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from book import evidence as jobs
from book.build import about_now, sphinx, write_all
from book.links import check_links
from book.pages.evidence import Evidence
from course.ledger import rows
from tests.sampling import sample

SCREENS = Path("build/screens")
KINDS = {
    "cover": "index.html",
    "part": "parts/01a.html",
    "number": "id/N19.html",
    "claim": "id/F38.html",
    "bug": "id/B08.html",
    "verdicts": "verdicts.html",
    "notebook": "notebooks/01b-modules-and-losses.html",
    "exercises": "exercises/01a.html",
    "widget": "widgets/ceiling.html",
    "source": "sources/lecture.html",
    "module": "api/course.engine.clipping.html",
    "ids": "id/index.html",
}
"""One page of each kind."""


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Path:
    """The book's pages over a small part of the evidence."""
    folder = tmp_path_factory.mktemp("book")
    found = {"ceiling": folder / "ceiling.html", "arithmetic": folder / "arithmetic.html"}
    for name, path in found.items():
        path.write_text(jobs.widget(name), "utf-8")
    write_all(folder / "source", small_evidence(found), about_now(), ("course.engine",))
    sphinx(folder)
    return folder / "html"


def small_evidence(widgets: dict[str, Path]) -> Evidence:
    """Real results of a few ids."""
    from course.claims.contradictions import contradictions
    from course.claims.registry import compute as try_claim
    from course.claims.show import as_html, finding
    from course.debug.museum import exhibit
    from course.worked.registry import compute

    numbers = {id_: compute(id_) for id_ in ("N14", "N19", "N20")}
    trial = try_claim("F38")
    decides = finding(trial.measured.deciding, trial.measured.number)
    bug = exhibit("B08")
    return Evidence(
        worked={i: {"verdict": n.verdict, "html": n._repr_html_()} for i, n in numbers.items()},
        claims={"F38": {**trial.to_json(), "html": as_html(trial), "decides": decides}},
        contradictions={id_: row.to_json() for id_, row in contradictions().items()},
        bugs={"B08": {"title": bug.title, "html": bug._repr_html_()}},
        widgets=widgets,
    )


@pytest.fixture
def offline(browser, site):
    """A page that may read the book's folder and nothing else, and what went wrong on it."""
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    wrong: list[str] = []

    def only_the_book(route) -> None:
        url = route.request.url
        if url.startswith((site.as_uri(), "data:", "blob:", "about:")):
            route.continue_()
        else:
            wrong.append(f"asked for {url}")
            route.abort()

    context.route("**/*", only_the_book)
    page = context.new_page()
    page.on("console", lambda said: wrong.append(said.text) if said.type == "error" else None)
    page.on("pageerror", lambda fault: wrong.append(str(fault)))
    page.set_default_timeout(30_000)
    yield page, wrong
    context.close()


def test_every_id_has_an_address_and_every_link_leads_somewhere(site):
    assert not [id_ for id_ in rows() if not (site / "id" / f"{id_}.html").is_file()]
    assert check_links(site) > 10_000


def test_no_solution_is_in_the_book(site):
    shown = "".join(
        html.unescape(re.sub(r"<[^>]+>", "", page.read_text("utf-8")))
        for folder in ("notebooks", "exercises", "parts", "id")
        for page in (site / folder).glob("*.html")
    )
    assert "BEGIN SOLUTION" not in shown
    sources = Path(__file__).parents[2] / "notebooks" / "source"
    for path in sources.glob("*.py"):
        text = path.read_text("utf-8")
        for block in re.findall(r"### BEGIN SOLUTION\n(.*?)### END SOLUTION", text, re.S):
            lines = [line for line in block.splitlines() if line.strip()]
            whole = "\n".join(lines)
            if len(lines) > 2:  # a shorter one may be a line that the notebook shows elsewhere
                assert whole not in shown, f"{path.stem}: {whole[:200]}"


@pytest.mark.parametrize("kind", KINDS)
def test_a_page_needs_nothing_but_the_folder(offline, site, kind):
    page, wrong = offline
    page.goto((site / KINDS[kind]).as_uri())
    page.wait_for_load_state("load")
    assert page.locator("h1").first.inner_text()
    assert "torch" in page.locator(".made-on").first.inner_text()
    for image in page.locator("article img").all():
        assert image.get_attribute("alt"), image.evaluate("one => one.outerHTML.slice(0, 200)")
    assert not wrong


def test_a_name_in_a_notebooks_code_leads_to_its_reference(offline, site):
    page, wrong = offline
    page.goto((site / KINDS["notebook"]).as_uri())
    link = page.locator(".cell_input a.api", has_text="choose_device").last
    shown = "one => getComputedStyle(one).textDecorationLine"
    assert link.evaluate(shown) == "none"
    link.hover()
    assert link.evaluate(shown) == "underline"
    page.mouse.move(0, 0)
    page.keyboard.press("Tab")  # from here on the focus is shown
    link.focus()
    assert link.evaluate(shown) == "underline"
    page.keyboard.press("Enter")
    page.wait_for_url("**/api/course.engine.placement.html#*choose_device")
    assert "choose_device" in page.locator(":target").inner_text()
    assert not wrong


def test_search_finds_gradient_accumulation_without_a_server(offline, site):
    page, wrong = offline
    page.goto((site / "search.html").as_uri() + "?q=gradient+accumulation")
    page.wait_for_selector("#search-results li a[href*='id/N19']")
    assert not wrong


def test_search_and_short_addresses_work_over_loopback_too(browser, site):
    handler = functools.partial(Quiet, directory=str(site))
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        page = browser.new_page()
        address = f"http://127.0.0.1:{server.server_port}"
        page.goto(f"{address}/search.html?q=double+softmax")
        page.wait_for_selector("#search-results li a[href*='id/B08']")
        page.goto(f"{address}/id/N19")
        page.wait_for_url(f"{address}/id/N19.html")
        assert "N19" in page.locator("h1").inner_text()
        page.close()
    finally:
        server.shutdown()
        server.server_close()


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_) -> None:
        pass


def test_a_widget_on_a_page_answers_a_key_and_follows_the_theme(offline, site):
    page, wrong = offline
    page.goto((site / KINDS["widget"]).as_uri())
    inside = page.frame_locator("iframe.widget")
    box = inside.locator("input[type=checkbox]").first
    box.wait_for()
    page.wait_for_function("document.querySelector('iframe.widget').style.height")  # it has spoken
    before = inside.locator(".course-widget").inner_text()
    box.press("Space")
    page.wait_for_timeout(300)
    assert inside.locator(".course-widget").inner_text() != before
    for theme in ("dark", "light"):
        page.evaluate("theme => { document.documentElement.dataset.theme = theme }", theme)
        inside.locator(f"html[data-theme={theme}]").wait_for(state="attached")
    assert not wrong


@pytest.mark.parametrize(
    ("kind", "theme"), sample([(kind, theme) for theme in ("light", "dark") for kind in KINDS], 5)
)
def test_no_serious_fault_for_people_with_disabilities(offline, site, kind, theme):
    from axe_playwright_python.sync_playwright import Axe

    page, _ = offline
    page.add_init_script(f"localStorage.setItem('mode', {json.dumps(theme)})")
    page.goto((site / KINDS[kind]).as_uri())
    assert page.evaluate("document.documentElement.dataset.theme") == theme
    SCREENS.mkdir(parents=True, exist_ok=True)
    for width in (1280, 400):
        page.set_viewport_size({"width": width, "height": 900})
        page.wait_for_timeout(100)
        page.screenshot(path=SCREENS / f"book-{kind}-{width}-{theme}.png")
        over = page.evaluate("document.documentElement.scrollWidth - innerWidth")
        assert over <= 0, f"{kind} is {over} px too wide at {width}"
    page.wait_for_timeout(500)  # 300 ms after a resize the theme lets what scrolls take the focus
    grave = [
        (fault["id"], fault["nodes"][0]["html"], fault["nodes"][0].get("failureSummary", ""))
        for fault in Axe().run(page).response["violations"]
        if fault["impact"] in ("serious", "critical")
    ]
    assert not grave


def test_a_printed_page_is_light_and_unfolded(offline, site):
    page, _ = offline
    page.add_init_script("localStorage.setItem('mode', 'dark')")
    page.goto((site / KINDS["part"]).as_uri())
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert page.evaluate("document.documentElement.dataset.theme") == "light"
    assert page.evaluate("[...document.querySelectorAll('details')].every(one => one.open)")
