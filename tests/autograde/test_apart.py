"""What another process says arrives as it was said; what is written after a kill does not."""

import os

import numpy as np
import torch

from autograde.apart import forking, in_a_process, killed


def test_what_another_process_says_arrives_as_it_was(tmp_path):
    table = {1: {"a": torch.ones(2)}, "b": [None, (2.5, "c")]}
    said = (os.getpid(), b"bytes", table, np.float64(3))
    with forking(True, -1, (str(tmp_path),), lambda call, args: call(*args), lambda: None):
        pid, *rest = in_a_process(lambda: (os.getpid(), *said[1:]))
    assert pid != said[0]
    assert torch.equal(rest[1][1].pop("a"), torch.ones(2))
    assert rest == [b"bytes", {1: {}, "b": [None, (2.5, "c")]}, 3.0]


def test_what_is_written_after_a_kill_is_not_handed_on(tmp_path):
    def goes_on():
        (tmp_path / "before").write_text("there")
        killed()
        (tmp_path / "before").write_text("changed")
        (tmp_path / "after").write_text("saved after all")

    in_a_process(goes_on, tmp_path)
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("before", "there")]
