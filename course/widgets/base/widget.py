"""What all widgets share: checked settings, frames computed from them, and a page that draws.

The smallest complete widget is a folder with four files (`__init__.py` holds a docstring only):

    # course/widgets/halving/state.py: pure, no widget in it
    @dataclass(frozen=True, kw_only=True)
    class Settings(Checked):
        start: int = slider(8, (2, 4, 8, 16), "start", unit="steps")

    def frame(settings: Settings) -> dict[str, Any]:
        return {"values": [settings.start / 2**k for k in range(5)]}

    # course/widgets/halving/twin.py: the same frame as a picture
    def draw(settings: Settings, frame: dict[str, Any]) -> Figure:
        figure, ax = axes()
        ax.plot(frame["values"])
        return figure

    # course/widgets/halving/widget.py
    @widget("halving", title="Halving", source="Lecture 3, c0", ledger=("S01",), order=990)
    class Halving(CourseWidget):
        settings_type, frame_of, twin = Settings, staticmethod(frame), staticmethod(draw)
        tries = ("Double the start.", "Every value doubles: the curve keeps its shape.")
        says = staticmethod(lambda settings, frame: f"ends at {frame['values'][-1]:g}")

    // course/widgets/halving/widget.js
    import { mount } from "../base/base.js";
    export default mount((ui) => {
      const plot = ui.plot("Values", { height: 200 });
      return (frame) => plot.draw((g) => {
        g.axes({ x: [0, 4], y: [0, 16], xLabel: "halvings", yLabel: "value" });
        g.line([0, 1, 2, 3, 4], frame.values, { name: "value" });
      });
    });

The page sends each change as a message; Python checks it, computes the frame and sets one trait,
`view`. If a page sends an invalid message, it gets an error text back and nothing changes.

    widget = Halving(start=4)
    widget.start = 16              # a trait for each setting; ValueError if it is out of range
    widget.state, widget.frame     # the settings and the numbers on the page, without a browser

A widget that trains is a `LiveWidget` (live.py).
"""

from __future__ import annotations

import base64
import inspect
import io
import os
import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any, ClassVar

import anywidget
import traitlets

from course.widgets.base.bundle import bundle, style
from course.widgets.base.frames import as_frame
from course.widgets.base.settings import Checked, Control

PICTURE_ONLY = ("NBGRADER_EXECUTION", "NBGRADER_VALIDATING")
"""If the environment has one of these, nobody can interact, so only the picture is shown."""


def widget(
    id: str, *, title: str, source: str, ledger: Sequence[str], order: int
) -> Callable[[type], type]:
    """Register a widget class; the texts are literals, which are read without an import.

    Args:
        id: The name of its folder.
        title: One line, shown above it.
        source: Lecture and place.
        ledger: The ledger's ids that it shows, e.g. `("S04", "S23")`.
        order: Its position in the lecture, in tens, so that others fit in between.
    """

    def register(cls: type) -> type:
        cls.id, cls.title, cls.source, cls.ledger = id, title, source, tuple(ledger)
        return cls

    return register


def computing() -> AbstractContextManager[Any]:
    """Compute on the CPU, even if the notebook has set another default device.

    A widget's tensors are small, some are kept from frame to frame, and a run's thread would not
    see the notebook's choice. If torch is not imported, no default device is set, and torch is not
    needed.
    """
    if "torch" not in sys.modules:
        return nullcontext()
    from course.state.fresh import on_the_cpu

    return on_the_cpu()


class Setting(traitlets.TraitType):
    """One setting as a trait, which refuses what the settings' dataclass refuses."""

    def __init__(self, control: Control) -> None:
        super().__init__(control.default)
        self.info_text = f"one of {len(control.values)} values"

    def validate(self, widget: Any, value: Any) -> Any:
        return getattr(widget.state.changed(**{self.name: value}), self.name)


class CourseWidget(anywidget.AnyWidget):
    """A widget whose picture is a pure function of its settings.

    Args:
        settings: Values of settings by name; the others keep their defaults.

    Raises:
        ValueError: A setting does not exist or is out of range.
    """

    id: ClassVar[str]
    title: ClassVar[str]
    source: ClassVar[str]
    ledger: ClassVar[tuple[str, ...]]
    settings_type: ClassVar[type[Checked]]
    frame_of: ClassVar[Callable[[Any], dict[str, Any]]]
    """A function of the settings that returns a dict of numbers, strings and lists."""
    twin: ClassVar[Callable[[Any, dict[str, Any]], Any]]
    """A function of settings and frame that returns a matplotlib Figure, made without pyplot."""
    says: ClassVar[Callable[[Any, dict[str, Any]], str]]
    """A function of settings and frame that returns a sentence for screen readers and text
    output."""
    tries: ClassVar[tuple[str, str]]
    """Two lines: what to try, and what to see."""
    buttons: ClassVar[tuple[str, ...]] = ()
    """Commands that get a button, e.g. `("play", "step", "reset")`."""
    player: ClassVar[str] = ""
    """The slider that Play advances, for a widget that walks through something."""
    pace: ClassVar[int] = 1200
    """Milliseconds between two steps of the player."""
    exported: ClassVar[dict[str, Sequence[Any]]] = {}
    """Settings and values on an exported page; empty: all settings with all values."""
    slow: ClassVar[tuple[str, ...]] = ()
    """Keys of the frame that seldom change (e.g. data points), sent only when they do."""

    about = traitlets.Dict().tag(sync=True)
    """What the page needs only once: title, source, tries, controls, buttons."""
    scene = traitlets.Dict().tag(sync=True)
    """The slow keys of the frame."""
    view = traitlets.Dict().tag(sync=True)
    """Number of the frame, settings, frame, sentence, whether it runs, a note."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        if "settings_type" in cls.__dict__:
            for name, control in cls.settings_type.controls().items():
                assert not hasattr(cls, name), (
                    f"a setting must not be called {name}: widgets use this name"
                )
                trait = Setting(control)
                setattr(cls, name, trait)
                trait.class_init(cls, name)
        super().__init_subclass__(**kwargs)

    def __init__(self, **settings: Any) -> None:
        self._lock = threading.RLock()
        self._number = 0
        self._slow_seen: dict[str, Any] = {}
        self._frame: dict[str, Any] = {}
        self._setting_all = False
        self._state = self.settings_type().changed(**settings)
        self._esm, self._css = bundle(self.script()), style()
        super().__init__()
        self.about = self._about()
        self._take_traits()
        self.on_msg(self._on_message)
        self._show()

    @classmethod
    def script(cls) -> Path:
        """Its ES module."""
        return Path(inspect.getfile(cls)).with_name("widget.js")

    def _about(self) -> dict[str, Any]:
        controls = self.settings_type.controls()
        return {
            "id": self.id,
            "title": self.title,
            "source": self.source,
            "tries": list(self.tries),
            "controls": [control.to_json(name) for name, control in controls.items()],
            "buttons": list(self.buttons),
            "player": self.player,
            "pace": self.pace,
            "level": 3,
        }

    # --- settings --------------------------------------------------------------------------------

    @property
    def state(self) -> Checked:
        """The settings, frozen; assign new ones of the same type, or use `set`."""
        return self._state

    @state.setter
    def state(self, state: Checked) -> None:
        self.set(**state.to_json())

    def set(self, **changes: Any) -> None:
        """Change several settings at once.

        Raises:
            ValueError: A setting does not exist or is out of range; nothing has changed.
        """
        with self._lock:
            state = self._state.changed(**changes)
            if state == self._state:
                return
            before, self._state = self._state, state
            self._take_traits()
            self._changed(before)

    def _take_traits(self) -> None:
        """Let the traits say what the settings are."""
        self._setting_all = True
        try:
            for name, value in self._state.to_json().items():
                setattr(self, name, value)
        finally:
            self._setting_all = False

    @traitlets.observe(traitlets.All)
    def _one_trait_changed(self, change: Any) -> None:
        name = change["name"]
        if self._setting_all or name not in self.settings_type.controls():
            return
        self.set(**{name: change["new"]})

    def _changed(self, before: Checked) -> None:
        """Compute and show the new settings' frame."""
        self._show()

    # --- frames ----------------------------------------------------------------------------------

    @property
    def frame(self) -> dict[str, Any]:
        """The numbers that the page shows."""
        return {**self.scene, **self.view["frame"]}

    def _compute(self) -> dict[str, Any]:
        return type(self).frame_of(self._state)

    def _show(self, note: str = "", *, running: bool = False) -> None:
        """Compute the frame and give it to the page, in one message."""
        with self._lock, computing():
            frame = self._compute()
            slow = {key: frame[key] for key in self.slow}
            fast = as_frame({key: value for key, value in frame.items() if key not in slow})
            changed = any(self._slow_seen.get(key) is not value for key, value in slow.items())
            self._number += 1
            view = {
                "n": self._number,
                "settings": as_frame(self._state.to_json(), digits=9),
                "frame": fast,
                "says": type(self).says(self._state, {**slow, **fast}),
                "running": running,
                "note": note,
            }
            if changed:
                self._slow_seen = slow
                with self.hold_sync():
                    self.scene, self.view = as_frame(slow), view
            else:
                self.view = view

    # --- messages of the page --------------------------------------------------------------------

    def _on_message(self, _widget: Any, message: Any, _buffers: Any) -> None:
        """A message of the page; whatever it is, the page gets an answer and nothing breaks."""
        try:
            self._answer(message)
        except (ValueError, TypeError) as fault:
            self._refuse(str(fault))

    def _answer(self, message: Any) -> None:
        """Do what a message asks.

        Raises:
            ValueError: It asks for nothing that there is.
        """
        kind = message.get("type") if isinstance(message, dict) else None
        if kind == "set" and isinstance(message.get("changes"), dict):
            before = self._number
            self.set(**message["changes"])
            if self._number == before:
                self._show()
        elif not (kind == "gone" or (kind == "drawn" and isinstance(message.get("n"), int))):
            raise ValueError(
                f"the page sent {str(message)[:80]!r}, which is not a message of this widget. Run "
                "the cell again to reload its page."
            )

    def _refuse(self, why: str) -> None:
        """Show what is there, with the reason why nothing changed."""
        self._show(why)

    # --- without a page --------------------------------------------------------------------------

    def figure(self) -> Any:
        """The twin: a matplotlib Figure of the same frame."""
        return type(self).twin(self._state, self.frame)

    def picture(self) -> bytes:
        """The twin as PNG."""
        return as_png(self.figure())

    def pages(self) -> tuple[list[dict[str, Any]], list[dict[str, Any] | str]]:
        """Controls and states of the exported page; for a refused state, the error message."""
        from course.widgets.base.page import enumerated

        with computing():
            return enumerated(self)

    def __repr__(self) -> str:
        return f"{self.title}: {self.view['says']}" if self.view else super().__repr__()

    def _repr_mimebundle_(self, **kwargs: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        """The live widget, and its picture for readers without one: feedback, GitHub, print."""
        data, metadata = super()._repr_mimebundle_(**kwargs)
        data["text/plain"] = repr(self)
        data["image/png"] = base64.b64encode(self.picture()).decode()
        if any(name in os.environ for name in PICTURE_ONLY):
            del data["application/vnd.jupyter.widget-view+json"]
        return data, metadata


def as_png(figure: Any, dpi: int = 110) -> bytes:
    """A matplotlib Figure as PNG, without pyplot."""
    file = io.BytesIO()
    figure.savefig(file, format="png", dpi=dpi, facecolor="white")
    return file.getvalue()
