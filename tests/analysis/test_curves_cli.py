"""`course curves`: a run that was recorded is read and drawn; anything else is named."""

import json
import math
import subprocess
import sys

import pytest
import torch
from torch import nn
from typer.testing import CliRunner

from course import cli
from course.analysis import read_curves
from course.data.loading import InMemoryLoader
from course.engine import Trainer
from course.engine.errors import NonFiniteError


def recorded(run_dir, *, epochs=8, lr=0.1, validation=True):
    """A line fitted through noise, as small as a run can be."""
    torch.manual_seed(0)
    inputs = torch.randn(64, 2)
    targets = inputs.sum(1, keepdim=True) + 0.1 * torch.randn(64, 1)
    model = nn.Linear(2, 1)
    trainer = Trainer(
        model, nn.MSELoss(), torch.optim.SGD(model.parameters(), lr), run_dir=run_dir, seed=0
    )
    train, val = (InMemoryLoader(inputs[part], targets[part], 16, shuffle=False)
                  for part in (slice(48), slice(48, 64)))  # fmt: skip
    trainer.fit(train, val if validation else None, epochs=epochs, progress=False)
    return run_dir


@pytest.fixture(scope="module")
def run_dir(tmp_path_factory):
    return recorded(tmp_path_factory.mktemp("runs") / "line")


def course_curves(*words):
    return CliRunner().invoke(cli.app, ["curves", *map(str, words)])


def refusal(*words):
    found = course_curves(*words)
    assert isinstance(found.exception, ValueError), found.output
    return str(found.exception)


def test_it_prints_what_read_curves_says(run_dir):
    output = course_curves(run_dir).output
    reading = read_curves(run_dir)
    assert output == f"{run_dir}, 8 epochs\n{reading}\n"
    assert "cheapest first" in output and reading.verdict in output


def test_json_holds_the_verdict_and_its_numbers(run_dir):
    found = json.loads(course_curves(run_dir, "--json").output)
    reading = read_curves(run_dir)
    assert found == {"run": str(run_dir), "epochs": 8, **reading.to_json()}
    lines = [json.loads(line) for line in (run_dir / "metrics.jsonl").read_text().splitlines()]
    losses = [line["train_loss"] for line in lines if line["kind"] == "epoch"]
    assert found["evidence"]["first training loss"] == losses[0]


def test_the_plot_is_drawn_into_a_file(run_dir, tmp_path):
    file = tmp_path / "curves.png"
    assert f"plot: {file}" in course_curves(run_dir, "--plot", file).output
    assert file.read_bytes().startswith(b"\x89PNG")
    assert refusal(run_dir, "--plot", tmp_path / "curves.doc").endswith("such as curves.png.")
    assert "Create it first: mkdir -p" in refusal(
        run_dir, "--plot", tmp_path / "none" / "curves.png"
    )


def test_a_run_without_validation_is_undecided_and_says_why(tmp_path):
    output = course_curves(recorded(tmp_path / "bare", validation=False)).output
    assert "undecided" in output and "without a validation loss" in output


def test_a_run_that_exploded_has_diverged(tmp_path):
    with pytest.raises(NonFiniteError):
        recorded(tmp_path / "fast", epochs=40, lr=1e6)
    found = json.loads(course_curves(tmp_path / "fast", "--json").output)
    assert found["verdict"] == "diverged"
    assert all(math.isfinite(float(v)) for v in found["evidence"].values())


def test_what_is_no_run_directory_is_named_with_the_next_step(run_dir, tmp_path):
    (tmp_path / "foreign").mkdir()
    for name in ("a.csv", "b.csv"):
        (tmp_path / "foreign" / name).touch()
    (tmp_path / "empty").mkdir()
    (tmp_path / "cut").mkdir()
    (tmp_path / "cut" / "run.json").write_text('{"settings": ')
    assert "no such directory" in refusal(tmp_path / "nowhere")
    assert "course curves" in refusal(run_dir / "metrics.jsonl")
    assert "empty, nothing was recorded there" in refusal(tmp_path / "empty")
    assert "contains a.csv, b.csv" in refusal(tmp_path / "foreign")
    assert f"course curves {run_dir}" in refusal(run_dir.parent)
    assert "cannot be read as JSON" in refusal(tmp_path / "cut")


def test_a_fault_of_the_user_is_one_line_and_exit_code_2(tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", "course.cli", "curves", str(tmp_path / "nowhere")],
        capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert done.returncode == 2 and done.stdout == ""
    assert done.stderr.startswith("course: ") and done.stderr.count("\n") == 1
