"""Files in writable places are afterwards as they were; what is handed on stays."""

import fcntl
import os
import tempfile

import pytest

from autograde.sandbox.left_behind import SMALL, nothing_left, opened_again


def test_files_are_as_they_were_and_what_is_new_is_gone(tmp_path):
    place, kept = tmp_path / "place", tmp_path / "place" / "handed-on"
    (place / "folder").mkdir(parents=True)
    kept.mkdir()
    texts = {"changed": "before", "removed": "there", "grown": "a line", "untouched": "x"}
    for name, text in texts.items():
        (place / name).write_text(text)
        os.utime(place / name, ns=(10**18, 10**18))
    (place / "link").symlink_to("changed")
    (place / "large").write_bytes(bytes(SMALL + 1))
    with nothing_left([str(place)], kept):
        (place / "changed").write_text("after!")
        (place / "removed").unlink()
        with (place / "grown").open("a") as file:
            file.write("another")
        os.utime(place / "untouched", ns=(1, 2))
        (place / "link").unlink()
        (place / "link").symlink_to("elsewhere")
        (place / "large").write_bytes(b"1" + bytes(SMALL))
        (place / "folder" / "new" / "deep").mkdir(parents=True)
        (place / "folder" / "new" / "deep" / "file").write_text("x")
        (kept / "checkpoint").write_text("stays")
    assert {name: (place / name).read_text() for name in texts} == texts
    assert {(place / name).stat().st_mtime_ns for name in texts} == {10**18}
    assert os.readlink(place / "link") == "changed"
    assert not (place / "large").exists(), "too long to be kept in memory, and changed"
    assert list((place / "folder").iterdir()) == []
    assert (kept / "checkpoint").read_text() == "stays"


def test_open_files_are_as_they_were_with_and_without_a_name(tmp_path):
    (tmp_path / "log").write_text("a line")
    with tempfile.TemporaryFile() as box, (tmp_path / "log").open("r+b", 0) as log:
        box.write(b"before")
        box.flush()
        log.seek(2)
        folder = os.open(tmp_path, os.O_RDONLY)
        os.lseek(folder, 7, os.SEEK_SET)
        with opened_again(str(tmp_path)), nothing_left([str(tmp_path)], None):
            box.write(b" and after")
            box.seek(3)
            os.utime(box.fileno(), (1, 1))
            os.lseek(folder, 77, os.SEEK_SET)
            (tmp_path / "log").write_text("by its name")
            log.seek(5)
            fcntl.fcntl(log, fcntl.F_SETFL, os.O_NONBLOCK | os.O_APPEND)
        assert (box.tell(), os.pread(box.fileno(), 99, 0)) == (6, b"before")
        assert os.fstat(box.fileno()).st_mtime > 1 and os.lseek(folder, 0, os.SEEK_CUR) == 7
        assert log.tell() == 2 and not fcntl.fcntl(log, fcntl.F_GETFL) & os.O_NONBLOCK
        assert b"by its name" not in os.pread(log.fileno(), 99, 0)
    assert (tmp_path / "log").read_text() == "a line"


def notes(path):
    return {name: os.getxattr(path, name) for name in os.listxattr(path)}


def test_all_about_a_folder_is_as_it_was_and_says_not_whether_it_was_changed(tmp_path):
    changed, other = tmp_path / "changed", tmp_path / "other"
    for folder in (changed, other):
        folder.mkdir()
        os.utime(folder, ns=(10**18, 10**18))
    try:
        os.setxattr(changed, "user.x", b"before")
    except OSError:
        pytest.skip("this file system keeps no attributes")
    os.mkfifo(tmp_path / "fifo")
    before, noted = (changed.stat().st_mode, other.stat().st_ctime_ns), notes(changed)
    with nothing_left([str(tmp_path)], None):
        assert not (tmp_path / "fifo").exists(), "who has it open would read what is written"
        os.setxattr(changed, "user.x", b"after")
        os.setxattr(changed, "user.y", b"new")
        changed.chmod(0o700)
        os.utime(changed, ns=(1, 2))
    assert notes(changed) == noted
    assert (changed.stat().st_mtime_ns, changed.stat().st_mode) == (10**18, before[0])
    assert other.stat().st_ctime_ns > before[1], "both are made anew"


def test_what_lies_deeper_than_a_path_can_say_is_gone(tmp_path):
    here = os.getcwd()
    os.chdir(tmp_path)
    for _ in range(30):
        os.mkdir("d" * 200)
        os.chdir("d" * 200)
    os.chdir(here)
    with nothing_left([str(tmp_path)], None):
        depth, path = 0, tmp_path
        while (path := path / ("d" * 200)).exists():
            depth += 1
    assert depth < 10
