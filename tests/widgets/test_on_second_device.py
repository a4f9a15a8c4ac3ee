"""Widgets in a notebook that has set another default device: the same numbers, also of a run."""

import pytest
import torch

import course.widgets as widgets
from course.widgets.base.live import LiveWidget
from tests.sampling import THOROUGH
from tests.second_device import second_device

IDS = list(widgets.catalogue()) if THOROUGH else ["anatomy", "modes", "simulator"]
"""The three make tensors for every frame; of others a part is kept, maybe since an earlier test."""


def shown(id: str) -> list[dict]:
    """The first frame, and the one after three updates of a run."""
    widget = widgets.find(id)()
    try:
        frames = [widget.frame]
        if isinstance(widget, LiveWidget):
            for _ in range(3):
                widget.do("step")
            widget.wait()
            assert not widget.view["note"]
            frames.append(widget.frame)
        return frames
    finally:
        widget.close()


@pytest.mark.parametrize("id", IDS)
def test_a_widget_shows_the_same_whatever_the_default_device_is(id):
    with second_device() as second, torch.device(second):
        there = shown(id)
        assert torch.ones(2).device == second  # the notebook's choice is still there
    assert there == shown(id)
