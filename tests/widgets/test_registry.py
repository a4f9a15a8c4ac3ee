"""Every widget there is: found from its folder, listed, drawn, and small enough for a page."""

import ast
import json
import random
import re
import subprocess
import sys
from pathlib import Path

import pytest

import course.widgets as widgets
from course.cli import app
from course.widgets.base.frames import as_frame
from course.widgets.base.page import LARGEST
from tests.sampling import sample
from tests.widgets.pages import page

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "course" / "widgets"
IDS = list(widgets.catalogue())


def test_every_folder_is_found_and_ordered_without_importing_any():
    folders = {path.parent.name for path in FOLDER.glob("*/widget.js")}
    assert set(IDS) == folders
    orders = [entry.order for entry in widgets.catalogue().values()]
    assert orders == sorted(set(orders)), "two widgets have the same order"
    code = (
        "import sys, time; start = time.perf_counter(); import course.widgets as w; w.catalogue();"
        "took = time.perf_counter() - start;"
        "assert not {'torch', 'anywidget', 'matplotlib', 'numpy'} & set(sys.modules); print(took)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60, cwd=ROOT)


def test_the_command_lists_id_title_and_source():
    from typer.testing import CliRunner

    shown = CliRunner().invoke(app, ["widgets"]).output
    listed = json.loads(CliRunner().invoke(app, ["widgets", "--json"]).output)
    assert [one["id"] for one in listed] == IDS
    assert all(entry.title in shown for entry in widgets.catalogue().values())


def test_a_widget_is_found_by_name_by_class_and_by_ledger_id():
    entry = widgets.catalogue()["arithmetic"]
    assert widgets.find("S01") is widgets.find("arithmetic") is widgets.TrainingArithmetic
    assert widgets.TrainingArithmetic is entry.load() and "TrainingArithmetic" in dir(widgets)
    with pytest.raises(widgets.UnknownIdError, match="arithmetic"):
        widgets.find("arithmetics")
    with pytest.raises(AttributeError, match="TrainingArithmetic"):
        widgets.Arithmetics  # noqa: B018


@pytest.fixture(params=IDS)
def widget(request):
    made = widgets.find(request.param)()
    yield made
    made.close()


def test_its_first_view_says_something_and_the_same_state_gives_the_same_numbers(widget):
    other = type(widget)()
    assert widget.id == Path(sys.modules[type(widget).__module__].__file__).parent.name
    assert len(widget.view["says"]) > 15 and widget.view["note"] == ""
    assert all(len(line) > 10 for line in widget.tries) and len(widget.tries) == 2
    assert json.dumps(widget.frame, allow_nan=False) == json.dumps(other.frame, allow_nan=False)
    other.close()


def test_its_twin_is_a_figure_with_named_axes_and_pictures_are_not_empty(widget):
    from matplotlib.figure import Figure

    figure = widget.figure()
    assert isinstance(figure, Figure) and figure.axes
    assert len(widget.picture()) > 5_000


def test_each_control_moves_something(widget):
    """A control under which all values show the same frame, whatever the others say, is none."""
    draw = random.Random(0)
    controls = widget.settings_type.controls()
    for name, control in controls.items():
        if control.hot:
            continue  # it changes what comes next, not what is there
        assert any(_moves(widget, name, draw) for _ in range(60)), f"{name} moves nothing"


def _moves(widget, name, draw) -> bool:
    """Whether two values of a control differ in what is shown, the other controls at random."""
    controls = widget.settings_type.controls()
    others = {other: draw.choice(one.values) for other, one in controls.items() if other != name}
    shown = []
    for value in draw.sample(controls[name].values, 2):
        try:
            settings = widget.state.changed(**others, **{name: value})
        except ValueError:
            return False
        run = getattr(widget, "run_type", None)
        frame = run(settings).frame() if run else type(widget).frame_of(settings)
        shown.append(json.dumps(as_frame(frame)))
    return shown[0] != shown[1]


def test_an_update_is_at_most_10_kb(widget):
    assert len(json.dumps(widget.view)) <= 10_000


@pytest.mark.parametrize("id", sample(IDS, 3))  # in a browser: tests/browser/test_widgets.py
def test_its_page_needs_nothing_from_anywhere_and_is_small(id):
    text = page(id)
    assert len(text.encode()) <= LARGEST
    addresses = re.findall(r"""(?:https?:)?//[\w.-]+\.\w+/""", re.sub(r'"[\w+/=]{200,}"', "", text))
    assert not addresses
    assert widgets.find(id).title in text and "data:image/png;base64," in text


def test_its_numbers_come_from_a_module_without_widgets(widget):
    for name in ("state.py", "twin.py"):
        tree = ast.parse((FOLDER / widget.id / name).read_text("utf-8"))
        imported = {
            alias.name if isinstance(node, ast.Import) else node.module
            for node in ast.walk(tree)
            if isinstance(node, ast.Import | ast.ImportFrom)
            for alias in node.names
        }
        heavy = {"ipywidgets", "anywidget", "matplotlib.pyplot", "course.widgets.base.widget"}
        assert not heavy & imported, f"{name} imports {heavy & imported}"


def test_frames_are_plain(widget):
    frame = widget._compute()
    assert as_frame(frame) == json.loads(json.dumps(as_frame(frame), allow_nan=False))
