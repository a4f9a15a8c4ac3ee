"""Lines read one at a time are those of the whole file, in any order and in any process."""

from __future__ import annotations

import copy
import os
import pickle

import pytest
import torch
from torch.utils.data import DataLoader

from course.data.lines import LineFile

LINES = ["0\tgrün", "", "1\t⌈N / B⌉ = 313", "2\tplain", "3\t" + "x" * 10_000, "4\tno newline"]


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "lines.txt"
    path.write_text("\n".join(LINES), "utf-8", newline="")
    return path


def test_lines_are_those_of_the_whole_file_in_any_order(path):
    lines = LineFile(path)
    assert len(lines) == len(LINES)
    for order in (range(6), (5, 0, 3, 3, 1, 4, 2)):
        assert [lines[i] for i in order] == [LINES[i] for i in order]


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_a_last_newline_makes_no_line_and_windows_ends_are_cut(path, end):
    path.write_text(end.join(LINES) + end, "utf-8", newline="")
    lines = LineFile(path)
    assert [lines[i] for i in range(len(lines))] == path.read_text("utf-8").splitlines() == LINES


def test_a_line_is_read_when_it_is_asked_for(path):
    lines = LineFile(path)
    raw = path.read_bytes()
    path.write_bytes(raw.replace(b"plain", b"later"))
    assert lines[3] == "2\tlater"
    assert lines.index_bytes == 8 * (len(LINES) + 1) < len(raw) / 10


def test_it_goes_to_workers_and_keeps_no_file_open(path):
    open_before = len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else 0
    lines = LineFile(path, parse=len)
    again = pickle.loads(pickle.dumps(lines)), copy.deepcopy(lines)
    for other in (lines, *again):
        assert [other[i] for i in range(6)] == [len(line) for line in LINES]
    if open_before:
        assert len(os.listdir("/proc/self/fd")) == open_before
    batches = list(DataLoader(lines, 2, num_workers=2))
    assert torch.cat(batches).tolist() == [len(line) for line in LINES]


def test_places_that_are_not_there_and_empty_files_are_named(path):
    lines = LineFile(path)
    for place in (-1, 6):
        with pytest.raises(IndexError, match=f"line {place} of 6"):
            lines[place]
    path.write_bytes(b"")
    with pytest.raises(ValueError, match="has no line"):
        LineFile(path)
