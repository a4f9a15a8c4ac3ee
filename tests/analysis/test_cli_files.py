"""Files and directories that a command is given: named in one line, nothing lost in silence."""

from __future__ import annotations

import json
import sys

import pytest

from course import cli


@pytest.fixture
def run_course(monkeypatch, capsys):
    """`course WORDS...`: exit code, standard output, standard error."""

    def run(*words: object) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["course", *map(str, words)])
        with pytest.raises(SystemExit) as left:
            cli.main()
        shown = capsys.readouterr()
        return left.value.code or 0, shown.out, shown.err

    return run


def record(folder, val_loss: float):
    """A run directory as the engine writes it, with two epochs."""
    folder.mkdir(parents=True)
    content = {
        "settings": {"lr": val_loss, "monitor": "val_loss", "mode": "min"},
        "started": "2026-01-01T00:00:00", "seed": 0, "status": "finished",
        "best": {"epoch": 2, "val_loss": val_loss},
        "data": {}, "code": {}, "hardware": {}, "versions": {},
    }  # fmt: skip
    (folder / "run.json").write_text(json.dumps(content))
    lines = [
        json.dumps({"kind": "epoch", "epoch": n, "train_loss": 3.0 - n, "val_loss": val_loss})
        for n in (1, 2)
    ]
    (folder / "metrics.jsonl").write_text("\n".join(lines) + "\n")
    return folder


@pytest.mark.parametrize(
    "name, says",
    [
        ("", "a directory. Name a file in it"),
        ("missing/curves.png", "mkdir -p"),
        ("curves", "figures can be written as"),
        ("curves.docx", "figures can be written as"),
    ],
)
def test_a_figure_goes_to_the_file_asked_for_or_nowhere(run_course, tmp_path, name, says):
    """matplotlib would write DIRECTORY.png beside the directory."""
    folder = tmp_path / "figures"
    folder.mkdir()
    run = record(tmp_path / "runs" / "first", 0.5)
    for command in (["curves", run], ["museum", "B08"]):
        code, out, err = run_course(*command, "--plot", folder / name)
        assert code == 2 and not out
        assert err.startswith("course") and says in err and err.count("\n") == 1
    assert not list(folder.iterdir()) and not (tmp_path / "figures.png").exists()
    assert run_course("curves", run, "--plot", folder / "curves.png")[0] == 0
    assert [file.name for file in folder.iterdir()] == ["curves.png"]


def test_one_broken_record_does_not_hide_the_others(run_course, tmp_path):
    record(tmp_path / "good", 0.5)
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "run.json").write_text('{"a":')
    code, out, err = run_course("runs", "list", tmp_path)
    assert code == 2 and "good" in out and "0.5" in out
    assert err.startswith("course runs: ") and "broken" in err and err.count("\n") == 1


def test_two_runs_of_one_name_keep_a_column_each(run_course, tmp_path):
    first, second = (
        record(tmp_path / side / "digits", loss) for side, loss in (("a", 0.5), ("b", 0.25))
    )
    code, out, _ = run_course("runs", "compare", first, second)
    assert code == 0 and str(first) in out and str(second) in out
    assert "0.5" in out and "0.25" in out
    code, _, err = run_course("runs", "compare", first, first)
    assert code == 2 and "was given twice, and a run does not differ from itself" in err


@pytest.mark.parametrize("typed", ["b8", "B8", "b-08"])
def test_a_bug_may_be_typed_loosely(typed):
    from course.debug.museum_cli import _as_id

    assert _as_id(typed) == "B08" and _as_id("zero_grad") == "zero_grad"


def test_a_plot_belongs_to_a_bug(run_course, tmp_path):
    code, out, err = run_course("museum", "--plot", tmp_path / "a.png")
    assert code == 2 and not out and "name the bug to plot" in err
