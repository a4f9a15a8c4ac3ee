"""The journal: what a run that was killed anywhere may rely on."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autograde.classroom.journal import Journal, JournalBusyError, read_known, read_lines


def graded(student: str, submission: str = "s1", *, seed: int = 7, **more) -> dict:
    record = {"event": "graded", "graded": True, "version": "v1", "seed": seed}
    return {**record, "student": student, "submission": submission, **more}


def written(student: str, submission: str = "s1") -> dict:
    return {"event": "written", "student": student, "submission": submission, "version": "v1"}


def write(path, *records: dict) -> None:
    with Journal(path) as journal:
        for record in records:
            journal.append(record)


def test_what_was_appended_is_read(tmp_path):
    records = [graded("ada"), written("ada"), graded("bénédicte")]
    write(tmp_path / "j", *records)
    assert list(read_lines(tmp_path / "j")) == records


def test_no_journal_is_an_empty_one(tmp_path):
    assert list(read_lines(tmp_path / "none")) == [] and read_known(tmp_path / "none") == {}


@given(cut=st.integers(min_value=0))
def test_a_journal_cut_anywhere_keeps_every_whole_line_and_goes_on(tmp_path_factory, cut):
    path = tmp_path_factory.mktemp("cut") / "j"
    records = [graded("ada"), written("ada"), graded("ben", reason="é" * 5), written("ben")]
    write(path, *records)
    whole = path.read_bytes()
    cut %= len(whole) + 1
    path.write_bytes(whole[:cut])
    num_whole = whole[:cut].count(b"\n")
    write(path, written("zoe"))
    read = list(read_lines(path))
    lost_its_newline_only = cut < len(whole) and whole[cut : cut + 1] == b"\n"
    assert read == [*records[: num_whole + lost_its_newline_only], written("zoe")]


@pytest.mark.parametrize("garbage", [b"\0" * 40, b"\xff\xfe{", b"[1, 2]", b'{"event": "x"}', b"{}"])
def test_a_line_of_garbage_hides_no_other(tmp_path, garbage):
    path = tmp_path / "j"
    write(path, graded("ada"))
    with path.open("ab") as journal:
        journal.write(garbage + b"\n")
    write(path, graded("ben"))
    assert set(read_known(path)) == {"ada", "ben"}


@given(
    records=st.lists(
        st.builds(
            lambda make, student, submission: make(student, submission),
            st.sampled_from([graded, written]),
            st.sampled_from(["ada", "ben"]),
            st.sampled_from(["s1", "s2"]),
        ),
        max_size=8,
    ),
    times=st.integers(min_value=2, max_value=3),
)
def test_lines_said_twice_say_nothing_new(tmp_path_factory, records, times):
    folder = tmp_path_factory.mktemp("twice")
    write(folder / "once", *records)
    write(folder / "often", *(record for record in records for _ in range(times)))
    assert read_known(folder / "once") == read_known(folder / "often")


def test_written_holds_only_for_the_submission_that_was_graded_last(tmp_path):
    path = tmp_path / "j"
    write(path, graded("ada", "s1"), written("ada", "s1"))
    assert read_known(path)["ada"].written
    write(path, graded("ada", "s2"))
    assert not read_known(path)["ada"].written
    write(path, written("ada", "s1"))
    assert not read_known(path)["ada"].written
    write(path, written("ada", "s2"))
    assert read_known(path)["ada"].written


def test_seeds_of_earlier_submissions_are_kept(tmp_path):
    write(tmp_path / "j", graded("ada", "s1", seed=11), graded("ada", "s2", seed=22))
    known = read_known(tmp_path / "j")["ada"]
    assert known.seeds == {"s1": 11, "s2": 22} and known.attempts == 2


def test_a_second_run_is_told_to_wait(tmp_path):
    with (
        Journal(tmp_path / "j"),
        pytest.raises(JournalBusyError, match="in use by another autograde grade"),
    ):
        Journal(tmp_path / "j")
    Journal(tmp_path / "j").close()


def test_a_disk_that_takes_half_a_line_at_a_time_gets_the_whole(tmp_path, monkeypatch):
    import os

    whole = os.write
    with Journal(tmp_path / "j") as journal:
        monkeypatch.setattr(os, "write", lambda fd, data: whole(fd, data[:5]))
        journal.append(graded("ada"))
        monkeypatch.undo()
    assert json.loads((tmp_path / "j").read_text()) == graded("ada")
