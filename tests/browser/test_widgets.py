"""Every widget in a real JupyterLab, one session for all, and its exported page from a file.

A widget joins by being a folder of `course/widgets`. What each shows must be what Python computes
for the same settings; its keys must not reach JupyterLab; nothing may be asked of another machine.
Screens are left in `build/screens/`: look at them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nbformat
import pytest

import course.widgets as widgets
from course.widgets.base.frames import as_frame
from tests.browser.lab import ROOT, jupyter_lab
from tests.sampling import sample
from tests.widgets.pages import page as exported_page

pytestmark = pytest.mark.slow
IDS = list(widgets.catalogue())
PLAYED = [id for id in IDS if widgets.find(id).player or widgets.find(id).buttons]
SCREENS = ROOT / "build" / "screens"
PIXELS = """canvases => canvases.filter(canvas => canvas.clientWidth).map(canvas => {
    const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
    let sum = 0; for (let i = 0; i < data.length; i += 1) sum = (sum * 31 + data[i]) | 0;
    return [sum, new Set(new Uint32Array(data.buffer)).size] })"""
SAID_S = 3.0
"""The live region speaks at most every two seconds."""


class Lab:
    """A notebook with a cell for each widget, open in JupyterLab, all cells run."""

    def __init__(self, page: Any) -> None:
        self.page = page
        self.faults: list[str] = []
        self.strangers: list[str] = []

    def widget(self, id: str) -> Any:
        title = widgets.find(id).title
        found = self.page.locator(f'section.course-widget[aria-label="{title}"]').first
        found.scroll_into_view_if_needed()
        return found


@pytest.fixture(scope="module")
def lab(browser, tmp_path_factory) -> Iterator[Lab]:
    home, folder = (tmp_path_factory.mktemp(name) for name in ("home", "notebooks"))
    entries = widgets.catalogue().values()
    cells = ["import course.widgets as widgets"]
    cells += [f"widgets.{entry.name}()" for entry in entries]
    kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
    notebook = nbformat.v4.new_notebook(
        cells=[nbformat.v4.new_code_cell(cell) for cell in cells],
        metadata={"kernelspec": kernel},
    )
    nbformat.write(notebook, folder / "gallery.ipynb")
    with jupyter_lab(folder, home) as address:
        context = browser.new_context(viewport={"width": 1300, "height": 2400})
        context.set_default_timeout(90_000)
        page = context.new_page()
        lab = Lab(page)
        page.on("console", lambda m: m.type == "error" and lab.faults.append(m.text))
        page.on("pageerror", lambda fault: lab.faults.append(str(fault)))
        page.on("request", lambda r: _note_stranger(lab, r.url, address))
        page.goto(f"{address}/lab/tree/gallery.ipynb")
        page.wait_for_selector(".jp-Notebook-ExecutionIndicator[data-status=idle]")
        _run_all(page)
        page.wait_for_function(
            f"document.querySelectorAll('.course-widget').length >= {len(cells) - 1}"
        )
        page.wait_for_selector(".jp-Notebook-ExecutionIndicator[data-status=idle]")
        yield lab
        context.close()


def _run_all(page: Any) -> None:
    """Run every cell; JupyterLab forgets the command while its kernel is still connecting, or says
    so in a dialog."""
    for _ in range(4):
        for button in page.locator(".jp-Dialog .jp-mod-accept").all():
            button.click()
        page.locator(".jp-Notebook .jp-Cell").first.click()
        _menu(page, "Run", "Run All Cells")
        prompt = page.locator(".jp-InputPrompt").first
        for _ in range(40):
            if re.search(r"[*\d]", prompt.inner_text()):
                return
            page.wait_for_timeout(250)
    SCREENS.mkdir(parents=True, exist_ok=True)
    page.screenshot(path=SCREENS / "not-run.png")
    pytest.fail(f"JupyterLab runs no cell; see {SCREENS / 'not-run.png'}")


def _note_stranger(lab: Lab, url: str, address: str) -> None:
    if not url.startswith((address, address.replace("http", "ws"), "data:", "blob:")):
        lab.strangers.append(url)


def _menu(page: Any, *names: str) -> None:
    page.locator(".lm-MenuBar-itemLabel", has_text=re.compile(f"^{names[0]}$")).click()
    for number, name in enumerate(names[1:], start=1):
        item = page.locator(".lm-Menu-itemLabel", has_text=re.compile(f"^{name}$")).last
        item.hover() if number < len(names) - 1 else item.click()


def said(widget: Any) -> str:
    return widget.locator(".cw-said").inner_text()


def wait_until_said(widget: Any, words: str) -> None:
    widget.page.wait_for_function(
        "([node, words]) => node.textContent === words",
        arg=[widget.locator(".cw-said").element_handle(), words],
        timeout=20_000,
    )


def pixels(widget: Any) -> list[list[int]]:
    return widget.locator("canvas").evaluate_all(PIXELS)


def first_move(id: str) -> tuple[str, Any, Any]:
    """A setting, another value of it, and the view that Python computes for that."""
    made = widgets.find(id)()
    start = made.view["says"]
    for name, control in made.settings_type.controls().items():
        place = control.values.index(control.default)
        for value in (*control.values[place + 1 :], *control.values[:place]):
            try:
                made.set(**{name: value})
            except ValueError:
                continue
            if hasattr(made, "wait"):
                made.wait()
            if made.view["says"] != start:
                made.close()
                return name, value, made.view["says"]
        made.set(**{name: control.default})
    raise AssertionError(f"no setting of {id} changes what it says")


def touch(widget: Any, id: str, name: str, value: Any) -> None:
    """Set a control as a person at the keyboard would."""
    control = widgets.find(id).settings_type.controls()[name]
    place = control.values.index(value)
    node = widget.locator(f'[id$="-{name}"]')
    if control.kind == "slider":
        node.focus()
        for _ in range(len(control.values)):
            at = int(node.input_value())
            if at == place:
                return
            node.press("ArrowRight" if at < place else "ArrowLeft")
    elif control.kind == "choice":
        node.select_option(index=place)
    else:
        node.focus()
        node.press("Space")


@pytest.mark.parametrize("id", sample(IDS, 3))
def test_it_renders_and_its_control_shows_what_python_computes(lab, id):
    widget = lab.widget(id)
    wait_until_said(widget, widgets.find(id)().view["says"])
    before = pixels(widget)
    assert all(colours > 3 for _, colours in before), "an empty canvas"
    name, value, expected = first_move(id)
    touch(widget, id, name, value)
    wait_until_said(widget, expected)
    if before:
        assert pixels(widget) != before
    touch(widget, id, name, widgets.find(id).settings_type.controls()[name].default)
    wait_until_said(widget, widgets.find(id)().view["says"])
    assert not lab.faults and not lab.strangers


@pytest.mark.parametrize("id", [id for id in IDS if id not in PLAYED])
def test_what_does_not_move_has_no_buttons(lab, id):
    assert lab.widget(id).locator(".cw-buttons").count() == 0


@pytest.mark.parametrize("id", sample(PLAYED, 6))
def test_play_pause_step_and_reset(lab, id):
    widget = lab.widget(id)
    play, step, reset = (widget.locator(f"[data-do={name}]") for name in ("play", "step", "reset"))
    reset.click()
    lab.page.wait_for_timeout(SAID_S * 1000)
    begun = widget.inner_text()
    play.click()
    widget.get_by_role("button", name="Pause").wait_for()
    _wait_for_change(widget, begun)
    widget.get_by_role("button", name="Pause").click()
    widget.get_by_role("button", name="Play").wait_for()
    lab.page.wait_for_timeout(SAID_S * 1000)
    still = widget.inner_text()
    lab.page.wait_for_timeout(500)
    assert widget.inner_text() == still
    step.click()
    _wait_for_change(widget, still)
    reset.click()
    lab.page.wait_for_timeout(SAID_S * 1000)
    assert widget.inner_text() == begun
    assert not lab.faults


def _wait_for_change(widget: Any, text: str) -> None:
    widget.page.wait_for_function(
        "([node, text]) => node.innerText !== text",
        arg=[widget.element_handle(), text],
        timeout=20_000,
    )


@pytest.mark.parametrize("id", sample(IDS, 4))
def test_letters_typed_into_it_change_no_cell(lab, id):
    cells = lab.page.locator(".jp-Notebook .jp-Cell")
    count, widget = cells.count(), lab.widget(id)
    for place in (widget.locator("canvas, pre, table").first, widget.locator("h3")):
        place.click(force=True)
        lab.page.keyboard.type("bbddaxm1")
        lab.page.wait_for_timeout(100)
        assert cells.count() == count
    focusable = widget.locator("input, select, button")
    for number in range(focusable.count()):
        focusable.nth(number).focus()
        lab.page.keyboard.type("bddx")
    assert cells.count() == count
    assert lab.page.locator(".jp-Dialog").count() == 0
    for name, control in widgets.find(id).settings_type.controls().items():
        if control.kind == "choice":  # letters choose in a list: back to where it was
            touch(widget, id, name, control.default)


def test_screens_in_light_and_dark(lab):
    """Kept for people; the colours must follow JupyterLab's theme."""
    SCREENS.mkdir(parents=True, exist_ok=True)
    light = {id: _screen(lab, id, "light") for id in IDS}
    _menu(lab.page, "Settings", "Theme", "JupyterLab Dark")
    try:
        lab.page.wait_for_selector('body[data-jp-theme-light="false"]', state="attached")
        lab.page.wait_for_timeout(900)
        for id in IDS:
            assert _screen(lab, id, "dark") != light[id] or not light[id], id
            dark = lab.widget(id).evaluate("node => getComputedStyle(node).backgroundColor")
            assert sum(map(float, re.findall(r"[\d.]+", dark)[:3])) < 200, id
    finally:
        _menu(lab.page, "Settings", "Theme", "JupyterLab Light")
        lab.page.wait_for_selector('body[data-jp-theme-light="true"]', state="attached")
        lab.page.wait_for_timeout(700)


def _screen(lab: Lab, id: str, theme: str) -> list[list[int]]:
    lab.widget(id).screenshot(path=SCREENS / f"{id}-{theme}.png")
    return pixels(lab.widget(id))


# --- without a kernel ----------------------------------------------------------------------------


@pytest.fixture(scope="module", params=sample(IDS, 6))
def exported(request, browser, tmp_path_factory) -> Iterator[tuple[str, Any, list[str]]]:
    """An exported page, opened from its file at 400 px, and all that went wrong or out."""
    path = tmp_path_factory.mktemp("page") / f"{request.param}.html"
    path.write_text(exported_page(request.param), "utf-8")
    context = browser.new_context(
        viewport={"width": 400, "height": 900}, offline=True, color_scheme="light"
    )
    page, wrong = context.new_page(), []
    page.on("console", lambda m: m.type in ("error", "warning") and wrong.append(m.text))
    page.on("pageerror", lambda fault: wrong.append(str(fault)))
    page.on("request", lambda r: r.url != path.as_uri() and wrong.append(r.url))
    page.goto(path.as_uri())
    page.wait_for_selector(".course-widget")
    yield request.param, page, wrong
    context.close()


def test_an_exported_page_works_from_a_file_and_asks_for_nothing(exported):
    id, page, wrong = exported
    page.wait_for_timeout(300)
    widget = page.locator(".course-widget")
    assert all(colours > 3 for _, colours in pixels(widget))
    assert page.evaluate("document.documentElement.scrollWidth") <= 400
    SCREENS.mkdir(parents=True, exist_ok=True)
    page.screenshot(path=SCREENS / f"{id}-400.png", full_page=True)
    before = widget.inner_text()
    sliders, lists = widget.locator("input[type=range]"), widget.locator("select")
    for number in range(sliders.count()):
        sliders.nth(number).focus()
        page.keyboard.press("Home")
        page.keyboard.press("ArrowRight")
    for number in range(lists.count()):
        lists.nth(number).select_option(index=1)
    page.wait_for_timeout(300)
    assert widget.inner_text() != before
    if widget.locator("[data-do=play]").count():
        text = widget.inner_text()
        widget.locator("[data-do=reset]").click()
        _wait_for_change(widget, text)  # at the slider's second value until it is drawn again
        text = widget.inner_text()
        widget.locator("[data-do=step]").click()
        _wait_for_change(widget, text)
        text = widget.inner_text()
        widget.locator("[data-do=play]").click()
        _wait_for_change(widget, text)
        widget.locator("[data-do=play]").click()
    assert not wrong


def test_an_exported_page_shows_what_python_computes(exported):
    id, page, _ = exported
    kind = widgets.find(id)
    page.reload()
    page.wait_for_selector(".course-widget")
    widget = page.locator(".course-widget")
    if hasattr(kind, "run_type"):
        moments, steps = kind.moments
        run = kind.run_type(kind.settings_type(**next(iter(kind.recordings.values()))))
        for _ in range(moments // 3 * steps):
            run.step()
        expected = kind.says(run.settings, as_frame(run.frame(), digits=5))
    else:
        made = kind()
        wanted = {name: values[0] for name, values in kind.exported.items()}
        now = made.state.to_json()
        made.set(**{n: v for n, v in wanted.items() if now[n] not in kind.exported[n]})
        expected = made.view["says"]
    wait_until_said(widget, expected)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_no_serious_fault_for_people_with_disabilities(exported, scheme):
    from axe_playwright_python.sync_playwright import Axe

    id, page, _ = exported
    page.emulate_media(color_scheme=scheme)
    page.wait_for_timeout(300)
    page.screenshot(path=SCREENS / f"{id}-400-{scheme}.png", full_page=True)
    found = Axe().run(page).response["violations"]
    grave = [
        (fault["id"], fault["nodes"][0]["html"], fault["nodes"][0].get("failureSummary", ""))
        for fault in found
        if fault["impact"] in ("serious", "critical")
    ]
    assert not grave


def test_print_without_a_started_page_shows_the_picture(exported, browser, tmp_path):
    _, page, _ = exported
    file = Path(page.url.removeprefix("file://"))
    context = browser.new_context(java_script_enabled=False)
    still = context.new_page()
    still.goto(file.as_uri())
    assert still.locator("main img").evaluate("img => img.naturalWidth") > 300
    context.close()
