"""The student's file: shared by kernels, on bad disks, broken, newer, and never seen by grading."""

import errno
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from autograde import bank, check
from autograde.kit import record
from autograde.kit.record import Record


def test_events_come_back_in_order_from_another_kernels_record(kept):
    kept.add("guess", id="03a.first-loss", value=2.0)
    kept.add("hint", id="03a.clip", number=1)
    again = Record(kept.path)
    assert [event["do"] for event in again.events()] == ["guess", "hint"]
    assert again.events("guess")[0]["value"] == 2.0 and again.trouble == ""


def test_two_kernels_writing_at_once_lose_nothing(tmp_path):
    path = tmp_path / record.FILE
    script = (
        "import sys; from pathlib import Path; from autograde.kit.record import Record\n"
        "kept = Record(Path(sys.argv[1]))\n"
        "for number in range(400): kept.add('hint', id=sys.argv[2], number=number)"
    )
    writers = [
        subprocess.Popen([sys.executable, "-c", script, str(path), name]) for name in ("a", "b")
    ]
    assert [writer.wait(60) for writer in writers] == [0, 0]
    found = Record(path)
    events = found.events()
    for name in ("a", "b"):
        assert [e["number"] for e in events if e["id"] == name] == list(range(400))
    assert found.trouble == ""


def test_a_full_disk_costs_nothing_but_the_file(kept, monkeypatch):
    kept.add("hint", id="03a.clip", number=1)

    def half(file, data, write=os.write):
        return write(file, data[: len(data) // 2])

    with monkeypatch.context() as full:
        full.setattr(os, "write", half)
        kept.add("hint", id="03a.clip", number=2)
    assert os.strerror(errno.ENOSPC) in kept.trouble and "until the kernel stops" in kept.trouble
    kept.add("hint", id="03a.clip", number=3)  # there is room again
    assert sorted(event["number"] for event in kept.events()) == [1, 2, 3]
    assert [event["number"] for event in Record(kept.path).events()] == [1, 3]


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full here")
def test_a_disk_that_is_really_full_is_survived():
    kept = Record(Path("/dev/full"))
    kept.add("hint", id="03a.clip", number=1)
    assert [event["number"] for event in kept.unwritten] == [1]
    assert os.strerror(errno.ENOSPC) in kept.trouble


def test_a_folder_that_cannot_be_written_keeps_events_in_the_kernel(tmp_path):
    (tmp_path / record.FILE).mkdir()  # root may write anything but a directory
    kept = Record(tmp_path / record.FILE)
    kept.add("hint", id="03a.clip", number=1)
    assert "cannot be written" in kept.trouble
    assert [event["number"] for event in kept.events("hint")] == [1]
    assert "cannot be read" in kept.trouble


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root writes anywhere")
def test_a_read_only_folder_is_survived(tmp_path):
    tmp_path.chmod(0o500)
    kept = Record(tmp_path / record.FILE)
    kept.add("hint", id="03a.clip", number=1)
    tmp_path.chmod(0o700)
    assert "cannot be written" in kept.trouble and len(kept.events()) == 1


def test_what_cannot_be_read_is_passed_over_and_kept(kept):
    kept.add("hint", id="03a.clip", number=1)
    broken = [
        b"\xff\xfe\x00", b'{"v": 1, "do": "gue', b"[1, 2]", b'{"v": 1}', b'{"v": 1, "do": "guess"}',
        b'{"v": 1, "do": ["guess"], "id": "x", "value": 1}', b"[" * 5000, b"\x00" * 100,
    ]  # fmt: skip
    with kept.path.open("ab") as file:
        file.write(b"\n".join(broken))
    kept.add("hint", id="03a.clip", number=2)
    assert [event["number"] for event in kept.events()] == [1, 2]
    assert "cannot be read; the others count" in kept.trouble
    assert all(line in kept.path.read_bytes() for line in broken)


def test_a_file_of_a_newer_version_is_named_kept_and_added_to(kept):
    newer = json.dumps({"v": 2, "do": "guess", "id": "03a.first-loss", "value": {"low": 2}})
    kept.path.write_text(f"{newer}\n")
    kept.add("hint", id="03a.clip", number=1)
    assert [event["do"] for event in kept.events()] == ["hint"]
    assert "another version of the course (version 2; this one reads 1)" in kept.trouble
    assert kept.path.read_text().startswith(newer)


def test_grading_neither_reads_nor_writes_it(kept, monkeypatch):
    kept.add("student", name="ada")
    before = kept.path.read_bytes()
    monkeypatch.setenv("NBGRADER_EXECUTION", "autograde")
    assert record.here().events() == []
    assert check("03a.clip", bank.load("03a.clip").right[0]).points == 3
    record.here().add("hint", id="03a.clip", number=1)
    assert kept.path.read_bytes() == before


def test_a_script_or_a_test_writes_nothing(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(record, "_here", None)
    record.here().add("hint", id="03a.clip", number=1)
    assert list(tmp_path.iterdir()) == [] and len(record.here().events()) == 1
