"""Two tiny widgets that tests drive: one that only counts, one whose run counts its steps."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from course.widgets.base.live import LiveWidget
from course.widgets.base.settings import Checked, choice, slider, toggle
from course.widgets.base.widget import CourseWidget, widget

HALVING = """import { mount } from "../base/base.js";
export default mount((ui) => {
  const numbers = ui.readouts();
  return (frame) => numbers([["values", frame.values.join(" ")]]);
});
"""
STEPPING = HALVING.replace('[["values", frame.values.join(" ")]]', '[["steps", frame.steps]]')


@dataclass(frozen=True, kw_only=True)
class Settings(Checked):
    start: int = slider(8, (2, 4, 8, 16), "start", unit="steps")
    by: float = choice(2.0, (2.0, 4.0, math.inf), "divided by")
    both: bool = toggle(False, "both signs")

    def check(self) -> None:
        if self.both and self.start == 2:
            raise ValueError("both with start = 2 shows nothing. Take 4.")


def frame(settings: Settings) -> dict[str, Any]:
    return {"values": [settings.start / settings.by**k for k in range(3)], "both": settings.both}


def draw(settings: Any, frame: dict[str, Any]) -> Figure:
    figure = Figure()
    figure.subplots().plot(frame.get("values", [frame.get("steps", 0)]))
    return figure


@widget("halving", title="Halving", source="nowhere", ledger=(), order=1)
class Halving(CourseWidget):
    settings_type, frame_of, twin = Settings, staticmethod(frame), staticmethod(draw)
    tries = ("Double it.", "All double.")
    says = staticmethod(lambda settings, frame: f"starts at {settings.start}")
    text = HALVING

    @classmethod
    def script(cls) -> Path:
        path = Path("build/test-widgets") / f"{cls.id}.js"
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.exists() or path.read_text() != cls.text:
            path.write_text(cls.text)
        return path


@dataclass(frozen=True, kw_only=True)
class Pace(Checked):
    size: int = slider(1, (1, 2, 3), "size")
    faulty: bool = toggle(False, "raise")
    by: int = slider(1, (1, 10), "by", hot=True)


class Counter:
    """A run that counts; at 10,000 it says that it cannot go on."""

    steps_per_frame = None

    def __init__(self, settings: Pace) -> None:
        self.settings, self.steps, self.stopped = settings, 0, ""
        self.points = [settings.size] * 3

    def change(self, settings: Pace) -> None:
        self.settings = settings

    def step(self) -> None:
        if self.settings.faulty:
            raise RuntimeError("as asked")
        time.sleep(0.0005)
        self.steps += self.settings.by
        if self.steps >= 10_000:
            self.stopped = "The loss is nan: a smaller learning rate may help."

    def epoch(self) -> Any:
        for _ in range(20):
            self.step()
            yield

    def frame(self) -> dict[str, Any]:
        return {"steps": self.steps, "points": self.points, "loss": math.nan}


@widget("stepping", title="Stepping", source="nowhere", ledger=(), order=2)
class Stepping(LiveWidget):
    settings_type, run_type, twin = Pace, Counter, staticmethod(draw)
    tries = ("Play.", "It counts.")
    says = staticmethod(lambda settings, frame: f"{frame['steps']} steps")
    slow = ("points",)
    text = STEPPING
    script = Halving.__dict__["script"]
