"""Files of a class directory: a full disk, a power cut, a lock."""

import errno
import os

import pytest

from autograde.classroom import files
from autograde.classroom.files import lock, write_whole
from autograde.classroom.journal import Journal
from autograde.classroom.reasons import read_verdicts
from autograde.classroom.verdicts import verdict_path


def full(*_args: object) -> int:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_a_write_to_a_full_disk_names_the_file_and_leaves_the_old_one(tmp_path, monkeypatch):
    path = tmp_path / "ada.json"
    write_whole(path, "old")
    monkeypatch.setattr(files.os, "fsync", full)
    with pytest.raises(OSError, match="No space left") as fault:
        write_whole(path, "new")
    assert fault.value.filename == str(path)
    assert [(p.name, p.read_text()) for p in tmp_path.iterdir()] == [("ada.json", "old")]


def test_a_file_is_on_the_disk_before_its_name_is(tmp_path, monkeypatch):
    path, steps = tmp_path / "ada.json", []
    whole = os.fsync

    def fsync(descriptor: int) -> None:
        steps.append((os.fstat(descriptor).st_size, path.exists()))
        whole(descriptor)

    monkeypatch.setattr(files.os, "fsync", fsync)
    write_whole(path, "four")
    assert steps == [(4, False)]


def test_a_journal_on_a_full_disk_is_named(tmp_path, monkeypatch):
    with Journal(tmp_path / "j") as journal:
        monkeypatch.setattr(os, "write", full)
        with pytest.raises(OSError, match="No space left") as fault:
            journal.append({"event": "graded", "student": "ada", "submission": "s"})
        monkeypatch.undo()
    assert fault.value.filename == str(tmp_path / "j")


def test_a_file_system_without_locks_is_named(tmp_path, monkeypatch):
    def refuse(*_args: object) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(files.fcntl, "flock", refuse)
    with pytest.raises(OSError, match="No locks") as fault:
        Journal(tmp_path / "j")
    assert fault.value.filename == str(tmp_path / "j")


def test_a_lock_is_free_again_when_its_descriptor_is_closed(tmp_path):
    held = lock(tmp_path / "folder" / "l", wait=False)
    with pytest.raises(BlockingIOError):
        lock(tmp_path / "folder" / "l", wait=False)
    os.close(held)
    os.close(lock(tmp_path / "folder" / "l", wait=False))


@pytest.mark.parametrize("torn", ["", "{", "[]", "null"])
def test_a_verdict_cut_off_by_a_power_cut_is_named_with_what_to_do(tmp_path, torn):
    (tmp_path / "submitted" / "ada" / "a").mkdir(parents=True)
    path = verdict_path(tmp_path, "a", "ada")
    write_whole(path, torn)
    with pytest.raises(ValueError, match=r"holds no verdict.*Remove it, then run autograde grade"):
        read_verdicts(tmp_path, "a")


def test_writers_of_two_assignments_take_turns_by_the_write(tmp_path):
    from autograde.classroom.gradebook import write

    result = {"graded": False, "reason": "is empty.", "notes": [], "seconds": 0.0}
    job = {"folder": str(tmp_path), "student": "ada", "assignment": {"name": "a"}, "path": "p"}
    assert write({**job, "result": result}) == {"reason": "is empty."}
    os.close(lock(tmp_path / "journal" / ".writing", wait=False))  # of another run's writer


def test_a_link_is_followed_and_stays_a_link(tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "link.csv").symlink_to(tmp_path / "real" / "a.csv")
    write_whole(tmp_path / "link.csv", "text")
    assert (tmp_path / "link.csv").is_symlink()
    assert [path.name for path in (tmp_path / "real").iterdir()] == ["a.csv"]


def test_what_is_no_file_is_written_to_and_not_replaced(tmp_path):
    """As `autograde export --output /dev/stdout`: root would otherwise put a file in its place."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    write_whole(pipe, "text")
    assert os.read(reader, 100) == b"text" and pipe.is_fifo()
    os.close(reader)
