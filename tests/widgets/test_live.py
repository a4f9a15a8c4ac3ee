"""A widget that trains: one thread, frames that are answered, and nothing left behind."""

import threading
import time

import pytest

from course.widgets.base import live
from tests.widgets.toy import Stepping


@pytest.fixture
def stepping():
    widget = Stepping()
    yield widget
    widget.close()
    assert not threads()


@pytest.fixture
def page(stepping):
    """A page that draws every frame at once; the frames' numbers, as they came."""
    return looking_at(stepping)


def looking_at(widget) -> list[int]:
    numbers: list[int] = []

    def drawn(change):
        numbers.append(change["new"]["n"])
        send(widget, {"type": "drawn", "n": change["new"]["n"]})

    widget.observe(drawn, "view")
    send(widget, {"type": "drawn", "n": widget.view["n"]})
    return numbers


def send(widget, message):
    widget._handle_custom_msg(message, [])


def threads() -> list[str]:
    return [one.name for one in threading.enumerate() if "Stepping" in one.name]


def until(condition, timeout_s: float = 10.0) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.01)


def test_a_new_widget_has_no_thread_and_step_and_epoch_do_what_they_say(stepping):
    assert not threads() and stepping.frame["steps"] == 0
    stepping.do("step")
    stepping.wait()
    assert stepping.frame["steps"] == 1 and stepping.view["says"] == "1 steps"
    stepping.do("epoch")
    stepping.wait()
    assert stepping.frame["steps"] == 21 and stepping.view["running"] is False
    stepping.do("reset")
    stepping.wait()
    assert stepping.frame["steps"] == 0


def test_play_shows_frames_until_pause_and_every_frame_was_asked_for(stepping, page):
    send(stepping, {"type": "do", "command": "play"})
    until(lambda: len(page) > 5)
    assert stepping.view["running"] is True
    send(stepping, {"type": "do", "command": "pause"})
    stepping.wait()
    assert stepping.view["running"] is False and page == sorted(set(page))
    steps = stepping.frame["steps"]
    time.sleep(0.1)
    assert stepping._run.steps == steps > 0


def test_a_page_that_stops_drawing_stops_the_training_and_the_thread_ends(monkeypatch):
    monkeypatch.setattr(live, "LOST_S", 0.1)
    monkeypatch.setattr(live, "IDLE_S", 0.2)
    widget = Stepping()
    numbers = []
    widget.observe(lambda change: numbers.append(change["new"]["n"]), "view")
    send(widget, {"type": "drawn", "n": widget.view["n"]})
    widget.do("play")
    until(lambda: numbers and not threads())
    steps = widget._run.steps
    assert len(numbers) <= 2  # one that nobody drew, and where the run stands now it rests
    send(widget, {"type": "drawn", "n": widget.view["n"]})  # the page is back
    until(lambda: widget._run.steps > steps)
    widget.close()
    assert not threads()


def test_without_any_page_play_ends_by_itself(monkeypatch):
    monkeypatch.setattr(live, "LOST_S", 0.1)
    monkeypatch.setattr(live, "IDLE_S", 0.2)
    widget = Stepping()
    widget.do("play")
    until(lambda: not threads())
    assert widget.frame["steps"] == widget._run.steps > 0
    widget.close()


def test_a_hot_setting_reaches_the_running_model_and_another_starts_a_new_run(stepping, page):
    stepping.do("play")
    until(lambda: stepping.frame["steps"] > 5)
    before = stepping._run
    send(stepping, {"type": "set", "changes": {"by": 10}})
    until(lambda: stepping._run.settings.by == 10)
    assert stepping._run is before and stepping.view["running"]
    send(stepping, {"type": "set", "changes": {"size": 3}})
    until(lambda: stepping.frame["points"] == [3, 3, 3])
    assert stepping._run is not before and stepping.frame["steps"] == 0
    assert stepping.view["running"] is False and stepping.state.size == 3


def test_a_touch_is_answered_beside_the_frame_under_way_and_another_waits_for_the_page(stepping):
    send(stepping, {"type": "drawn", "n": stepping.view["n"]})
    send(stepping, {"type": "do", "command": "play"})
    until(lambda: stepping.view["running"])
    under_way = stepping.view["n"]
    send(stepping, {"type": "set", "changes": {"by": 10}})
    until(lambda: stepping.view["settings"]["by"] == 10)
    assert stepping.view["n"] == under_way + 1 and stepping.worker.drawn < under_way
    send(stepping, {"type": "set", "changes": {"by": 1}})
    until(lambda: stepping._run.settings.by == 1)
    time.sleep(0.1)
    assert stepping.view["n"] == under_way + 1
    send(stepping, {"type": "drawn", "n": under_way})
    until(lambda: stepping.view["settings"]["by"] == 1)


def test_nan_stops_it_and_says_why_until_reset(stepping, page):
    stepping.by = 10
    stepping.do("play")
    until(lambda: stepping.view["note"])
    assert "nan" in stepping.view["note"] and stepping.view["running"] is False
    assert stepping.frame["steps"] == 10_000 and stepping.frame["loss"] == "NaN"
    stepping.do("step")
    stepping.wait()
    assert "nan" in stepping.view["note"] and stepping.frame["steps"] == 10_000
    stepping.do("reset")
    stepping.wait()
    assert stepping.view["note"] == "" and stepping.frame["steps"] == 0


def test_an_error_of_the_run_is_shown(stepping, page):
    stepping.faulty = True
    stepping.do("step")
    stepping.wait()
    assert stepping.view["note"] == "Stopped by RuntimeError: as asked"


@pytest.mark.parametrize(
    "message",
    [
        {"type": "do", "command": "close"},
        {"type": "do"},
        {"type": "do", "command": ["play"]},
        {"type": "drawn", "n": "1"},
        {"type": "drawn"},
        {"type": "set", "changes": {"size": 9}},
        {"type": "set"},
        7,
    ],
)
def test_messages_that_make_no_sense_are_answered_and_change_nothing(stepping, page, message):
    send(stepping, message)
    until(lambda: stepping.view["note"])
    assert stepping.frame["steps"] == 0 and stepping.state.size == 1


def test_a_number_of_a_frame_that_was_never_sent_does_not_open_the_gate(stepping):
    send(stepping, {"type": "drawn", "n": 10**9})
    assert stepping.worker.drawn == stepping.view["n"]


def test_closing_while_it_trains_ends_the_thread_and_ten_copies_leave_none():
    several = [Stepping() for _ in range(10)]
    for widget in several:
        looking_at(widget)
        widget.do("play")
    assert len(threads()) == 10
    for widget in several:
        widget.close()
    assert not threads()
    several[0].worker.put("do", "play")  # too late: nothing starts
    assert not threads()


def test_a_view_that_is_gone_pauses(stepping, page):
    stepping.do("play")
    until(lambda: stepping.view["running"])
    send(stepping, {"type": "gone"})
    until(lambda: not stepping.view["running"])


def test_commands_from_several_threads_all_arrive(stepping):
    several = [
        threading.Thread(target=lambda: [stepping.do("step") for _ in range(25)]) for _ in range(4)
    ]
    for one in several:
        one.start()
    for one in several:
        one.join()
    stepping.wait()
    assert stepping.frame["steps"] == 100
