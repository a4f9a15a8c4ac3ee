"""What another process says arrives as it was said; what is written after a kill does not."""

import os
import threading
from pathlib import Path

import numpy as np
import torch

from autograde.apart import forking, in_a_process, killed


def processes_of_its_own(folder: Path):
    return forking(True, -1, (str(folder),), lambda call, args: call(*args), lambda: None)


def test_what_another_process_says_arrives_as_it_was(tmp_path):
    table = {1: {"a": torch.ones(2)}, "b": [None, (2.5, "c")]}
    said = (os.getpid(), b"bytes", table, np.float64(3))
    with processes_of_its_own(tmp_path):
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


def test_another_process_may_make_the_folder_that_it_hands_on(tmp_path):
    """05.run's is made by the trainer; where Landlock is, a rule wants a folder that is there."""
    made = tmp_path / "run"

    def trains():
        made.mkdir()
        (made / "last.pt").write_text("weights")

    with processes_of_its_own(tmp_path):
        in_a_process(trains, made)
    assert (made / "last.pt").read_text() == "weights"


def test_a_thread_that_waits_its_turn_does_not_keep_the_other_process_waiting(tmp_path):
    """In the fork there is no such thread, for which the child's first line would wait for ever."""
    over = threading.Event()
    busy = threading.Thread(target=lambda: all(iter(lambda: not over.is_set(), False)))
    busy.start()
    try:
        with processes_of_its_own(tmp_path):
            assert [in_a_process(lambda n=number: n) for number in range(10)] == list(range(10))
    finally:
        over.set()
        busy.join()


def test_a_fork_calls_nothing_here_that_is_registered_and_it_is_registered_still(tmp_path):
    called: list[str] = []
    os.register_at_fork(
        before=lambda: called.append("before"), after_in_parent=lambda: called.append("after"),
        after_in_child=lambda: called.append("there"),
    )  # fmt: skip
    with processes_of_its_own(tmp_path):
        assert in_a_process(lambda: called) == ["there"] and called == []
    if not (child := os.fork()):
        os._exit(0)
    os.waitpid(child, 0)
    assert called == ["before", "after"]


def test_a_place_that_is_not_ours_can_be_written_to_and_is_left_as_it_is(tmp_path):
    """As /tmp, where submissions are trusted: the instructor's own files lie there."""
    own, others = tmp_path / "own", tmp_path / "others"
    own.mkdir(), others.mkdir()
    os.mkfifo(others / "pipe")
    called = forking(
        True, -1, (str(own),), lambda call, args: call(*args), lambda: None, (str(others),)
    )
    with called:
        in_a_process(lambda: (others / "written").write_text("there") and None)
        in_a_process(lambda: (own / "written").write_text("there") and None)
    assert sorted(path.name for path in others.iterdir()) == ["pipe", "written"]
    assert not list(own.iterdir())
