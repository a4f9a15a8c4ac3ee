"""The class page and its numbers: against scipy and numpy, and on classes too small for either."""

import io
import itertools
import json
import math
import re
from datetime import timedelta

import numpy as np
import pytest
from bs4 import BeautifulSoup
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from autograde import bank
from autograde.classroom import conspicuous, page
from autograde.classroom.report import Row, as_table, read_rows
from autograde.classroom.statistics import (
    GROUP,
    median,
    point_biserial,
    statistics_of,
    upper_lower,
)
from tests.autograde.paper_class import ASSIGNMENT, DUE, Paper, make
from tests.autograde.test_feedback_pages import EVIL, HTML, visit
from tests.autograde.test_similarity import disguised, rights
from tests.browser.chromium import NONE_HERE, chromium, found

POINTS = st.integers(0, 4).map(float)
CLASS = st.lists(st.tuples(POINTS, st.integers(0, 40).map(float)), min_size=4, max_size=60)


@settings(deadline=None)
@given(CLASS)
def test_point_biserial_is_scipys(drawn):
    full = [points == 4 for points, _ in drawn]
    rest = [value for _, value in drawn]
    r = point_biserial(full, rest)
    if len(set(full)) == 1 or len(set(rest)) == 1:
        assert r is None
    else:
        assert r == pytest.approx(stats.pointbiserialr(full, rest).statistic, abs=1e-9)


@given(st.lists(POINTS, min_size=4, max_size=60), st.randoms())
def test_upper_lower_is_numpys_where_all_totals_differ(points, random):
    totals = list(map(float, range(len(points))))
    random.shuffle(totals)
    size = max(1, round(GROUP * len(points)))
    by_total = np.array(points)[np.argsort(totals)]
    expected = (by_total[-size:].mean() - by_total[:size].mean()) / 4
    assert upper_lower(points, totals, 4) == pytest.approx(expected)


@settings(deadline=None)
@given(st.lists(st.tuples(POINTS, st.integers(0, 2)), min_size=4, max_size=6))
def test_upper_lower_of_ties_is_the_mean_over_all_ways_to_order_them(drawn):
    size = max(1, round(GROUP * len(drawn)))
    differences = []
    for order in itertools.permutations(drawn):
        ordered = sorted(order, key=lambda student: student[1])  # stable: ties as they come
        points = [score for score, _ in ordered]
        differences.append((np.mean(points[-size:]) - np.mean(points[:size])) / 4)
    points, totals = zip(*drawn, strict=True)
    assert upper_lower(points, totals, 4) == pytest.approx(np.mean(differences))


@given(st.lists(st.floats(-100, 100), min_size=1, max_size=30))
def test_median_is_numpys(values):
    assert median(values) == pytest.approx(np.median(values))


def test_difficulty_is_the_mean_share_of_points():
    scores = dict(zip("abcdef", (0.0, 1, 2, 4, 4, 4), strict=True))
    totals = {student: points * 3 for student, points in scores.items()}
    found = statistics_of("x", scores, totals, 4)
    assert found.difficulty == np.mean(list(scores.values())) / 4
    assert (found.count, found.solved, found.mean, found.why) == (6, 3, 2.5, "")


@pytest.mark.parametrize(
    "scores,rest,why",
    [
        ({}, {}, "too few grades (0)"),
        ({"a": 4.0}, {"a": 9.0}, "too few grades (1)"),
        (dict.fromkeys("abcd", 4.0), dict.fromkeys("abcd", 4.0), "all totals are equal"),
        (dict.fromkeys("abcd", 4.0), {"a": 1, "b": 2, "c": 3, "d": 4}, "everybody has full points"),
        (dict.fromkeys("abcd", 1.0), {"a": 1, "b": 2, "c": 3, "d": 4}, "nobody has full points"),
        ({"a": 4.0, "b": 1, "c": 1, "d": 0}, dict.fromkeys("abcd", 3), "the same points for the"),
    ],
)
def test_a_class_too_small_or_too_even_is_told_so(scores, rest, why):
    totals = {student: scores[student] + rest[student] for student in scores}
    found = statistics_of("x", scores, totals, 4)
    assert why in found.why and found.point_biserial is None
    assert "no full points" in statistics_of("x", scores, totals, 0).why


def test_a_question_that_most_wait_for_has_no_numbers_from_who_left_it_blank():
    scores, totals = {"blank": 0.0, "empty": 0.0}, {"blank": 8.0, "empty": 3.0}
    found = statistics_of("why", scores, totals, 2, waiting=22)
    numbers = (found.mean, found.difficulty, found.discrimination, found.point_biserial)
    assert numbers == (None,) * 4 and found.why.startswith("22 answers wait to be graded by hand")
    assert statistics_of("why", scores, totals, 2, waiting=1).difficulty == 0


BIG = {
    f"s{i:02}": Paper(
        clip=i % 5,
        accumulate=(i * 7) % 5,
        why=(i % 3) if i else None,
        status={"03a.clip": "by-value"} if i % 4 == 1 else {"03a.accumulate": "joined"},
        attempts=1 + i % 3,
    )
    for i in range(24)
}
BIG["s03"].notes = [
    f"submitted/s03/{ASSIGNMENT}/{ASSIGNMENT}.ipynb: check cell 'clip-check' was edited; the "
    "original was graded."
]
BIG["s04"].ended = "it used more than 4 GiB of memory"
BIG["s05"].status = {"03a.accumulate": "raised Timeout"}
BIG["s06"].penalty = 1.5
BIG["zed"] = Paper(not_graded="submitted/zed/x.ipynb: is empty. Ask the student.")
OWN = {id: rights(id)[-1] for id in bank.asks_for_code() if bank.load(id).kind == "function"}
OWN = {
    id: source
    for id, source in OWN.items()
    if len(source.splitlines()) >= 5 and source != rights(id)[0]
}
"""Answers of five lines and more to exercises that have another right one, written on its own."""
BIG["s07"].cells = OWN
BIG["s08"].cells = {name: disguised(source) for name, source in OWN.items()}
BIG["s09"].cells = {exercise: rights(exercise)[0] for exercise in OWN}


@pytest.fixture(scope="module")
def big_class(tmp_path_factory):
    return make(tmp_path_factory.mktemp("big") / "class", BIG)


@pytest.fixture(scope="module")
def big_page(big_class):
    return BeautifulSoup(page.class_page(big_class, ASSIGNMENT), "html.parser")


def table(soup, section):
    rows = soup.find(id=section).find("table").find("tbody").find_all("tr")
    return [[" ".join(cell.get_text(" ").split()) for cell in row.find_all("td")] for row in rows]


def test_misconceptions_are_counted_over_students_with_the_banks_message(big_page):
    counted = {row[1].split()[-1]: row for row in table(big_page, "shared")}
    for exercise, name in (("03a.clip", "by-value"), ("03a.accumulate", "joined")):
        who = [s for s, paper in BIG.items() if paper.status.get(exercise) == name]
        (message,) = [w.message for w in bank.load(exercise).wrong if w.name == name]
        count, what, says, names = counted[name]
        assert count == f"{len(who)} of 24" and names == ", ".join(who)
        assert says == message and exercise in what


def test_a_number_of_ones_own_is_named_where_a_row_stands_for_all():
    seen = {"exercise": "03a.windows", "status": "wrong", "misconception": "rest-left-out"}
    (shared,) = page.shared_misconceptions({"ada": {"checks": [seen]}, "ben": {"checks": [seen]}})
    assert shared.message.startswith("A micro-batch with fewer than b examples, or an update")


def test_submissions_that_need_a_person_are_listed_most_urgent_first(big_page):
    rows = table(big_page, "people")
    assert [row[:2] for row in rows] == [
        ["zed", "not graded"],
        ["s04", "crashed"],
        ["s05", "timed out"],
        ["s03", "edited checks"],
        ["s07, s08", "near-identical"],
        ["1 student", "by hand"],
    ]
    assert rows[3][2].startswith("check cell 'clip-check' was edited"), "the row says whose"


def test_near_identical_code_stands_side_by_side_with_its_lines_marked(big_page):
    section = big_page.find(id="alike")
    assert "s07 and s08: 100 % alike" in section.get_text() and "s09" not in section.get_text()
    pres = section.find_all("pre")
    assert len(pres) == 2 * len(OWN)
    assert min(len(pre.find_all("mark")) for pre in pres) >= 3


def test_the_tables_numbers_are_numpys_and_scipys(big_page):
    rows = {row[0]: row for row in table(big_page, "exercises")}
    papers = [paper for paper in BIG.values() if not paper.not_graded]
    clip = np.array([paper.clip for paper in papers], dtype=float)
    rest = np.array([paper.accumulate + (paper.why or 0) for paper in papers], dtype=float)
    assert rows["03a.clip"][1:5] == [
        *("24", str(sum(clip == 4))),
        *(f"{clip.mean():.2f} / 4", f"{clip.mean() / 4:.2f}"),
    ]
    assert rows["03a.clip"][6] == f"{stats.pointbiserialr(clip == 4, rest).statistic:.2f}"
    assert rows["why 1 answer waits to be graded by hand: not counted"][1] == "23"


def test_totals_are_nbgraders_with_the_late_penalty(big_class, big_page):
    (row,) = [row for row in read_rows(big_class, ASSIGNMENT) if row.student == "s06"]
    paper = BIG["s06"]
    assert row.total == paper.clip + paper.accumulate + paper.why - 1.5
    assert row.to_json()["penalty"] == 1.5
    (line,) = [row for row in table(big_page, "students") if row[0] == "s06"]
    assert "late −1.5" in line[4]


def test_scores_that_are_not_final_are_called_so(big_page, tmp_path):
    words = big_page.find(id="scores").get_text()
    assert "Not final: 1 answer that must be graded by hand count as 0" not in words
    assert "Not final: 1 answer that must be graded by hand counts as 0 so far." in words
    assert "Late penalties are subtracted (1 student)." in words
    assert page.scores_so_far(read_rows(make(tmp_path / "class", {"a": Paper()}), ASSIGNMENT)) == ""


def test_an_answer_that_waits_is_no_zero_in_the_tables(big_page, tmp_path):
    (line,) = [row for row in table(big_page, "students") if row[0] == "s00"]
    assert line[3] == "waits"
    folder = make(tmp_path / "class", {"ada": Paper(why=None)})
    shown = as_table(read_rows(folder, ASSIGNMENT))
    assert [list(column.cells) for column in shown.columns[1:4]] == [["4"], ["4"], ["waits"]]


def test_what_is_recorded_is_told_and_what_is_not_is_said(big_page):
    words = big_page.find(id="time").get_text()
    assert "9 students with 1 version, 8 students with 2 versions, 8 students with 3" in words
    assert "no timestamp.txt" in words and "How long students worked is not recorded" in words


def test_plots_are_pictures_with_words_and_unique_ids(big_page):
    pictures = big_page.find_all("svg")
    assert len(pictures) == 2
    for picture in pictures:
        title = big_page.find(id=picture["aria-labelledby"])
        assert picture["role"] == "img" and len(title.get_text()) > 60
    ids = [element["id"] for element in big_page.find_all(id=True)]
    assert len(ids) == len(set(ids))
    totals = [
        max(0, paper.clip + paper.accumulate + (paper.why or 0) - paper.penalty)
        for paper in BIG.values()
        if not paper.not_graded
    ]
    words = f"24 students have a grade: from {min(totals):g} to {max(totals):g} of 10 points; "
    assert words + f"mean {np.mean(totals):.1f}, median" in pictures[0].get_text()


SMALL = {
    "one student": {"ada": Paper()},
    "one not graded": {"hana": Paper(not_graded="x.ipynb: is empty. Ask.")},
    "all not graded": {c: Paper(not_graded="x.ipynb: is empty.") for c in "abc"},
    "all the same": {c: Paper(clip=2, accumulate=2) for c in "abcdef"},
    "all zero": {c: Paper(clip=0, accumulate=0, why=0) for c in "abcdef"},
    "all by hand": {c: Paper(why=None) for c in "abcdef"},
    "two": {"a": Paper(clip=0), "b": Paper()},
}


@pytest.mark.parametrize("papers", SMALL.values(), ids=SMALL)
def test_a_small_class_gets_sentences_and_no_nan(tmp_path, papers):
    folder = make(tmp_path / "class", papers)
    soup = BeautifulSoup(page.class_page(folder, ASSIGNMENT), "html.parser")
    text = soup.get_text(" ")
    assert not re.search(r"\bnan\b|\binf\b|None\b(?!:)", text.replace("None: every", ""))
    graded = [paper for paper in papers.values() if not paper.not_graded]
    if not graded:
        assert "Nobody has a grade yet, so there is no distribution" in text
        assert "nothing can be said about the exercises" in text and not soup.find_all("svg")
    elif len(graded) == 1:
        assert "One student has a grade: 10 of 10 points." in text
    elif len({paper.clip for paper in graded}) == 1:
        assert "students have the same score" in text and "nobody is above or below" in text


HOSTILE = "<img src=x onerror='window.ran=1'>"


@pytest.fixture(scope="module")
def hostile_page(tmp_path_factory):
    """Hostile words wherever a student can put any: name, code, notes, reason."""
    code = {name: f"{source}\n# {' '.join(HTML)}" for name, source in OWN.items()}
    papers = {
        HOSTILE.replace("/", ""): Paper(cells=code, notes=[f"x: {text}" for text in HTML]),
        "<script>window.ran=2<": Paper(cells=code, ended="</td></table><script>ran=3</script>"),
        "{{ 7 * 7 }}": Paper(not_graded=f"<base href='{EVIL}/'> is empty"),
        "bad": Paper(status={"03a.clip": "<svg onload='window.ran=4'>", "03a.accumulate": "]]>"}),
    }
    folder = make(tmp_path_factory.mktemp("hostile-report") / "class", papers)
    return page.write_page(folder, ASSIGNMENT, folder / "page.html")


@pytest.mark.slow
def test_in_chromium_the_page_runs_nothing_and_asks_for_nothing(hostile_page, tmp_path):
    assert visit(hostile_page) == (None, [])
    text = hostile_page.read_text("utf-8")
    open_page = tmp_path / "open.html"
    open_page.write_text(text.replace("Content-Security-Policy", "X-None"))
    assert visit(open_page) == (None, [])
    (tmp_path / "raw.html").write_text(text.replace("&lt;", "<").replace("&#39;", "'"))
    raw = (tmp_path / "raw.html").read_text().replace("Content-Security-Policy", "X-None")
    (tmp_path / "raw.html").write_text(raw)
    assert visit(tmp_path / "raw.html")[0] is not None  # the control: unescaped, it would run


def test_the_page_holds_no_script_handler_or_outside_address(hostile_page):
    soup = BeautifulSoup(hostile_page.read_text("utf-8"), "html.parser")
    assert "{{ 7 * 7 }}" in soup.get_text()
    for element in soup(True):
        assert element.name not in ("script", "iframe", "base", "link", "img", "object", "form")
        for name, value in element.attrs.items():
            assert not name.startswith("on")
            if name in ("href", "src", "xlink:href"):
                assert str(value).startswith("#")


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [380, 1200])
def test_the_page_fits_and_can_be_read_in_light_and_dark(big_class, tmp_path, scheme, width):
    """Contrast by WCAG's formula, of what the browser computed, not of what the style says."""
    if found() is None:
        pytest.skip(NONE_HERE)
    path = page.write_page(big_class, ASSIGNMENT, tmp_path / "page.html")
    with chromium() as browser:
        tab = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
        tab.goto(path.as_uri())
        assert tab.evaluate("document.documentElement.scrollWidth") <= width
        broken = (
            "[...document.querySelectorAll('td.warn')].map(e => getComputedStyle(e).overflowWrap)"
        )
        assert set(tab.evaluate(broken)) == {"normal"}, "a reason would be cut within a word"
        paper = tab.evaluate("getComputedStyle(document.body).backgroundColor")
        colours = tab.evaluate(
            """[...document.querySelectorAll('p, td, th, h1, a, .quiet, .warn')].map(
                e => getComputedStyle(e).color).concat(
                [...document.querySelectorAll('svg text')].map(e => getComputedStyle(e).fill))"""
        )
    assert len(colours) > 100
    assert (luminance(paper) > 0.5) == (scheme == "light")
    for colour in set(colours):
        low, high = sorted((luminance(colour), luminance(paper)))
        assert (high + 0.05) / (low + 0.05) >= 4.5, (colour, paper)


def luminance(colour: str) -> float:
    """WCAG 2's relative luminance of `rgb(r, g, b)`."""
    parts = [int(part) / 255 for part in re.findall(r"\d+", colour)[:3]]
    linear = [v / 12.92 if v <= 0.04045 else math.pow((v + 0.055) / 1.055, 2.4) for v in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def test_the_terminals_table_takes_no_commands_from_names(tmp_path):
    from rich.console import Console

    folder = make(tmp_path / "class", {"[red]x\x1b[2J": Paper(), "ben": Paper(penalty=2)})
    console = Console(width=120, record=True, file=io.StringIO())
    console.print(as_table(read_rows(folder, ASSIGNMENT)))
    text = console.export_text()
    assert "[red]x?[2J" in text and "-2 late" in text


def test_the_commands_write_page_and_export(big_class, tmp_path):
    from typer.testing import CliRunner

    from autograde.cli import app

    def autograde(*words):
        return CliRunner().invoke(app, [*map(str, words), "--dir", str(big_class)])

    done = autograde("report")
    default = big_class / "report" / f"{ASSIGNMENT}.html"
    assert done.exit_code == 0 and f"wrote {default}" in done.stdout and default.exists()
    assert autograde("report", "--html", tmp_path / "x.html").exit_code == 0
    assert (tmp_path / "x.html").read_text().startswith("<!doctype html>")
    assert len(json.loads(autograde("report", "--json").stdout)) == 25
    done = autograde("export", "--to", "canvas", "--output", tmp_path / "c.csv")
    assert done.exit_code == 0 and (tmp_path / "c.csv").exists(), done.stderr
    assert "not graded, left" in done.stderr
    assert "canvas, moodle, csv" in str(autograde("export", "--to", "nowhere").exception)


def test_answers_that_wait_are_a_line_a_question_however_large_the_class(tmp_path):
    about = {"scores": {}, "max_scores": {}, "seen": {}, "not_graded": ""}
    rows = [Row(student=f"s{n:03}", to_grade_by_hand=["why"], **about) for n in range(300)]
    found = page.concerns(rows, {row.student: {} for row in rows}, [], {}, tmp_path)
    (line,) = found
    assert (line.student, line.kind) == ("300 students", "by hand")
    assert line.words.startswith("why: s000, s001") and line.words.endswith("s019 and 280 more")


def test_a_doubtful_time_and_who_handed_in_nothing_are_on_the_page(tmp_path):
    from nbgrader.api import Gradebook

    folder = make(tmp_path / "class", {"ada": Paper(names={"first_name": "Ada"})})
    (folder / "submitted" / "ada" / ASSIGNMENT / "timestamp.txt").write_text("05.03.2026 12:00")
    with Gradebook(f"sqlite:///{folder}/gradebook.db") as gradebook:
        gradebook.add_student("zoe", first_name="Zoe")
    soup = BeautifulSoup(page.class_page(folder, ASSIGNMENT), "html.parser")
    ((student, kind, words),) = table(soup, "people")
    assert (student, kind) == ("ada", "lateness") and "read as 2026-05-03" in words
    assert "1 on the class list handed in nothing: zoe." in " ".join(soup.header.text.split())


def test_who_was_late_is_named_although_it_costs_nothing(tmp_path):
    from nbgrader.api import Gradebook

    folder = make(tmp_path / "class", {"ada": Paper(), "ben": Paper(), "cleo": Paper()})
    with Gradebook(f"sqlite:///{folder}/gradebook.db") as gradebook:
        for student, minutes in (("ada", 36 * 60), ("ben", 59), ("cleo", -1)):
            late = gradebook.find_submission(ASSIGNMENT, student)
            late.timestamp = DUE + timedelta(minutes=minutes)
        gradebook.db.commit()
    words = BeautifulSoup(page.class_page(folder, ASSIGNMENT), "html.parser").find(id="time").text
    assert "After the due date: ada (1 d 12 h), ben (59 min)." in words


def test_who_is_gone_from_the_gradebook_counts_in_no_misconception(tmp_path):
    from nbgrader.api import Gradebook

    shown = {name: Paper(clip=1, status={"03a.clip": "by-value"}) for name in ("ada", "gone")}
    folder = make(tmp_path / "class", shown)
    with Gradebook(f"sqlite:///{folder}/gradebook.db") as gradebook:
        gradebook.remove_student("gone")
    soup = BeautifulSoup(page.class_page(folder, ASSIGNMENT), "html.parser")
    ((count, _, _, who),) = table(soup, "shared")
    assert (count, who) == ("1 of 1", "ada")
    ((student, kind, words),) = table(soup, "people")
    assert (student, kind) == ("gone", "not graded") and "move the folder out of" in words


def test_the_page_comes_for_all_whatever_one_of_them_wrote(tmp_path, monkeypatch):
    wrote = {
        "ada": "import gc\ngc.get_objects()",
        "chain": "z = a" + ".b" * 1200,
        "faulty": "x = 'unforeseen'",
    }
    papers = {student: Paper(cells={"clip": source}) for student, source in wrote.items()}
    folder = make(tmp_path / "class", papers)

    def words_for(cells, exercises):
        assert "unforeseen" not in str(cells)
        return conspicuous.words_for(cells, exercises)

    monkeypatch.setattr(page, "words_for", words_for)
    soup = BeautifulSoup(page.class_page(folder, ASSIGNMENT), "html.parser")
    said = {student: words for student, kind, words in table(soup, "people") if kind == "to read"}
    assert "needs: gc, get_objects" in said["ada"]
    assert said["chain"] == "code in “clip” is nested more than 200 deep, and was not read"
    assert said["faulty"] == "its code could not be read (AssertionError)"


def test_what_a_flag_means_stands_below_the_flags_that_are_there(big_page, tmp_path):
    words = " ".join(big_page.find(id="people").get_text().split())
    assert "Questions, not findings; none of them changes points." in words
    assert "edited checks : a locked cell" in words.replace("checks:", "checks :")
    assert "to read" not in words, "nobody has that one"
    quiet = page.class_page(make(tmp_path / "class", {"ada": Paper()}), ASSIGNMENT)
    assert "fewer than 12 notebooks it is unknown what is usual" in " ".join(quiet.split())
    assert "Questions, not findings" not in quiet
