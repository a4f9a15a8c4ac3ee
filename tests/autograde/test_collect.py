"""Archives of Canvas, Moodle and the exchange: taken, matched, and never trusted."""

import errno
import io
import os
import shutil
import stat
import struct
import sys
import zipfile
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
from nbgrader.api import Gradebook

from autograde import cli
from autograde.classroom.collect import collecting, entries
from autograde.classroom.collect.collecting import attempt, choose, collect
from autograde.classroom.collect.entries import Entry, RefusedError, safe_parts
from autograde.classroom.collect.naming import sort_by_student
from autograde.classroom.collect.people import Listed, Person, Roster, key, read_list, read_time
from tests.autograde.paper_class import ASSIGNMENT, Paper, make

NB = f"{ASSIGNMENT}.ipynb"
CLASS = {
    "ada": {"first_name": "Ada", "last_name": "Lovelace", "lms_user_id": "4711"},
    "ben": {"first_name": "Ben", "last_name": "O'Neill-Smith", "email": "ben@school.org"},
    "jose": {"first_name": "José", "last_name": "Núñez García"},
    "li1": {"first_name": "Wei", "last_name": "Li"},
    "li2": {"first_name": "Wei", "last_name": "Li"},
}


@pytest.fixture(scope="module")
def class_of_five(tmp_path_factory):
    made = make(tmp_path_factory.mktemp("collect") / "class", {})
    with Gradebook(f"sqlite:///{made}/gradebook.db") as gradebook:
        for id, names in CLASS.items():
            gradebook.add_student(id, **names)
    return made


@pytest.fixture
def folder(class_of_five, tmp_path):
    """A class of five, of whom nobody has handed in anything."""
    return Path(shutil.copytree(class_of_five, tmp_path / "class"))


def packed(path, files, *, utf8=True):
    """A zip of names and bytes; a ZipInfo may stand for a name."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in files.items():
            archive.writestr(name, data)
    if not utf8:  # as Canvas: UTF-8, and no flag that says so
        raw = path.read_bytes()
        path.write_bytes(raw.replace(b"\x00\x08\x08\x00", b"\x00\x00\x08\x00"))
    return path


def taken(folder, source, **options):
    return {one.handed: one for one in collect(folder, ASSIGNMENT, source, **options)}


def lies(folder, student, name=NB):
    return (folder / "submitted" / student / ASSIGNMENT / name).read_text()


def test_canvas_knows_by_number_then_by_a_name_that_one_student_has(folder, tmp_path):
    archive = packed(
        tmp_path / "submissions.zip",
        {
            "somebodyelse_4711_1_any-name.ipynb": "ada's",
            f"oneillsmithben_LATE_12_2_{ASSIGNMENT}-2.ipynb": "ben's third",
            f"oneillsmithben_LATE_12_3_{ASSIGNMENT}.ipynb": "ben's first",
            "oneillsmithben_LATE_12_4_data.csv": "1,2",
            f"núñezgarcíajosé_13_5_{NB}": "jose's",
            f"liwei_14_6_{NB}": "which?",
            f"stranger_15_7_{NB}": "whose?",
        },
    )
    found = taken(folder, archive)
    assert {one.student: one.how for one in found.values() if one.student} == {
        "ada": "Canvas's number",
        "ben": "name",
        "jose": "name",
    }
    assert lies(folder, "ada") == "ada's" and lies(folder, "ben") == "ben's third"
    assert lies(folder, "ben", "data.csv") == "1,2"
    assert "li1, li2 all match" in found["liwei (14)"].words
    assert "matches no student" in found["stranger (15)"].words
    late = found["oneillsmithben (12)"]
    assert late.late and "was late according to Canvas" in late.words and not late.time
    assert not (folder / "submitted/ben" / ASSIGNMENT / "timestamp.txt").exists()
    assert sorted(os.listdir(folder / "submitted")) == ["ada", "ben", "jose"]


def test_a_name_is_no_match_where_canvas_has_another_number_for_it(folder, tmp_path):
    archive = packed(tmp_path / "s.zip", {f"lovelaceada_9_1_{NB}": "another Ada"})
    assert "matches no student" in taken(folder, archive)["lovelaceada (9)"].words


def test_names_in_utf_8_that_do_not_say_so_are_read_as_utf_8(folder, tmp_path):
    archive = packed(tmp_path / "s.zip", {f"núñezgarcíajosé_13_5_{NB}": "x"}, utf8=False)
    with zipfile.ZipFile(archive) as plain:
        assert "ñ" not in plain.namelist()[0]
    assert next(iter(taken(folder, archive).values())).student == "jose"


@pytest.mark.parametrize(
    "name",
    [
        "Ada Lovelace_77_assignsubmission_file/work/{nb}",
        "Ada Lovelace_77_assignsubmission_file_/{nb}",
        "Ada Lovelace_77_assignsubmission_file_{nb}",
    ],
)
def test_moodles_folders_and_flat_names_are_read(folder, tmp_path, name):
    files = {
        name.format(nb=NB): "x",
        "Ada Lovelace_77_assignsubmission_onlinetext/onlinetext.html": "dear teacher",
        f"José Núñez García_78_assignsubmission_file/{NB}": "y",
        "Participant_79_assignsubmission_onlinetext/onlinetext.html": "no",
    }
    found = taken(folder, packed(tmp_path / "m.zip", files))
    assert lies(folder, "ada") == "x" and lies(folder, "jose") == "y"
    assert "matches no student" in found["Participant (79)"].words


def test_moodles_worksheet_says_who_and_when(folder, tmp_path):
    sheet = tmp_path / "Grades.csv"
    sheet.write_text(
        "\ufeffIdentifier,Full name,Email address,Status,Last modified (submission)\n"
        'Participant 79,,ben@school.org,Submitted,"Sunday, 1 March 2026, 2:05 PM"\n'
        "Participant 80,Ada Lovelace,,Submitted,-\n"
    )
    files = {f"Participant_{n}_assignsubmission_file/{NB}": str(n) for n in (79, 80)}
    found = taken(folder, packed(tmp_path / "m.zip", files), listed=read_list(sheet))
    assert lies(folder, "ben") == "79" and lies(folder, "ada") == "80"
    ben = found["Participant (79)"]
    assert ben.how == "the list" and ben.time == lies(folder, "ben", "timestamp.txt").strip()
    assert read_time("2026-03-01 14:05").strftime("%Y-%m-%d %H:%M:%S UTC") == ben.time
    assert found["Participant (80)"].time == ""


@pytest.mark.parametrize("zone", ["CET", "PST", "XYZ"])
def test_a_time_in_a_zone_that_is_not_known_cannot_be_read(folder, tmp_path, monkeypatch, zone):
    monkeypatch.setattr("time.tzname", ("UTC", "UTC"))
    assert read_time(f"2026-03-01 23:30:00 {zone}") is None
    assert f"{read_time('2026-03-01 23:30 UTC'):%H:%M}" == "23:30"
    inbound = tmp_path / "inbound" / f"ada+{ASSIGNMENT}+2026-03-01 23:30:00 {zone}"
    inbound.mkdir(parents=True)
    (inbound / NB).write_text("x")
    one = taken(folder, tmp_path / "inbound")["ada"]
    assert one.became == "new" and one.time == "" and "cannot be read" in one.words


def test_canvas_export_knows_logins(tmp_path):
    export = tmp_path / "grades.csv"
    export.write_text(
        "Student,ID,SIS User ID,SIS Login ID,Section,hw\n    Points Possible,,,,,10\n"
        '"Li, Wei",14,,li2,A,\n'
    )
    (row,) = read_list(export)
    assert row == Listed(platform="Canvas", number="14", names=("Li, Wei",), ids=("li2",))
    people = [Person(id="li1"), Person(id="li2")]
    (one,), _ = sort_by_student([entry("liwei_14_6_a.ipynb")], "hw", lambda name: False)
    assert Roster(people, [row]).match(one) == ("li2", "the list")
    (tmp_path / "other.csv").write_text("a,b\n1,2\n")
    with pytest.raises(ValueError, match=r"neither the columns .* It has: a, b"):
        read_list(tmp_path / "other.csv")


def test_the_exchange_gives_the_last_attempt_and_its_time(folder, tmp_path):
    inbound = tmp_path / "exchange" / "course" / "inbound"
    for time, text in (("2026-03-01 10:00:00 UTC", "first"), ("2026-03-02 09:00:00 UTC", "last")):
        place = inbound / f"ada+{ASSIGNMENT}+{time}+r4nd0m"
        place.mkdir(parents=True)
        (place / NB).write_text(text)
        (place / "timestamp.txt").write_text("2001-01-01 00:00:00 UTC")  # the name decides
    (inbound / "ben+other+2026-03-01 10:00:00 UTC").mkdir()
    (inbound / "ben+other+2026-03-01 10:00:00 UTC" / "other.ipynb").write_text("")
    for source in (inbound, tmp_path / "exchange" / "course", tmp_path / "exchange"):
        found = taken(folder, source)
        assert list(found) == ["ada"] and found["ada"].time == "2026-03-02 09:00:00 UTC"
    assert found["ada"].became == "unchanged"
    assert lies(folder, "ada") == "last"
    assert lies(folder, "ada", "timestamp.txt").strip() == "2026-03-02 09:00:00 UTC"


def attempts(*owned):
    """Attempts of a student, one a day: (whose by its name, whose it is)."""
    for day, (student, *owners) in enumerate(owned, 1):
        name = f"{student}+{ASSIGNMENT}+2026-03-{day:02} 10:00:00 UTC+r/{NB}"
        yield replace(entry(name), owners=tuple(owners))


@pytest.mark.parametrize(
    "owned, kept, why",
    [
        ([("ada", "ada"), ("ada", "ben"), ("ben", "ben")], "ada1 ben3", "files of ben, who is ano"),
        ([("ada", "ben")], "", "files of ben, who is another student"),
        ([("ada", "ada"), ("ada", "ada", "www-data")], "ada1", "www-data, not only of ada"),
        ([("ada", "user 7"), ("ada", "user 8"), ("ben", "user 8")], "ben3", "user 7, user 8. None"),
        ([("ada", "jovyan"), ("ada", "jovyan"), ("ben", "jovyan")], "ada2 ben3", ""),
        ([("ada", "ada"), ("ada", ""), ("ben", "")], "ada2 ben3", ""),  # yours, or not told
    ],
)
def test_an_attempt_in_the_exchange_is_its_owners(owned, kept, why):
    ids = {"ada", "ben"}
    found, left = sort_by_student(attempts(*owned), ASSIGNMENT, ids.__contains__, ids=ids)
    assert " ".join(f"{one.name}{int(one.time[8:10])}" for one in found) == kept
    assert bool(left) == bool(why) and all(why in one.refused for one in left)


def test_the_owners_in_a_zip_of_the_exchange_are_looked_at(folder, tmp_path):
    files = {}
    for uid, text in ((1001, "ada's"), (1002, "not ada's")):
        info = zipfile.ZipInfo(f"ada+{ASSIGNMENT}+2026-03-0{uid - 1000} 10:00:00 UTC+r/{NB}")
        info.extra = struct.pack("<HHBBLBL", 0x7875, 11, 1, 4, uid, 4, uid)
        files[info] = text
    found = taken(folder, packed(tmp_path / "exchange.zip", files))
    assert len(found) == 2 and all("user 1001, user 1002" in one.words for one in found.values())
    assert not list((folder / "submitted").iterdir())


@pytest.mark.skipif(os.getuid() != 0, reason="only the administrator can give files away")
def test_the_owners_in_the_exchange_itself_are_looked_at(folder, tmp_path):
    for uid, text in ((54321, "ada's"), (54322, "not ada's")):
        place = tmp_path / "inbound" / f"ada+{ASSIGNMENT}+2026-03-02 10:00:0{uid - 54320} UTC+r"
        place.mkdir(parents=True)
        (place / NB).write_text(text)
        os.chown(place, uid, uid)
    found = taken(folder, tmp_path / "inbound")
    assert len(found) == 2 and all("user 54321, user 54322" in x.words for x in found.values())


@pytest.mark.parametrize("around", ["", "all/", "all/again/"])
def test_plain_folders_named_after_students_are_taken(folder, tmp_path, around):
    files = {f"{around}ada/{NB}": "x", f"{around}ben@school.org/{ASSIGNMENT}/{NB}": "y"}
    files |= {f"{around}jose.ipynb": "z", f"{around}__MACOSX/ada/._x": "", f"{around}.DS_Store": ""}
    found = taken(folder, packed(tmp_path / "plain.zip", files))
    assert {one.student for one in found.values()} == {"ada", "ben", "jose"}
    assert lies(folder, "ben") == "y" and lies(folder, "jose") == "z"


def test_a_zip_or_a_folder_inside_is_opened_and_a_time_inside_is_not_believed(folder, tmp_path):
    inner = io.BytesIO()
    with zipfile.ZipFile(inner, "w") as archive:
        archive.writestr(f"hw/{NB}", "x")
        archive.writestr("hw/helper.py", "y")
        archive.writestr("hw/timestamp.txt", "1999-01-01 00:00:00 UTC")
        archive.writestr("hw/.ipynb_checkpoints/a.ipynb", "")
        archive.writestr("elsewhere.txt", "")
    taken(folder, packed(tmp_path / "s.zip", {"a_4711_1_hw.zip": inner.getvalue()}))
    there = folder / "submitted/ada" / ASSIGNMENT
    assert sorted(os.listdir(there)) == [NB, "helper.py"]


def test_nothing_is_overwritten_unasked_and_twice_is_once(folder, tmp_path):
    archive = packed(tmp_path / "s.zip", {f"a_4711_1_{NB}": "old"})
    assert taken(folder, archive)["a (4711)"].became == "new"
    again = taken(folder, archive)["a (4711)"]
    assert again.became == "unchanged" and not again.needs_you
    stamp = folder / "submitted/ada" / ASSIGNMENT / "timestamp.txt"
    stamp.write_text("2026-03-01 12:00:00 UTC\n")  # by the instructor
    assert taken(folder, archive)["a (4711)"].became == "unchanged" and stamp.exists()
    newer = packed(tmp_path / "n.zip", {f"a_4711_2_{NB}": "new"})
    kept = taken(folder, newer)["a (4711)"]
    assert kept.became == "kept" and "--replace" in kept.words and lies(folder, "ada") == "old"
    assert taken(folder, newer, replaces=True)["a (4711)"].became == "replaced"
    assert lies(folder, "ada") == "new" and not stamp.exists()
    (old,) = (folder / "replaced" / "submitted").iterdir()
    assert (old / NB).read_text() == "old" and (old / "timestamp.txt").exists()


def test_new_students_are_taken_only_if_asked(folder, tmp_path):
    archive = packed(tmp_path / "s.zip", {f"stranger_15_7_{NB}": "x"})
    one = taken(folder, archive, take_new=True)["stranger (15)"]
    assert (one.student, one.became) == ("stranger", "new")


def link(name):
    about = zipfile.ZipInfo(name)
    about.external_attr = (stat.S_IFLNK | 0o777) << 16
    return about


EVIL_NAMES = ["../../x.ipynb", "/etc/x.ipynb", "C:\\x\\y.ipynb", "..\\..\\x.ipynb", "ada/../../x"]


@pytest.mark.parametrize("name", EVIL_NAMES)
def test_a_name_that_leads_out_is_refused_alone(folder, tmp_path, name):
    before = set(tmp_path.rglob("*"))
    archive = packed(tmp_path / "s.zip", {name: "x", f"a_4711_1_{NB}": "y"})
    found = list(collect(folder, ASSIGNMENT, archive))
    refused = [one for one in found if one.became == "not taken"]
    assert len(refused) == 1 and ("leads out" in refused[0].words or "absolute" in refused[0].words)
    assert lies(folder, "ada") == "y"
    new = {path.name for path in set(tmp_path.rglob("*")) - before}
    assert new == {"s.zip", "submitted", "ada", ASSIGNMENT, NB}


@pytest.mark.parametrize(
    "inner, words",
    [
        ({"../../../x.ipynb": "x"}, "leads out"),
        ({"/root/x.ipynb": "x"}, "absolute"),
        ({link("x.ipynb"): "../../gradebook.db"}, "is a link"),
        ({"a.ipynb": "x", "b.ipynb": "y"}, "unclear which"),
        ({f"a/{NB}": "x", f"b/{NB}": "y"}, "unclear which"),
        ({NB: "x", "data": "y", "data/z": "z"}, "two files with the same name"),
        ({"readme.md": "x"}, "no notebook"),
        ({"x.zip": "PK"}, "no notebook"),
        ({f"{'d/' * 60}{NB}": "x"}, "folders deep"),
        ({f"{'n' * 300}.ipynb": "x"}, "longer than"),
        ({NB: "x", f"{('d' * 200 + '/') * 25}x": "y"}, "a path longer than 2,000 bytes"),
        ({"x\x1b[2J.ipynb": "x"}, "cannot be shown"),
    ],
)
def test_a_hostile_zip_costs_its_student_alone_and_leaves_nothing(folder, tmp_path, inner, words):
    zip_inside = packed(tmp_path / "inner.zip", inner).read_bytes()
    outer = {"a_4711_1_work.zip": zip_inside, f"oneillsmithben_2_2_{NB}": "ben's"}
    found = taken(folder, packed(tmp_path / "s.zip", outer))
    assert words in found["a (4711)"].words and "\x1b" not in found["a (4711)"].words
    assert lies(folder, "ben") == "ben's"
    assert os.listdir(folder / "submitted") == ["ben"]


def at(raw, place, data, before=b"PK\x01\x02"):
    """A zip with other bytes at a place in its first central header, or in its end record."""
    place += raw.rindex(before)
    return raw[:place] + data + raw[place + len(data) :]


def zip64(raw):
    """A zip whose file begins after 2**64 - 1 bytes."""
    start, end = raw.index(b"PK\x01\x02"), raw.index(b"PK\x05\x06")
    entry = at(raw[start:end], 42, b"\xff" * 4) + struct.pack("<HHQ", 1, 8, 2**64 - 1)
    whole = raw[:start] + at(entry, 30, b"\x0c\x00") + raw[end:]
    return at(whole, 12, struct.pack("<L", len(entry)), b"PK\x05\x06")


@pytest.mark.parametrize(
    "harm, words",
    [
        (lambda raw: at(raw, 14, b"\x00\x5c"), ""),  # month 0 of 2026
        (lambda raw: at(raw, 16, b"\xff\x00", b"PK\x05\x06"), "cannot be read"),
        (lambda raw: at(raw, 42, b"\xff\xff"), "cannot be read"),
        (zip64, "cannot be read"),
    ],
)
def test_what_zipfile_raises_for_one_students_zip_stops_nobody_behind(
    folder, tmp_path, harm, words
):
    inner = harm(packed(tmp_path / "inner.zip", {NB: "x"}).read_bytes())
    outer = {"a_4711_1_work.zip": inner, f"oneillsmithben_2_2_{NB}": "ben's"}
    found = taken(folder, packed(tmp_path / "s.zip", outer), file_times=True)
    assert words in found["a (4711)"].words and bool(words) == found["a (4711)"].needs_you
    assert lies(folder, "ben") == "ben's"


@pytest.mark.parametrize("platform", ["a_4711_1_hw.zip", "ada/hw.zip"])
def test_a_time_inside_an_upload_is_the_uploads_own(folder, tmp_path, platform):
    early, late = (2026, 1, 1, 8, 0, 0), (2026, 3, 2, 9, 0, 0)
    inner = packed(tmp_path / "inner.zip", {zipfile.ZipInfo(NB, early): "x"}).read_bytes()
    outer = packed(tmp_path / "s.zip", {zipfile.ZipInfo(platform, late): inner})
    (one,) = taken(folder, outer, file_times=True).values()
    assert one.time == f"{datetime(*late).astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"


def test_any_fault_with_one_student_is_a_line_and_leaves_nothing(folder, tmp_path, monkeypatch):
    def fails(entry, to, most, **how):
        if raised := faults.get(entry.name):
            to.write(b"half")
            raise raised
        return copy_out(entry, to, most, **how)

    copy_out = collecting.copy_out
    faults = {"a.csv": KeyError("x"), "b.csv": OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))}
    monkeypatch.setattr(collecting, "copy_out", fails)
    names = [f"{who}/{name}" for who in ("ada", "ben", "jose") for name in (NB, f"{who[0]}.csv")]
    found = taken(folder, packed(tmp_path / "s.zip", dict.fromkeys(names, "x")))
    assert "ada (ada): it could not be taken (KeyError: 'x')." in found["ada"].words
    assert "it could not be taken (No space left on device)." in found["ben"].words
    assert os.listdir(folder / "submitted") == ["jose"]


def test_a_folder_with_the_name_of_the_time_stays_behind(folder, tmp_path):
    inbound = f"ada+{ASSIGNMENT}+2026-03-01 12:00:00 UTC+r"
    names = {f"{inbound}/{NB}": "x", f"{inbound}/timestamp.txt/x": "", f"{inbound}/a/b.csv": "1"}
    found = taken(folder, packed(tmp_path / "s.zip", names))
    assert found["ada"].became == "new" and lies(folder, "ada", "a/b.csv") == "1"
    assert lies(folder, "ada", "timestamp.txt") == "2026-03-01 12:00:00 UTC\n"


def test_all_zips_of_one_student_share_one_room(folder, tmp_path, monkeypatch):
    monkeypatch.setattr(collecting, "MAX_FOLDER", 2**20)
    monkeypatch.setattr(collecting, "MAX_LISTED", 5)
    spooled = bytes(600 * 2**10) + packed(tmp_path / "i.zip", {NB: "x"}).read_bytes()
    listed = packed(tmp_path / "l.zip", {f"{n}.csv": "" for n in range(3)}).read_bytes()
    outer = {
        f"a_4711_1_{NB}": "x",
        f"oneillsmithben_2_2_{NB}": "y",
        f"nunezgarciajose_3_1_{NB}": "",
    }
    outer |= {f"a_4711_{n}_{n}.zip": spooled for n in (2, 3)}
    outer |= {f"oneillsmithben_2_{n}_{n}.zip": listed for n in (3, 4)}
    found = taken(folder, packed(tmp_path / "s.zip", outer))
    assert "unpacks to more than 0 MiB that are left" in found["a (4711)"].words
    assert "more names than one student may hand in" in found["oneillsmithben (2)"].words
    assert os.listdir(folder / "submitted") == ["jose"]


def test_a_bomb_is_stopped_by_what_it_claims_and_by_what_comes(folder, tmp_path, monkeypatch):
    monkeypatch.setattr(entries, "BOMB_BYTES", 2**20)
    bomb = packed(tmp_path / "bomb.zip", {NB: bytes(2 * 2**20)})
    outer = packed(tmp_path / "s.zip", {"a_4711_1_work.zip": bomb.read_bytes()})
    assert "bomb" in taken(folder, outer)["a (4711)"].words
    raw = bytearray(bomb.read_bytes())  # and one that claims to be small
    for at in (22, raw.index(b"PK\x01\x02") + 24):
        raw[at : at + 4] = (1000).to_bytes(4, "little")
    outer = packed(tmp_path / "t.zip", {"a_4711_1_work.zip": bytes(raw)})
    found = taken(folder, outer)["a (4711)"]
    assert found.became == "not taken" and found.words
    assert not (folder / "submitted" / "ada").exists()


def test_a_notebook_larger_than_is_graded_is_not_taken(folder, tmp_path, monkeypatch):
    monkeypatch.setattr(collecting, "MAX_NOTEBOOK", 2**20)
    outer = packed(tmp_path / "s.zip", {f"a_4711_1_{NB}": os.urandom(2**20 + 1)})
    assert "more than 1 MiB" in taken(folder, outer)["a (4711)"].words


def test_links_in_a_folder_are_named_and_not_followed(folder, tmp_path):
    source = tmp_path / "unpacked"
    source.mkdir()
    (source / f"a_4711_1_{NB}").symlink_to(folder / "gradebook.db")
    os.link(folder / "gradebook.db", source / f"oneillsmithben_2_2_{NB}")
    found = taken(folder, source)
    assert "is a link" in found["a (4711)"].words
    assert "hard link" in found["oneillsmithben (2)"].words
    assert os.listdir(folder / "submitted") == []


def test_a_folder_that_cannot_be_read_and_an_impossible_time_are_one_students(
    folder, tmp_path, monkeypatch
):
    source = tmp_path / "unpacked"
    for name in ("ada", "ben"):
        (source / name).mkdir(parents=True)
        (source / name / NB).write_text(name)
    walk, closed = os.walk, OSError(errno.EACCES, "Permission denied", str(source / "ada"))

    def without_ada(top, onerror):
        onerror(closed)
        return (
            (place, folders, files) for place, folders, files in walk(top) if "ada" not in place
        )

    monkeypatch.setattr(entries.os, "walk", without_ada)
    found = taken(folder, source)
    assert "cannot be read (Permission denied)" in found["ada"].words
    assert lies(folder, "ben") == "ben"
    assert entries._local_time(1e18) is None


def test_a_students_folder_that_is_a_link_is_not_written_through(folder, tmp_path):
    (folder / "submitted").mkdir(exist_ok=True)
    (tmp_path / "elsewhere").mkdir()
    (folder / "submitted" / "ada").symlink_to(tmp_path / "elsewhere")
    archive = packed(tmp_path / "s.zip", {f"a_4711_1_{NB}": "x"})
    assert "is a link" in taken(folder, archive)["a (4711)"].words
    assert os.listdir(tmp_path / "elsewhere") == []


@pytest.mark.parametrize("data", [b"", b"no zip", b"PK\x03\x04" + b"x" * 100])
def test_what_is_no_zip_is_one_line(folder, tmp_path, data):
    source = tmp_path / "s.zip"
    source.write_bytes(data)
    with pytest.raises(RefusedError, match="not a zip"):
        taken(folder, source)
    with pytest.raises(RefusedError, match="Unpack it first"):
        taken(folder, tmp_path / "s.rar")


def test_two_parts_that_mean_one_student_are_both_left(folder, tmp_path):
    files = {f"Ada Lovelace_{n}_assignsubmission_file/{NB}": str(n) for n in (7, 8)}
    found = taken(folder, packed(tmp_path / "s.zip", files))
    assert all("would all match ada" in one.words for one in found.values()) and len(found) == 2
    assert os.listdir(folder / "submitted") == []


def test_the_command_says_who_and_how_and_exits_with_2_where_it_needs_you(
    folder, tmp_path, monkeypatch, capsys
):
    def run(archive, *words):
        argv = ["autograde", "collect", str(archive), ASSIGNMENT, "--dir", str(folder), *words]
        monkeypatch.setattr(sys, "argv", argv)
        with pytest.raises(SystemExit) as left:
            cli.main()
        said = capsys.readouterr()
        return left.value.code, said.out, said.err

    good = packed(tmp_path / "good.zip", {f"a_4711_1_{NB}": "x"})
    code, out, err = run(good)
    assert (
        code == 0 and err == "" and "new       ada" in out and "by Canvas's number: a (4711)" in out
    )
    assert run(good)[:2] == (0, f"1 unchanged\nNext: autograde grade {ASSIGNMENT} --dir {folder}\n")
    bad = packed(tmp_path / "bad.zip", {f"stranger_15_7_{NB}": "x"})
    code, out, err = run(bad)
    assert code == 2 and err.startswith("autograde: stranger (15): matches no student")
    assert run(tmp_path / "missing.zip")[0] == 2
    assert run(tmp_path)[0] == 2  # nothing of it is a student's


HANA = {"hana": {"first_name": "Hana", "last_name": "Holm", "lms_user_id": "4712"}}
PREFIX = "x_4712_assignsubmission_file_"


@pytest.fixture
def with_hana(folder):
    with Gradebook(f"sqlite:///{folder}/gradebook.db") as gradebook:
        gradebook.add_student("hana", **HANA["hana"])
    return folder


CANVAS_LIST = [Listed(platform="Canvas", number="4712", ids=("hana",))]
MOODLE_LIST = [Listed(platform="Moodle", number="4712", ids=("hana",), time="2026-03-02 10:00")]


@pytest.mark.parametrize(
    "name, whose, listed",
    [
        (f"lovelaceada_4711_1_{PREFIX}{NB}", {"ada"}, CANVAS_LIST),
        (f"lovelaceada_LATE_4711_1_x_4711_assignsubmission_file_{NB}", {"ada"}, CANVAS_LIST),
        (f"lovelaceada_4711_1_hana+{ASSIGNMENT}+2026-03-01 x+r_{NB}", {"ada"}, ()),
        (f"lovelaceada_4711_1_hw_2_1_{NB}", {"ada"}, CANVAS_LIST),
        (f"lovelaceada_4711_1_x_4712_9_{NB}", set(), CANVAS_LIST),
        (f"x_4712_1_4711_9_{NB}", set(), ()),  # a name of her own, "x_.4712_.1" in Canvas
        (f"holmhana_4712_1_4711_9_{NB}", set(), CANVAS_LIST),
        (f"x_4712_4711_9_{NB}", set(), CANVAS_LIST),
        (f"x_4711_1_555_9_{NB}", set(), ()),  # 555 is on no list
        (f"x_4712_1_555_9_{NB}", set(), CANVAS_LIST),
        ("lovelaceada_4711_1_01_02_hw.ipynb", {"ada"}, CANVAS_LIST),
        (f"x_\u0664\u0667\u0661\u0662_1_4711_9_{NB}", set(), ()),
        (f"_4711_1_x_4712_assignsubmission_file_{NB}", {"ada"}, ()),
        (f"Ada Lovelace_4711_assignsubmission_file_{PREFIX}{NB}", {"ada"}, MOODLE_LIST),
        (f"Ada Lovelace_4711_assignsubmission_file_/{PREFIX}{NB}", {"ada"}, MOODLE_LIST),
        (f"Ada Lovelace/hana/{NB}", set(), ()),
    ],
)
@pytest.mark.parametrize("hana_too", [False, True])
def test_no_name_makes_a_students_work_anothers(with_hana, tmp_path, name, whose, listed, hana_too):
    hers = {
        "Canvas": f"holmhana_4712_2_{NB}",
        "Moodle": f"Hana Holm_4712_assignsubmission_file_{NB}",
        "folder": f"hana/{NB}",
    }
    platform = "Moodle" if name.startswith("Ada Lovelace_") else "Canvas"
    files = {name: "ada's"}
    if hana_too:
        files[hers["folder" if "Lovelace/" in name else platform]] = "hana's"
    found = taken(with_hana, packed(tmp_path / "s.zip", files), listed=listed).values()
    assert {one.student for one in found if one.became == "new"} == whose | (
        {"hana"} if hana_too else set()
    )
    if hana_too:
        assert lies(with_hana, "hana") == "hana's"
    if whose:
        assert lies(with_hana, "ada") == "ada's"
        assert any(one.late for one in found) == ("_LATE_" in name)
        assert {one.time for one in found if one.student == "ada"} == {""}


def test_numbers_in_the_assignments_own_name_put_nobody_in_doubt():
    def sent(name):
        (one,), _ = sort_by_student([entry(name)], "03_04_hw", lambda name: name == "7")
        return one.contested

    assert not sent("a_7_1_03_04_hw.ipynb") and not sent("a_7_1_03_04_hw-2.ipynb")
    assert sent("x_7_1_8_2_03_04_hw.ipynb") and sent("x_7_1_03_04_hw_8_2_b.ipynb")


def test_a_platform_is_that_of_all_names_or_asked_for(with_hana, tmp_path):
    def sent(*names, **options):
        archive = packed(tmp_path / "s.zip", {name: "x" for name in names})
        found = taken(with_hana, archive, replaces=True, **options).values()
        return {one.student or one.handed for one in found}

    canvas, moodle = f"lovelaceada_4711_1_{NB}", f"Hana Holm_4712_assignsubmission_file/{NB}"
    both = f"x_4712_assignsubmission_file_4711_9_{NB}"  # a Canvas student who chose this name
    for names in ((canvas, moodle), (canvas, f"hana/{NB}"), (moodle, "hana.ipynb")):
        with pytest.raises(RefusedError, match=r"some names are as \w+ writes them.* --from"):
            sent(*names)
    assert sent(canvas, moodle, platform="Canvas") == {"ada", moodle}
    assert sent(canvas, moodle, platform="Moodle") == {"hana", canvas}
    with pytest.raises(RefusedError, match="from Moodle or Canvas"):
        sent(both)
    assert sent(both, platform="Canvas") == {"ada"}
    assert sent(both, f"holmhana_4712_2_{NB}") == {"ada", "hana"}
    assert sent(canvas, "notes.txt") == {"ada", "notes.txt"}
    with pytest.raises(RefusedError, match="list of Moodle's"):
        sent(canvas, listed=MOODLE_LIST)


def entry(name, size=1):
    return Entry(
        parts=tuple(name.split("/")), size=size, packed=size, time=None, opens=lambda: io.BytesIO()
    )


def test_attempts_and_keys():
    assert [attempt(n, "hw-1") for n in ("hw-1.ipynb", "HW-1-3.ipynb", "hw-1 (2).ipynb")] == [
        0,
        3,
        2,
    ]
    assert attempt("hw.ipynb", "hw-1") is None
    assert key("Núñez, José") == "nunezjose" and key("李 伟") == "李伟"
    assert safe_parts("a//b/./c") == (("a", "b", "c"), "")
    files, notebook = choose([entry("x/other.ipynb"), entry("x/hw.ipynb"), entry("y/a")], "hw")
    assert notebook.name == "hw.ipynb" and [one.name for one in files] == ["hw.ipynb"]


def test_a_class_that_was_handed_in_before_is_known_by_its_folders(tmp_path):
    folder = make(tmp_path / "class", {"ada": Paper(cells={"a": "1"})})
    archive = packed(tmp_path / "s.zip", {f"ada/{NB}": "other"})
    assert taken(folder, archive)["ada"].became == "kept"
