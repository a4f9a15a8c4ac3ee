"""Every id that is named is in the ledger; every id has a home or is named as missing."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from course.catalogue import UnknownIdError
from course.ledger import SERIES, find_row, homes, missing, rows
from course.ledger import rows as rows_of
from course.ledger.homes import ROOT, cited, named
from course.ledger.show import answer
from tests.sources import source_text

KNOWN_AS_MISSING = (Path(__file__).parent / "missing.txt").read_text().split()
UNKNOWN_ON_PURPOSE = {"B00", "B99", "F999", "K99", "N99", "N119", "N999", "Q07", "S98", "S99"}
"""Typed by tests that ask for an id that does not exist."""


def run_course(*arguments: str) -> subprocess.CompletedProcess:
    command = [sys.executable, "-m", "course.cli", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, cwd=ROOT)


def tracked(*endings: str) -> list[Path]:
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        capture_output=True, text=True, cwd=ROOT,
    )  # fmt: skip
    if listed.returncode:
        pytest.skip("not a git checkout")
    found = [ROOT / name for name in listed.stdout.splitlines() if name.endswith(endings)]
    return [path for path in found if path.exists()]


def test_every_id_that_code_prose_or_tests_name_is_in_the_ledger():
    unknown = []
    for path in tracked(".py", ".md"):
        text = re.sub(r"# noqa: [A-Z0-9, ]*", "", path.read_text("utf-8"))
        for id_ in named(text):
            if id_ not in rows() and not (
                id_ in UNKNOWN_ON_PURPOSE and path.is_relative_to(ROOT / "tests")
            ):
                unknown.append(f"{path.relative_to(ROOT)} names {id_}")
    assert not unknown


def test_every_id_has_a_home_or_is_named_as_missing():
    assert missing() == KNOWN_AS_MISSING, "write them into tests/ledger/missing.txt"
    assert set(KNOWN_AS_MISSING) <= set(rows())


def test_numbers_claims_contradictions_and_bugs_are_all_at_home():
    assert not [id_ for id_ in missing() if id_[0] in "NFKB"]


def test_ids_count_up_without_gaps_in_every_series():
    for letter in SERIES:
        ids = [id_ for id_ in rows() if id_.startswith(letter)]
        assert ids == [f"{letter}{number:02d}" for number in range(1, len(ids) + 1)]


def test_a_row_is_one_line_with_a_source():
    for row in rows().values():
        assert row.source.startswith(
            ("Lecture 3", "Engineering module", "Training-loop chapter", "Annotated-loop essay")
        )
        assert 15 <= len(row.line) <= 130 and not row.line.endswith("."), row.id


@pytest.mark.parametrize("text", ["lecture", "essay"])
def test_every_heading_that_a_row_names_stands_in_the_source(text):
    headings = {
        heading
        for row in rows().values()
        for source, where in row.places
        if source == text
        for heading in re.findall(r'"([^"]+)"', where)
    }
    assert len(headings) > 10
    assert not [heading for heading in headings if heading not in source_text(text)]


def test_sections_and_chapters_are_ones_that_the_sources_have():
    for row in rows().values():
        for source, where in row.places:
            if source == "module":
                expected = r"§[1-5]|lab [1-6]|quiz [1-8]|common mistakes|outcomes|facts"
                assert re.fullmatch(expected, where), row.id
            if source == "chapter":
                assert re.fullmatch(r"c[0-9](, .+)?", where), row.id


@pytest.mark.parametrize(
    ("typed", "meant"), [("n-9", "N09"), ("F 005", "F05"), ("k17", "K17"), ("f100", "F100")]
)
def test_an_id_may_be_typed_loosely(typed, meant):
    assert find_row(typed).id == meant


def test_a_typo_gets_the_nearest_ids():
    with pytest.raises(UnknownIdError, match=r"'F999' is not .* the nearest:.*F99"):
        find_row("F999")


def test_a_block_shows_line_source_and_every_home():
    text = answer("N20")
    row = rows()["N20"]
    assert text.startswith(f"N20  {row.line}\n     {row.source}\n")
    assert re.search(r"worked number +course worked N20 +course/worked/clipping\.py", text)
    assert re.search(r"exercise +03a\.clip +autograde/bank/clip\.py", text)


def test_missing_lists_only_ids_without_a_home():
    listed = re.findall(r"^([A-Z]\d+) ", answer(None, only_missing=True), flags=re.MULTILINE)
    assert listed == missing()
    document = json.loads(answer("T", only_missing=True, as_json=True))
    assert all(row["homes"] == [] and row["id"].startswith("T") for row in document)


def test_homes_name_files_that_exist():
    paths = {home.path for found in homes().values() for home in found}
    assert len(paths) > 50 and all((ROOT / path).is_file() for path in paths)


def test_ranges_and_lists_are_read_from_docstrings():
    assert cited("ledger C03-C05, N55, F125") == ["C03", "C04", "C05", "N55", "F125"]
    assert cited("ledger F102-F104") == ["F102", "F103", "F104"]
    assert cited("the ledger's section B and N20") == []


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("N01 | chapter c0", "2 cells"),
        ("Q01 | chapter c0 | a line", "'Q01' is not an id"),
        ("N01 | book 3 | a line", "'book 3' is not a place"),
        ("N01 | chapter c0 | a line\nN01 | chapter c0 | again", "N01 occurs twice"),
    ],
)
def test_a_line_that_is_no_row_is_named_with_its_number(tmp_path, text, message):
    path = tmp_path / "rows.txt"
    path.write_text(f"# a comment\n\n{text}\n", "utf-8")
    with pytest.raises(ValueError, match=rf"rows\.txt, line [34]: {message}"):
        rows_of(path)


def test_the_command_answers_without_torch_and_names_what_is_nearest():
    shown = run_course("ledger", "f-28")
    assert shown.returncode == 0 and shown.stdout.startswith("F28  ")
    typo = run_course("ledger", "N119")
    assert typo.returncode == 2 and "the nearest: N19" in typo.stderr
    code = "import sys, course.ledger.show as s; s.answer('N20'); assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120, cwd=ROOT)
