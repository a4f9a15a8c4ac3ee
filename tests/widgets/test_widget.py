"""A widget without a browser: state, traits, messages good and bad, the picture it leaves."""

import math

import pytest

from course.widgets.base.widget import PICTURE_ONLY
from tests.widgets.toy import Halving, Settings


def send(widget, message):
    """As the page would."""
    widget._handle_custom_msg(message, [])


def test_a_setting_is_a_trait_and_the_frame_follows_it():
    widget = Halving(start=4)
    assert widget.frame == {"values": [4, 2, 1], "both": False}
    widget.start = 16
    assert widget.state == Settings(start=16) and widget.frame["values"] == [16, 8, 4]
    seen = []
    widget.observe(lambda change: seen.append(change["new"]), "start")
    widget.state = Settings(start=2, by=4.0)
    assert seen == [2] and widget.by == 4.0 and widget.frame["values"] == [2, 0.5, 0.125]


def test_what_the_settings_refuse_changes_nothing():
    widget = Halving()
    before = widget.view
    for attempt in (
        lambda: setattr(widget, "start", 5),
        lambda: widget.set(start=5),
        lambda: widget.set(both=True, start=2),
        lambda: widget.set(nothing=1),
    ):
        with pytest.raises(ValueError):
            attempt()
    assert widget.view == before and widget.start == 8 and widget.state == Settings()
    with pytest.raises(ValueError, match="the nearest is 4"):
        Halving(start=5)


def test_a_message_of_the_page_is_answered_once():
    widget = Halving()
    number = widget.view["n"]
    send(widget, {"type": "set", "changes": {"start": 16}})
    assert widget.view["n"] == number + 1 and widget.start == 16
    send(widget, {"type": "set", "changes": {"start": 16}})  # nothing new: the page still waits
    assert widget.view["n"] == number + 2


@pytest.mark.parametrize(
    "message",
    [
        {"type": "set", "changes": {"start": 5}},
        {"type": "set", "changes": {"start": [8]}},
        {"type": "set", "changes": {"start": None}},
        {"type": "set", "changes": {"volume": 11}},
        {"type": "set", "changes": {"start": 2, "both": True}},
        {"type": "set", "changes": [1]},
        {"type": "set"},
        {"type": "drawn"},
        {"type": "explode"},
        {},
        None,
        "set",
        [1, 2],
    ],
)
def test_a_message_that_makes_no_sense_gets_a_sentence_and_changes_nothing(message):
    widget = Halving()
    send(widget, message)
    assert widget.state == Settings() and len(widget.view["note"]) > 20
    send(widget, {"type": "set", "changes": {"start": 4}})
    assert widget.view["note"] == "" and widget.start == 4


def test_infinity_goes_through_json_and_back():
    widget = Halving(by=math.inf)
    assert widget.frame["values"] == [8, 0, 0]
    assert widget.view["settings"]["by"] == "Infinity"
    assert widget.about["controls"][1]["values"] == [2.0, 4.0, "Infinity"]
    send(widget, {"type": "set", "changes": {"by": "Infinity"}})
    assert widget.view["note"] == "" and widget.by == math.inf


def test_its_output_has_a_picture_and_words_for_readers_without_a_kernel(monkeypatch):
    for name in PICTURE_ONLY:
        monkeypatch.delenv(name, raising=False)
    widget = Halving()
    data, _ = widget._repr_mimebundle_()
    assert data["text/plain"] == "Halving: starts at 8"
    assert data["image/png"].startswith("iVBOR")  # PNG in base64
    assert data["application/vnd.jupyter.widget-view+json"]["model_id"] == widget.model_id
    monkeypatch.setenv("NBGRADER_EXECUTION", "autograde")
    data, _ = widget._repr_mimebundle_()
    assert set(data) == {"text/plain", "image/png"}


def test_pyplot_is_not_needed_for_the_picture():
    import subprocess
    import sys

    code = (
        "import sys; from tests.widgets.toy import Halving; Halving().picture();"
        "assert 'matplotlib.pyplot' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)
