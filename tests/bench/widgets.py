"""The simulator in a real JupyterLab, in turn with the same view by three other means.

A matplotlib PNG in `widgets.Image`, a plotly FigureWidget and ipympl, the last two where they are
installed (`pip install .[bench]`); they show a part of what ours does: one map and the losses.

    python -m tests.bench.widgets [--rounds 4] [--seconds 4]

All train the same run in one thread of one kernel and show it in one notebook; rounds alternate.
Shown frames are counted by the page's acknowledgements; of the others, those sent. Slider to pixels
is measured in the page, from the touch to the frame that shows it. Goals: 20 shown frames per
second, none wasted; slider to pixels 60 ms paused and 100 ms while training; training at most 1.5
times slower than without a page; stop to still 0.3 s; 10 kB per update; 10 kB of JavaScript of a
widget's own; an exported page of at most 500 kB; `import course.widgets` in 0.3 s.
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import nbformat
import torch

import course.widgets as widgets
from course.widgets.base.bundle import module
from course.widgets.base.page import page_of
from tests.bench.harness import FOLDER
from tests.browser.chromium import chromium
from tests.browser.lab import ROOT, jupyter_lab

OURS, PNG, PLOTLY, IPYMPL, BARE = (
    "canvas", "PNG in widgets.Image", "plotly FigureWidget", "ipympl", "no page")  # fmt: skip

CELLS = (
    """
import io, json, threading, time
import ipywidgets
from pathlib import Path
import course.widgets as widgets
from course.widgets.base.frames import as_frame
from course.widgets.simulator.state import Settings, SimulatedRun
from course.widgets.simulator.twin import draw
w = widgets.TrainingSimulator(speed=0)
w
""",
    """
class View:
    name, widget = "", None
    def __init__(self):
        self.sent, self.on = 0, False
        self.start()
    def start(self):
        self.run = SimulatedRun(Settings(speed=0))
    def play(self):
        self.on = True
        while self.on:
            stop = time.perf_counter() + 1 / 30
            while time.perf_counter() < stop:
                self.run.step()
            self.show(as_frame(self.run.frame()))
            self.sent += 1
    def weighs(self):
        return {}
class Png(View):
    name = "PNG in widgets.Image"
    def __init__(self):
        super().__init__()
        self.widget = ipywidgets.Image(format="png")
        self.show(as_frame(self.run.frame()))
    def show(self, frame):
        file = io.BytesIO()
        draw(self.run.settings, frame).savefig(file, format="png", dpi=100)
        self.widget.value = file.getvalue()
    def weighs(self):
        return {"kb": len(self.widget.value) / 1e3}
views = [Png()]
views[0].widget
""",
    """
import base64, importlib.util, numpy as np
from matplotlib.colors import to_rgb
from course.widgets.simulator.state import CELLS, LEVELS
from course.widgets.simulator.twin import COLOURS
def regions(frame):
    cells = np.frombuffer(base64.b64decode(frame["learners"][0]["boundary"]), dtype=np.uint8)
    classes, level = np.divmod(cells.reshape(CELLS, CELLS), LEVELS)
    alpha = (0.12 + 0.4 * level / (LEVELS - 1))[..., None]
    return 1 - alpha * (1 - np.array([to_rgb(colour) for colour in COLOURS])[classes])
class Plotly(View):
    name = "plotly FigureWidget"
    def __init__(self):
        import plotly.graph_objects as go
        from plotly.subplots import make_subplots
        super().__init__()
        frame = as_frame(self.run.frame())
        figure = make_subplots(1, 2)
        figure.add_trace(go.Image(z=(255 * regions(frame)).astype(np.uint8)), 1, 1)
        for number, colour in enumerate(COLOURS):
            of = [i for i, one in enumerate(frame["points"]["class"]) if one == number]
            at = {a: [CELLS / 2 * (1 + frame["points"][a][i]) for i in of] for a in "xy"}
            figure.add_trace(go.Scatter(**at, mode="markers", marker={"color": colour}), 1, 1)
        figure.add_trace(go.Scatter(x=[], y=[]), 1, 2)
        figure.update_yaxes(type="log", row=1, col=2)
        self.widget = go.FigureWidget(figure)
    def show(self, frame):
        with self.widget.batch_update():
            self.widget.data[0].z = (255 * regions(frame)).astype(np.uint8)
            self.widget.data[4].x = frame["learners"][0]["loss_at"]
            self.widget.data[4].y = frame["learners"][0]["losses"]
class Ipympl(View):
    name = "ipympl"
    def __init__(self):
        from ipympl.backend_nbagg import Canvas, FigureManager
        super().__init__()
        self.run.step()
        figure = draw(self.run.settings, as_frame(self.run.frame()))
        self.widget = Canvas(figure)
        self.manager = FigureManager(self.widget, 1)
    def show(self, frame):
        left, right = self.widget.figure.axes
        left.images[0].set_data(regions(frame))
        right.lines[0].set_data(frame["learners"][0]["loss_at"], frame["learners"][0]["losses"])
        right.relim(); right.autoscale_view()
        self.widget.draw()
        self.manager.refresh_all()
views += [of() for of, needs in ((Plotly, "plotly"), (Ipympl, "ipympl"))
          if importlib.util.find_spec(needs)]
ipywidgets.VBox([view.widget for view in views[1:]])
""",
    """
def note(name, **what):
    with open("measured.jsonl", "a") as file:
        file.write(json.dumps({"variant": name, **what}) + "\\n")
def ours(seconds):
    w.do("reset"); w.do("play"); time.sleep(0.7)
    drawn, n, updates, start = w.worker.drawn, w.view["n"], w._run.updates, time.perf_counter()
    time.sleep(seconds)
    took = time.perf_counter() - start
    shown, sent, made = w.worker.drawn - drawn, w.view["n"] - n, w._run.updates - updates
    start = time.perf_counter(); w.do("pause"); w.wait(); stop = time.perf_counter() - start
    note("canvas", shown=shown / took, sent=sent / took, updates=made / took, stop_s=stop,
         kb=len(json.dumps(w.view)) / 1e3)
def other(view):
    def measured(seconds):
        view.start()
        thread = threading.Thread(target=view.play); thread.start(); time.sleep(0.7)
        sent, updates, start = view.sent, view.run.updates, time.perf_counter()
        time.sleep(seconds)
        took = time.perf_counter() - start
        note(view.name, sent=(view.sent - sent) / took,
             updates=(view.run.updates - updates) / took, **view.weighs())
        view.on = False; thread.join(); time.sleep(8)  # the page draws what has queued up
    return measured
def bare(seconds):
    run, stop = SimulatedRun(Settings(speed=0)), time.perf_counter() + seconds
    while time.perf_counter() < stop:
        run.step()
    note("no page", updates=run.updates / seconds)
def measure(rounds, seconds):
    for number in range(rounds):
        several = [ours, bare, *map(other, views)]
        for one in several[::-1] if number % 2 else several:
            one(seconds)
    note("done")
""",
)

KEY_TO_PIXELS = """
async ([selector, watched]) => {
    const input = document.querySelector(selector), times = [];
    const rate = () => document.querySelector(watched).closest("section")
        .querySelectorAll("tbody tr:first-child td")[2].textContent;
    for (let i = 0; i < 12; i += 1) {
        const before = rate(), start = performance.now();
        input.value = Number(input.value) + (i % 2 ? -1 : 1);
        input.dispatchEvent(new Event("input"));
        while (rate() === before && performance.now() - start < 3000) {
            await new Promise(requestAnimationFrame);
        }
        times.push(performance.now() - start);
        await new Promise((go) => setTimeout(go, 150));
    }
    return times;
}
"""


def measured(rounds: int, seconds: float) -> dict[str, Any]:
    """Figures of both views, from one JupyterLab."""
    folder, home = (Path(tempfile.mkdtemp()) for _ in range(2))
    kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
    start = f"threading.Thread(target=measure, args=({rounds}, {seconds})).start()"
    cells = [nbformat.v4.new_code_cell(cell.strip()) for cell in CELLS]
    notebook = nbformat.v4.new_notebook(cells=cells, metadata={"kernelspec": kernel})
    notebook.cells.append(nbformat.v4.new_code_cell(start))
    nbformat.write(notebook, folder / "bench.ipynb")
    with jupyter_lab(folder, home) as address, chromium() as browser:
        from tests.browser.test_widgets import _menu

        page = browser.new_page(viewport={"width": 1300, "height": 2400})
        page.set_default_timeout(120_000)
        page.goto(f"{address}/lab/tree/bench.ipynb")
        page.wait_for_selector(".jp-Notebook-ExecutionIndicator[data-status=idle]")
        page.wait_for_timeout(3000)
        page.locator(".jp-Notebook .jp-Cell").first.click()
        _menu(page, "Run", "Run All Cells")
        page.wait_for_selector(".course-widget canvas")
        file, until = folder / "measured.jsonl", time.monotonic() + 60 + rounds * (seconds + 6) * 8
        while not file.exists() or '"done"' not in file.read_text():
            if time.monotonic() > until:
                raise TimeoutError(f"the notebook in {folder} was not done in time")
            time.sleep(1)
        selector = '.course-widget input[id$="-lr"]'
        ask = [selector, ".course-widget canvas"]
        paused = page.evaluate(KEY_TO_PIXELS, ask)
        page.locator(".course-widget [data-do=reset]").click()
        page.locator(".course-widget [data-do=play]").click()
        page.wait_for_timeout(700)
        playing = page.evaluate(KEY_TO_PIXELS, ask)
        page.locator(".course-widget [data-do=play]").click()
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    return {"lines": lines, "paused_ms": paused, "playing_ms": playing}


def seconds_to_import() -> float:
    """Median of five fresh processes, without Python's own start."""
    code = (
        "import time; start = time.perf_counter(); import course.widgets as w; w.catalogue();"
        "print(time.perf_counter() - start)"
    )
    run = [sys.executable, "-c", code]
    times = [float(subprocess.check_output(run, cwd=ROOT, text=True)) for _ in range(5)]
    return statistics.median(times)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--seconds", type=float, default=4.0)
    arguments = parser.parse_args()
    found = measured(arguments.rounds, arguments.seconds)
    by = {
        name: [line for line in found["lines"] if line["variant"] == name]
        for name in (OURS, PNG, PLOTLY, IPYMPL, BARE)
    }
    others = [name for name in (PNG, PLOTLY, IPYMPL) if by[name]]

    def median(name: str, key: str) -> float:
        return statistics.median(line[key] for line in by[name])

    slower = {
        name: statistics.median(
            bare["updates"] / line["updates"] for bare, line in zip(by[BARE], by[name], strict=True)
        )
        for name in (OURS, *others)
    }
    shared = sum(len(module(stem)) for stem in ("plot", "base"))
    own = {id: (ROOT / f"course/widgets/{id}/widget.js").stat().st_size for id in catalogue()}
    pages = {id: len(page_of(widgets.find(id)()).encode()) for id in catalogue()}
    rows = {
        "shown frames/s": (median(OURS, "shown"), ">=", 20),
        "frames sent but not shown, share": (
            1 - median(OURS, "shown") / median(OURS, "sent"), "<=", 0.05),
        "slider to pixels, paused, ms": (statistics.median(found["paused_ms"]), "<=", 60),
        "slider to pixels, training, ms": (statistics.median(found["playing_ms"]), "<=", 100),
        "training slower, times": (slower[OURS], "<=", 1.5),
        "stop to still, s": (median(OURS, "stop_s"), "<=", 0.3),
        "largest update, kB": (max(line["kb"] for line in by[OURS]), "<=", 10),
        "largest widget.js, kB": (max(own.values()) / 1e3, "<=", 10),
        "shared JavaScript, kB": (shared / 1e3, "<=", 30),
        "largest exported page, kB": (max(pages.values()) / 1e3, "<=", 500),
        "import course.widgets, s": (seconds_to_import(), "<=", 0.3),
    }  # fmt: skip
    beside = {f"{name}: frames sent/s": median(name, "sent") for name in others}
    beside |= {f"{name}: training slower, times": slower[name] for name in others}
    beside["PNG in widgets.Image: an update, kB"] = median(PNG, "kb")
    missed = []
    for name, (value, sign, goal) in rows.items():
        met = value >= goal if sign == ">=" else value <= goal
        missed += [] if met else [name]
        print(f"{name:<36} {value:10.3f}   goal {sign} {goal:g}: {'met' if met else 'missed'}")
    for name, value in beside.items():
        print(f"{name:<44} {value:10.3f}")
    FOLDER.mkdir(parents=True, exist_ok=True)
    document = {
        "versions": {"python": platform.python_version(), "torch": str(torch.__version__)},
        "goals": {name: {"value": v, "sign": s, "goal": g} for name, (v, s, g) in rows.items()},
        "beside": beside, "pages": pages, "widget_js": own, "missed": missed, **found,
    }  # fmt: skip
    (FOLDER / "widgets.json").write_text(json.dumps(document, indent=2) + "\n")


def catalogue() -> list[str]:
    """Ids of all widgets."""
    return list(widgets.catalogue())


if __name__ == "__main__":
    main()
