"""What an instructor types wrongly: one line that says what there is, and exit code 2."""

import os
import signal
import subprocess
import sys
import time
import unicodedata
from dataclasses import replace

import pytest
from nbgrader.api import Gradebook

from autograde import cli
from autograde.class_dir import did_you_mean
from autograde.classroom import release
from autograde.classroom.grading import Outcome
from tests.autograde.paper_class import ASSIGNMENT, Paper, make

NAMES = ("ada", "ben", "øyvind", "zoë")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    papers = {name: Paper(why=None if name == "ben" else 2.0) for name in NAMES}
    return make(tmp_path_factory.mktemp("cli") / "class", papers)


@pytest.fixture
def autograde(folder, monkeypatch, capsys):
    """Run the command in this process; returns exit code, stdout and stderr."""

    def run(*words):
        monkeypatch.setattr(sys, "argv", ["autograde", *words, "--dir", str(folder)])
        with pytest.raises(SystemExit) as left:
            cli.main()
        said = capsys.readouterr()
        return left.value.code, said.out, said.err

    return run


@pytest.mark.parametrize("command", ["feedback"])
def test_every_unknown_student_is_named_with_the_nearest_one_and_nothing_is_done(
    autograde, folder, command
):
    code, out, err = autograde(command, "--students", "ada,Ben,oyvind,nobody")
    assert code == 2 and out == "" and len(err.splitlines()) == 1
    assert "'Ben' (did you mean 'ben'?), 'oyvind' (did you mean 'øyvind'?), 'nobody' " in err
    assert "'ada'" not in err and "Nothing was done" in err
    assert not (folder / "feedback").exists()


def test_a_list_of_a_thousand_unknown_students_is_still_a_line(autograde):
    code, _, err = autograde("grade", "--students", ",".join(f"s{n:04}" for n in range(1000)))
    assert code == 2 and "and 995 more" in err and len(err) < 400


@pytest.mark.parametrize("students", [",", " , ", ""])
def test_a_list_that_names_nobody_is_refused(autograde, students):
    code, _, err = autograde("grade", "--students", students)
    assert code == 2 and "names nobody" in err


def test_what_was_said_of_unchanged_work_is_not_said_again(tmp_path, monkeypatch):
    """Else a deleted check, graded long ago, would make every later run end with exit 2."""
    for name in ("_unprotected", "_doubtful_times", "_off_roster"):
        monkeypatch.setattr(cli, name, lambda *_about: iter(()))
    odd = Outcome(student="ada", notes=["check cell 'a' was deleted"])
    before = replace(odd, unchanged=True)
    assert list(cli._needing_you([before, before], tmp_path, ASSIGNMENT)) == []
    assert list(cli._needing_you([before, odd], tmp_path, ASSIGNMENT)) == odd.notes


def test_an_id_is_known_however_its_accents_are_written(folder):
    from autograde.class_dir import check_students

    composed = unicodedata.normalize("NFC", "zoë")
    apart = unicodedata.normalize("NFD", "zoë")
    assert composed != apart
    assert check_students([composed, composed], [apart], "") == [apart]


def test_the_nearest_name_is_near():
    assert did_you_mean("03a", ["03a-training-recipe", "03b-debug-ladder"]) == (
        " (did you mean '03a-training-recipe'?)"
    )
    assert did_you_mean("Łukasz", ["lukasz", "łukas"]) == " (did you mean 'łukas'?)"
    assert did_you_mean("nina", ["ada", "ben"]) == ""
    assert did_you_mean("ada", []) == did_you_mean("", ["ada"]) == ""


def test_an_assignment_that_differs_in_case_is_suggested(autograde):
    code, _, err = autograde("grade", ASSIGNMENT.upper())
    assert code == 2 and f"(did you mean '{ASSIGNMENT}'?)" in err


@pytest.mark.parametrize("option", ["--cell-timeout", "--answer-timeout"])
@pytest.mark.parametrize("seconds", ["0", "-1", "nan", "inf"])
def test_a_time_limit_that_is_none_is_refused(autograde, option, seconds):
    code, _, err = autograde("grade", option, seconds)
    assert code == 2 and option in err and "seconds above 0" in err


def test_marks_that_are_not_final_are_said_and_only_strict_makes_an_error_of_it(autograde, folder):
    path = folder / "export" / f"{ASSIGNMENT}-csv.csv"
    code, out, err = autograde("export")
    assert code == 0 and "1 answer waits to be graded by hand" in err and str(path) in out
    path.unlink()
    code, _, err = autograde("export", "--strict")
    assert code == 2 and "1 answer waits to be graded by hand" in err and path.exists()


def test_final_marks_are_no_error_for_strict(tmp_path, monkeypatch, capsys):
    done = make(tmp_path / "class", {"ada": Paper()})
    monkeypatch.setattr(sys, "argv", ["autograde", "export", "--strict", "--dir", str(done)])
    with pytest.raises(SystemExit) as left:
        cli.main()
    assert left.value.code == 0 and capsys.readouterr().err == ""


def test_where_submissions_go_is_said_once(autograde, folder, monkeypatch):
    monkeypatch.setattr(release, "release", lambda folder, name: folder / name)
    (folder / "source" / "second").mkdir()
    _, out, _ = autograde("release")
    (folder / "source" / "second").rmdir()
    assert out.count("released") == 2
    assert out.count("Submissions go to") == 1 and "ASSIGNMENT/ASSIGNMENT.ipynb" in out
    _, out, _ = autograde("release", ASSIGNMENT)
    assert f"submitted/STUDENT/{ASSIGNMENT}/{ASSIGNMENT}.ipynb" in out


def test_nbgraders_and_the_disks_refusals_are_one_line(autograde, monkeypatch):
    def refuse(fault):
        def release_(folder, name):
            raise fault

        monkeypatch.setattr(release, "release", release_)
        return autograde("release", ASSIGNMENT)

    code, _, err = refuse(release.NbgraderFault("OSError: no room"))
    assert code == 2 and err == "autograde: nbgrader failed: OSError: no room\n"
    code, _, err = refuse(PermissionError(13, "Permission denied", "/class/gradebook.db"))
    assert code == 2 and err.startswith("autograde: /class/gradebook.db: Permission denied. ")


def test_a_gradebook_that_knows_no_release_says_so(tmp_path):
    """As after gradebook.db was lost: the notebook has not changed, and is not called changed."""
    from autograde.class_dir import ClassDirError
    from autograde.classroom.assignment import Assignment
    from autograde.classroom.grading import check_release

    folder = make(tmp_path / "class", {"ada": Paper()})
    lost = Assignment(
        name="other", cells=[], released={}, given=[], calls={}, version="", exercises=""
    )
    with pytest.raises(ClassDirError, match="does not know other: it was not released"):
        check_release(folder, lost)


def test_a_source_that_an_instructor_edited_is_kept_when_init_renews_it(tmp_path):
    from autograde import class_dir

    name, said = "03b-debug-ladder", []
    (path,) = class_dir.init(tmp_path / "class", [name], say=said.append)
    plain = path.read_text("utf-8")
    class_dir.init(tmp_path / "class", [name], say=said.append)
    assert said == [] and not (tmp_path / "class" / "replaced").exists()
    for edited in (plain.replace("points", "marks"), plain.replace("points", "Punkte")):
        path.write_text(edited, "utf-8")
        class_dir.init(tmp_path / "class", [name], say=said.append)
        kept = tmp_path / "class" / "replaced" / f"{name}-{len(said)}.ipynb"
        assert str(kept) in said[-1] and kept.read_text("utf-8") == edited
        assert path.read_text("utf-8") == plain
    assert sorted(p.name for p in path.parent.iterdir()) == [path.name], "nothing to release"


def test_json_and_the_page_can_be_had_together(autograde, tmp_path):
    code, out, _ = autograde("report", "--json", "--html", str(tmp_path / "class.html"))
    assert code == 0 and out.lstrip().startswith("[")
    assert (tmp_path / "class.html").read_text("utf-8").startswith("<!doctype html>")


def test_a_package_without_the_notebooks_says_where_they_are(tmp_path, monkeypatch):
    from autograde import class_dir, sources

    monkeypatch.setattr(sources, "SOURCES", tmp_path / "site-packages")
    with pytest.raises(class_dir.ClassDirError, match=r"holds no notebooks.*pip install -e"):
        class_dir.init(tmp_path / "class")
    assert not (tmp_path / "class").exists()


def test_a_doubtful_time_makes_marks_not_final(tmp_path, monkeypatch, capsys):
    done = make(tmp_path / "class", {"ada": Paper()})
    (done / "submitted" / "ada" / ASSIGNMENT / "timestamp.txt").write_text("05.03.2026 12:00")
    monkeypatch.setattr(sys, "argv", ["autograde", "export", "--strict", "--dir", str(done)])
    with pytest.raises(SystemExit) as left:
        cli.main()
    assert left.value.code == 2
    assert "autograde: ada: timestamp.txt holds '05.03.2026 12:00'" in capsys.readouterr().err
    (told,) = cli._doubtful_times(done, ASSIGNMENT, ["ada"])
    assert told.startswith(f"{done}/submitted/ada/{ASSIGNMENT}: timestamp.txt holds")
    assert list(cli._doubtful_times(done, ASSIGNMENT, ["ben"])) == [], "not looked at in this run"


def test_an_error_without_a_files_name_says_what_was_being_done(autograde, monkeypatch):
    def check(folder):
        raise FileNotFoundError(2, "No such file or directory")

    monkeypatch.setattr(cli, "check_class_dir", check)
    code, _, err = autograde("report")
    assert code == 2 and err.startswith("autograde: No such file or directory, in autograde/cli.py")
    assert "in report(). Run it again" in err


def test_the_report_names_who_handed_in_nothing(tmp_path, monkeypatch, capsys):
    done = make(tmp_path / "class", {"ada": Paper(names={"first_name": "Ada"})})
    with Gradebook(f"sqlite:///{done}/gradebook.db") as gradebook:
        gradebook.add_student("zoe", first_name="Zoe")
    monkeypatch.setattr(sys, "argv", ["autograde", "report", "--dir", str(done)])
    with pytest.raises(SystemExit):
        cli.main()
    assert "1 on the class list handed in nothing: zoe\n" in capsys.readouterr().out


def test_who_is_not_on_the_class_list_may_be_new_misspelt_or_gone(tmp_path):
    done = make(tmp_path / "class", {"ada": Paper(names={"first_name": "Ada"}), "x y": Paper()})
    (told,) = cli._off_roster(done, ["ada", "x y"])
    assert "If new: nbgrader db student add 'x y' --first-name=NAME." in told
    assert "or the student has left" in told and "nbgrader db student remove 'x y' --force" in told


def test_ctrl_c_while_the_parent_warms_up_prints_no_traceback():
    """The parent is a process of the same terminal; it is deaf, and ends with the command."""
    code = (
        "import signal, time\n"
        "from autograde.sandbox import parent\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)  # a job of a shell ignores it\n"
        "parent.start()\n"
        "print('started', flush=True)\n"
        "try: time.sleep(20)\n"
        "except KeyboardInterrupt: print('stopped')"
    )
    run = subprocess.Popen(
        [sys.executable, "-c", code],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    assert run.stdout.readline() == "started\n"
    time.sleep(1.0)  # the parent is importing
    os.killpg(run.pid, signal.SIGINT)
    assert run.communicate(timeout=30)[0] == "stopped\n"
