"""What a kill during a save would leave is seen, whoever writes the file."""

import io
from concurrent.futures import ThreadPoolExecutor
from threading import Thread

import pytest
import torch

from course.analysis.instants import instants


def in_memory(state):
    buffer = io.BytesIO()
    torch.save(state, buffer)
    return buffer.getvalue()


@pytest.fixture
def pool():
    with ThreadPoolExecutor(1) as started:
        started.submit(int).result()
        yield started


def test_what_a_thread_writes_into_the_file_is_seen(tmp_path):
    def save(state, path):
        thread = Thread(target=lambda: path.write_bytes(in_memory(state)))
        thread.start()
        thread.join()

    torch.save({"epoch": 1}, tmp_path / "last.pt")
    assert instants(save, {"epoch": 2}, tmp_path / "last.pt") == ["old", "cut off", "new"]
    assert instants(save, {"epoch": 2}, tmp_path / "new.pt") == ["missing", "cut off", "new"]


def test_what_a_thread_of_before_writes_over_the_old_bytes_is_known_afterwards(tmp_path, pool):
    def save(state, path):
        pool.submit(path.write_bytes, in_memory(state)).result()

    torch.save({"epoch": 1}, tmp_path / "last.pt")
    assert instants(save, {"epoch": 2}, tmp_path / "last.pt") == ["old", "cut off", "new"]


def test_a_thread_that_renames_a_whole_file_leaves_the_old_or_the_new_one(tmp_path, pool):
    def save(state, path):
        torch.save(state, path.with_suffix(".partial"))
        pool.submit(path.with_suffix(".partial").replace, path).result()

    torch.save({"epoch": 1}, tmp_path / "last.pt")
    assert instants(save, {"epoch": 2}, tmp_path / "last.pt") == ["old", "new"]
