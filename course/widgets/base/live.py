"""Widgets that train: one worker thread owns the model, and the page's messages wait in its queue.

The cell returns at once, and the thread exists only while there is something to do:

    message of the page  ->  queue  ->  worker: run.step() ... run.frame()  ->  page draws
                                           ^                                      |
                                           +--------- "drawn", number n ----------+

The next frame is computed only when the page has drawn the last one, so no frame is wasted and a
slow page does not slow down training; only the answer to a user's action is sent at once. If a page
is silent for `LOST_S` (closed, hidden, or there is none), training stops until it responds again;
after `IDLE_S` without work the thread ends, and the next command starts another one for the same
run. Closing the widget ends it at once.

A run is a plain class, tested without a widget:

    class LiveRun:
        def __init__(self, settings): ...       # builds data, model and optimizer from its own seed
        def change(self, settings): ...         # takes new values of the settings that are `hot`
        def step(self): ...                     # one update
        def epoch(self): ... yield ...          # a command of its own; yields between steps
        def frame(self) -> dict: ...
        stopped = ""                            # why it cannot go on, shown to the student
        steps_per_frame = None                  # None: as many as fit between two frames
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Iterator
from typing import Any, ClassVar, Protocol

from course.widgets.base.frames import as_frame
from course.widgets.base.settings import Checked
from course.widgets.base.widget import CourseWidget, computing

FRAME_S = 1 / 30
"""Frames are sent no faster than this."""
LOST_S = 2.0
"""A page that has not drawn for this long is considered hidden."""
BREATH_S, BREATH_EVERY_S = 1e-4, 2e-3
"""While a frame is under way the other threads get `BREATH_S` in every `BREATH_EVERY_S`: they carry
the page's answer, and otherwise wait 5 ms for the interpreter, several times per frame."""
IDLE_S = 5.0
"""A thread with nothing to do ends after this time."""


class LiveRun(Protocol):
    """The run that trains. Only the worker thread calls it."""

    settings: Any
    stopped: str
    steps_per_frame: int | None

    def change(self, settings: Any) -> None: ...
    def step(self) -> None: ...
    def frame(self) -> dict[str, Any]: ...


class LiveWidget(CourseWidget):
    """A widget around a run that can be stepped, played, paused and reset."""

    run_type: ClassVar[type]
    buttons: ClassVar[tuple[str, ...]] = ("play", "step", "epoch", "reset")
    recordings: ClassVar[dict[str, dict[str, Any]]] = {"as set": {}}
    """Runs on an exported page: their names, and the settings that each changes."""
    ahead: ClassVar[int] = 0
    """Updates done before an untouched run is drawn, since an untrained model shows nothing."""
    moments: ClassVar[tuple[int, int]] = (60, 10)
    """Frames of a recording, and updates between two of them."""

    def __init__(self, **settings: Any) -> None:
        self.worker = Worker(self)
        with computing():
            self._run: LiveRun = self.run_type(self.settings_type().changed(**settings))
        super().__init__(**settings)

    def do(self, command: str) -> None:
        """Put a command into the queue: play, pause, step, reset, or one of the run's own.

        Raises:
            ValueError: There is no such command.
        """
        known = dict.fromkeys(("play", "pause", "step", "reset", *self.buttons))
        if command not in known:
            raise ValueError(
                f"there is no command {command!r}; the commands are {', '.join(known)}."
            )
        self.worker.put("do", command)

    def wait(self, timeout_s: float = 30.0) -> None:
        """Block until all commands so far are done (a playing run counts as done).

        Raises:
            TimeoutError: It takes longer than `timeout_s`.
        """
        done = threading.Event()
        self.worker.put("tell", done)
        if not done.wait(timeout_s):
            raise TimeoutError(f"the run was not done after {timeout_s:g} s. Pause or reset it.")

    def pages(self) -> tuple[list[dict[str, Any]], list[dict[str, Any] | str]]:
        """Controls and states of the exported page: recorded runs and their frames."""
        from course.widgets.base.page import recorded

        with computing():
            return recorded(self)

    def figure(self) -> Any:
        """The twin; for a run that was not started, as it looks after `ahead` updates."""
        if self._number > 1 or not self.ahead:
            return super().figure()
        with computing():
            run = self.run_type(self._state)
            for _ in range(self.ahead):
                if not run.stopped:
                    run.step()
            return type(self).twin(self._state, as_frame(run.frame()))

    def close(self) -> None:
        """End the thread, then the widget."""
        self.worker.close()
        super().close()

    def _compute(self) -> dict[str, Any]:
        return self._run.frame()

    def _changed(self, before: Checked) -> None:
        if self.worker.closed:
            return
        self.worker.put("settings", self._state)

    def _refuse(self, why: str) -> None:
        self.worker.put("note", why)

    def _answer(self, message: Any) -> None:
        kind = message.get("type") if isinstance(message, dict) else None
        if kind == "do" and isinstance(message.get("command"), str):
            self.do(message["command"])
        elif kind == "drawn" and isinstance(message.get("n"), int):
            self.worker.put("drawn", message["n"])
        elif kind == "gone":
            self.worker.put("do", "pause")
        elif kind == "set" and isinstance(message.get("changes"), dict):
            self.set(**message["changes"])
            self.worker.put("note", "")  # an answer also where nothing has changed
        else:
            super()._answer(message)


class Worker:
    """The thread and its queue. `put` and `close` may be called from any thread."""

    def __init__(self, widget: LiveWidget) -> None:
        self.widget = widget
        self.queue: queue.SimpleQueue[tuple[str, Any]] = queue.SimpleQueue()
        self.lock = threading.Lock()
        self.thread: threading.Thread | None = None
        self.closed = False
        self.job: Iterator[None] | None = None
        self.endless = False
        """The job is `play`, which goes on for as long as a page looks."""
        self.waiting: list[threading.Event] = []
        self.note = ""
        self.drawn = 0
        """Number of the last frame that a page has drawn."""
        self.heard = 0.0
        """When a frame was sent or `play` pressed: a page has `LOST_S` from then on to answer."""
        self.steps = 0
        """Steps since the last frame."""
        self.stale = False
        """The page does not show the run as it is."""
        self.touched = False
        """The page has asked for something since the last frame."""
        self.breathed = 0.0
        """When the other threads were last let in."""

    def put(self, kind: str, value: Any) -> None:
        """Leave a command; start the thread where there is work and no thread."""
        if kind == "drawn":
            self.drawn = max(self.drawn, min(value, self.widget.view["n"]))
        with self.lock:
            if self.closed:
                if kind == "tell":
                    value.set()
                return
            if self.thread is None:
                if kind == "drawn" and self.job is None:
                    return
                name = f"{type(self.widget).__name__}'s run"
                self.thread = threading.Thread(target=self._work, name=name, daemon=True)
                self.thread.start()
            self.queue.put((kind, value))

    def close(self) -> None:
        """Stop after the current step and wait for the thread."""
        with self.lock:
            self.closed, thread = True, self.thread
            self.queue.put(("end", None))
        if thread is not None and thread is not threading.current_thread():
            thread.join(10)

    # --- in the thread ---------------------------------------------------------------------------

    def _work(self) -> None:
        while not self.closed:
            try:
                patience = self._patience()
                kind, value = self.queue.get(timeout=patience) if patience else self._at_once()
            except queue.Empty:
                if patience == IDLE_S and self._ended():
                    return
                self._go_on()
            else:
                self._carry_out(kind, value)
        self._tell_all()

    def _at_once(self) -> tuple[str, Any]:
        now = time.monotonic()
        under_way = self.endless and self.drawn < self.widget.view["n"]
        if not under_way or now - self.breathed < BREATH_EVERY_S:
            return self.queue.get_nowait()
        self.breathed = now
        return self.queue.get(timeout=BREATH_S)

    def _patience(self) -> float:
        """Seconds to wait for a command before `_go_on` has something to do."""
        now = time.monotonic()
        if self._may_show(now) or self._may_advance(now):
            return 0.0
        if self.stale and self.drawn >= self.widget.view["n"]:
            return max(1e-3, self.heard + FRAME_S - now)
        if self._looking(now) and (self.stale or self.job is not None):
            return max(1e-3, self.heard + LOST_S - now)
        return IDLE_S

    def _go_on(self) -> None:
        now = time.monotonic()
        if self._may_show(now):
            self._show()
        elif self._may_advance(now):
            self._advance()

    def _looking(self, now: float) -> bool:
        """A page has drawn the last frame, or may still be about to."""
        return self.drawn >= self.widget.view["n"] or now - self.heard < LOST_S

    def _may_show(self, now: float) -> bool:
        """The page has drawn the last frame; one that does not look gets only where a job ended."""
        if not self.stale:
            return False
        if not self._looking(now):
            return self.job is None
        if self.touched and self.drawn >= self.widget.view["n"] - 1:
            return True  # whoever moves a slider does not wait for the frame that is under way
        return self.drawn >= self.widget.view["n"] and now - self.heard >= FRAME_S

    def _may_advance(self, now: float) -> bool:
        if self.job is None:
            return False
        if not self.endless:
            return True
        most = self.widget._run.steps_per_frame
        return self._looking(now) and (most is None or self.steps < most)

    def _advance(self) -> None:
        """One step of the job."""
        self.stale, self.steps = True, self.steps + 1
        try:
            next(self.job)
        except StopIteration:
            self.job = None
        except Exception as fault:  # shown: in a thread it would be lost
            self._stop(f"Stopped by {type(fault).__name__}: {fault}")
        if self.widget._run.stopped:
            self._stop(self.widget._run.stopped)
        if self.job is None:
            self._tell_all()

    def _carry_out(self, kind: str, value: Any) -> None:
        if kind in ("drawn", "end"):
            return
        if kind == "tell":
            self.waiting.append(value)
            if self.job is None or self.endless:
                self._tell_all()
            return
        self.stale = self.touched = True
        if kind == "note":
            self.note = value or self.note
        elif kind == "settings":
            self._settings(value)
        else:
            self._do(value)

    def _do(self, command: str) -> None:
        run = self.widget._run
        self.note, self.heard = "", min(self.heard, time.monotonic() - FRAME_S)
        if command == "reset":
            self._renew(run.settings)
        elif command == "pause":
            self.job = None
        elif run.stopped:
            self.note = run.stopped
        elif command == "play":
            self.job, self.endless, self.heard = self._play(), True, time.monotonic()
        else:
            self.job, self.endless = self._once(command), False
            self._advance()
            return
        if self.job is None:
            self._tell_all()

    def _play(self) -> Iterator[None]:
        while True:
            self.widget._run.step()
            yield

    def _once(self, command: str) -> Iterator[None]:
        """A command of the run, which may yield between its steps."""
        yield from getattr(self.widget._run, command)() or ()

    def _settings(self, settings: Checked) -> None:
        """New values: taken by the running model where all of them are hot, else by a new run."""
        run, controls = self.widget._run, settings.controls()
        old, new = run.settings.to_json(), settings.to_json()
        self.note = ""
        if all(controls[name].hot for name in controls if old[name] != new[name]):
            run.change(settings)
        else:
            self._renew(settings)

    def _renew(self, settings: Checked) -> None:
        """A run from the start; one with a method `renewed` may keep something of the old one."""
        self.job, self.note = None, ""
        make = getattr(self.widget._run, "renewed", self.widget.run_type)
        self.widget._run = make(settings)

    def _stop(self, why: str) -> None:
        self.job, self.note = None, why

    def _tell_all(self) -> None:
        """Whoever waits may go on, once the page's numbers are those of the run."""
        waiting, self.waiting = self.waiting, []
        if waiting and self.stale and not self.closed:
            self._show()
        for event in waiting:
            event.set()

    def _show(self) -> None:
        self.stale, self.touched, self.steps, self.heard = False, False, 0, time.monotonic()
        self.widget._show(self.note, running=self.job is not None)

    def _ended(self) -> bool:
        """Leave the thread, unless a command came at the last moment."""
        if self.stale:
            self._show()
        with self.lock:
            if not self.queue.empty():
                return False
            self.thread = None
            return True
