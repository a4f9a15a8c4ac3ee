"""The course page: who falls behind, what comes back, and nothing of a student's that runs."""

import random
import sys

import pytest
from bs4 import BeautifulSoup

from autograde import cli
from autograde.classroom import course_numbers
from autograde.classroom.course_numbers import (
    DROP,
    Course,
    behind,
    read_course,
    returning,
    share,
    weak,
)
from autograde.classroom.course_page import course_page
from autograde.classroom.page import exercise_statistics
from autograde.classroom.report import Row, read_rows
from autograde.classroom.safe_html import POLICY
from tests.autograde.paper_class import ASSIGNMENT, Paper, make

EVIL = '"><script>alert(1)</script><img src=x onerror=alert(1)>'


def row(student, *points, most=10.0, **more):
    names = [f"e{n}" for n in range(len(points))]
    return Row(
        student=student,
        scores=dict(zip(names, points, strict=True)),
        max_scores=dict.fromkeys(names, most),
        seen={},
        to_grade_by_hand=more.get("waits", []),
        not_graded=more.get("why", ""),
        penalty=more.get("penalty", 0.0),
    )


def course_of(points):
    """By student, points of 10 for each assignment in order; None is nothing handed in."""
    count = len(next(iter(points.values())))
    course = Course(students=sorted(points))
    for number in range(count):
        name = f"{number:02}"
        course.verdicts[name] = {}
        course.rows[name] = {
            student: row(student, of_student[number])
            for student, of_student in points.items()
            if of_student[number] is not None
        }
    return course


def test_falling_behind_is_seen_against_the_class_and_against_oneself():
    points = {f"steady{n}": [8, 8, 8, 4, 4, 4] for n in range(5)}  # the last three are hard
    points["fell"] = [8, 8, 8, 1, 1, 1]
    points["weak"] = [3, 3, 3, 0, 0, 0]
    points["gone"] = [9, 9, 9, None, None, 9]
    points["once"] = [9, 9, 9, 9, 9, None]
    found = {one.student: one.words for one in behind(course_of(points))}
    assert set(found) == {"gone", "fell"}
    assert found["gone"] == "handed in nothing for 2 of the last 3"
    assert "from +0 to -30 percent" in found["fell"]
    assert behind(course_of(points))[0].student == "gone"


def test_the_drop_that_counts_is_the_one_it_says():
    for now, named in ((8 - 10 * DROP, True), (8 - 10 * DROP + 0.1, False)):
        points = {f"s{n}": [8] * 6 for n in range(5)} | {"ada": [8, 8, 8, now, now, now]}
        assert bool(behind(course_of(points))) == named


def test_nobody_falls_behind_in_a_first_assignment():
    assert behind(course_of({"ada": [0.0], "ben": [10.0]})) == []


def verdict(*names):
    checks = [{"exercise": f"x.{n}", "misconception": name} for n, name in enumerate(names)]
    return {"checks": checks}


def test_a_misconception_comes_back_where_two_assignments_show_it():
    course = Course(students=["ada", "ben"])
    course.verdicts = {
        "01": {"ada": verdict("mean of means"), "ben": verdict("once", "once")},
        "02": {"ada": verdict("mean of means, two"), "ben": verdict("mean of means")},
    }
    (one,) = returning(course)
    assert (one.name, one.students, one.again) == ("mean of means", ["ada", "ben"], ["ada"])


def test_an_exercise_that_does_not_discriminate_is_named_and_one_that_does_is_not():
    draw = random.Random(0)
    rows = []
    for n in range(60):
        level = n / 60
        good = [10.0 * (draw.random() < level) for _ in range(6)]
        rows.append(row(f"s{n:02}", *good, 10.0 * (n < 30), 10.0))
    found = weak(exercise_statistics(rows))
    assert [one.name for one in found] == ["e6"], (
        "the weak do better; e7, which all have, is not named"
    )
    assert weak(exercise_statistics(rows[:20])) == [], "too few grades"


def test_the_points_are_those_of_the_class_page(tmp_path):
    papers = {
        "ada": Paper(extra=1.0, penalty=2.0),
        "ben": Paper(clip=1.0, why=None),
        "cem": Paper(not_graded="submitted/cem: is empty."),
    }
    folder = make(tmp_path / "class", papers)
    course = read_course(folder)
    for ours, theirs in zip(
        course.rows[ASSIGNMENT].values(), read_rows(folder, ASSIGNMENT), strict=True
    ):
        for name in ("student", "scores", "max_scores", "total", "penalty", "to_grade_by_hand"):
            assert getattr(ours, name) == getattr(theirs, name), name
        assert bool(ours.not_graded) == bool(theirs.not_graded)
    assert share(course.rows[ASSIGNMENT]["cem"]) is None


def test_nothing_that_a_student_wrote_runs(tmp_path, monkeypatch):
    course = course_of({EVIL: [1.0, 2.0], "ben": [9.0, 9.0]})
    for name in course.rows:
        course.verdicts[name] = {EVIL: verdict(EVIL)}
        course.rows[name]["ben"] = row("ben", why=EVIL)
    monkeypatch.setattr(course_numbers, "LEAST_GRADES", 1)
    page = course_page(course, EVIL)
    soup = BeautifulSoup(page, "html.parser")
    assert not soup(["script", "img", "iframe", "object", "link"])
    assert not [tag for tag in soup(True) if any(name.startswith("on") for name in tag.attrs)]
    (policy,) = soup("meta", attrs={"http-equiv": "Content-Security-Policy"})
    assert policy["content"] == POLICY
    assert all(link["href"].startswith("#") for link in soup("a"))
    assert "http" not in page.replace("http-equiv", "")
    assert "prefers-color-scheme: dark" in page and "max-width: 40rem" in page
    assert soup.find("th", string=EVIL), "the name is shown as it is"


def test_the_command_writes_one_page_and_links_class_pages(tmp_path, monkeypatch, capsys):
    folder = make(tmp_path / "class", {"ada": Paper(), "ben": Paper(clip=0.0)})
    (folder / "report").mkdir()
    (folder / "report" / f"{ASSIGNMENT}.html").write_text("")

    def run(*words):
        monkeypatch.setattr(sys, "argv", ["autograde", "report", *words, "--dir", str(folder)])
        with pytest.raises(SystemExit) as left:
            cli.main()
        return left.value.code, capsys.readouterr()

    code, said = run("--all")
    assert code == 0 and "2 students, 1 assignments" in said.out
    page = (folder / "report" / "course.html").read_text("utf-8")
    soup = BeautifulSoup(page, "html.parser")
    assert soup.find("a", href=f"{ASSIGNMENT}.html")
    students = soup.select_one("#students tbody")
    assert [tr.find("th").text for tr in students("tr")] == ["ada", "ben"]
    assert [tr.find("td").text for tr in students("tr")] == ["100", "60"]
    assert run("--all", "--json")[0] == 2
