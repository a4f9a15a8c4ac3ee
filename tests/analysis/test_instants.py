"""What a file holds while it is saved, seen from inside and after a real kill."""

import io
import os
import shutil
import sys

import pytest
import torch

from course.analysis.instants import instants, killed_while_saving
from course.engine import checkpoint


def direct(state, path):
    torch.save(state, path)


def remove_first(state, path):
    torch.save(state, f"{path}.partial")
    if path.exists():
        path.unlink()
    os.rename(f"{path}.partial", path)


def copied(state, path):
    torch.save(state, f"{path}.partial")
    shutil.copyfile(f"{path}.partial", path)


def in_one_line(state, path):
    buffer = io.BytesIO()
    torch.save(state, buffer)
    open(path, "wb").write(buffer.getvalue())  # noqa: SIM115


@pytest.mark.parametrize(
    ("save", "found"),
    [
        (direct, ["old", "cut off", "new"]),
        (remove_first, ["old", "missing", "new"]),
        (copied, ["old", "cut off", "new"]),
        (in_one_line, ["old", "cut off", "new"]),
        (checkpoint.write_whole, ["old", "new"]),
    ],
)
def test_every_instant_of_a_save_is_looked_at(tmp_path, save, found):
    path, trace = tmp_path / "last.pt", sys.gettrace()
    first = instants(save, {"epoch": torch.tensor(1)}, path)
    assert first == ["missing", *[what for what in found if what not in ("old", "missing")]]
    assert instants(save, {"epoch": torch.tensor(2)}, path) == found
    assert torch.load(path, weights_only=True)["epoch"] == 2 and sys.gettrace() is trace


def test_after_a_kill_only_the_renamed_file_is_whole(tmp_path):
    for how in ("direct", "renamed"):
        (tmp_path / how).mkdir()
    assert "error" in killed_while_saving("direct", tmp_path / "direct" / "last.pt")
    left = killed_while_saving("renamed", tmp_path / "renamed" / "last.pt")
    assert left == {"files": ["last.pt", "last.pt.partial"], "epoch": 1}
