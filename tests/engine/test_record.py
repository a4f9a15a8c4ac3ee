"""The run record: what it holds, and how two runs are compared."""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import warnings

import pytest
import torch
from torch import nn
from torch.optim import SGD
from torch.utils.data import DataLoader, Subset, TensorDataset
from typer.testing import CliRunner

from course.data.loading import InMemoryLoader, make_loader
from course.engine import (
    Callback,
    EngineError,
    NonFiniteError,
    Trainer,
    checkpoint,
    compare,
    load_weights,
    read_run,
    read_runs,
)
from course.engine.record import code_identity, data_identity
from course.engine.runs_cli import app

INPUTS = torch.randn(24, 4, generator=torch.Generator().manual_seed(0))
TARGETS = torch.arange(24) % 3


def train(
    run_dir, *, lr=0.1, seed=0, batch_size=4, val=None, inputs=INPUTS, epochs=2, callbacks=(),
    **options,
):  # fmt: skip
    torch.manual_seed(0)
    model = nn.Linear(4, 3)
    trainer = Trainer(
        model,
        nn.CrossEntropyLoss(),
        SGD(model.parameters(), lr=lr),
        seed=seed,
        device="cpu",
        run_dir=run_dir,
        callbacks=callbacks,
    )
    loader = DataLoader(TensorDataset(inputs[:18], TARGETS[:18]), batch_size)
    val = val or DataLoader(TensorDataset(inputs[18:], TARGETS[18:]), 6)
    return trainer.fit(loader, val, epochs=epochs, progress=False, **options)


def test_a_record_says_what_the_run_was(tmp_path):
    history = train(tmp_path / "run", config={"augment": "none"})
    run = read_run(tmp_path / "run")
    content = run.content
    assert run.status == "finished" and content["updates"] == 10 and content["seed"] == 0
    assert content["settings"]["optimizer.lr"] == 0.1
    assert content["settings"]["augment"] == "none"
    assert content["settings"]["batch_size"] == 4
    assert content["data"]["train"]["num_examples"] == 18
    assert set(content["code"]) == {"commit", "dirty"}
    assert content["hardware"]["device"] == "cpu"
    assert content["versions"]["torch"] == torch.__version__
    assert run.best == history.best and content["last"] == history[-1]
    assert {"last.pt", "best.pt", "metrics.jsonl", "run.json"} <= {
        file.name for file in (tmp_path / "run").iterdir()
    }


def test_settings_of_ones_own_never_replace_the_records(tmp_path):
    given = {"mode": "train", "epochs": "nine", "seed": 3, "variant": "wide"}
    train(tmp_path / "mapping", config=given)
    train(tmp_path / "namespace", config=argparse.Namespace(**given))
    for name in ("mapping", "namespace"):
        run = read_run(tmp_path / name)
        settings = run.content["settings"]
        assert (settings["mode"], settings["epochs"], run.identity()["seed"]) == ("min", 2, 0)
        assert settings["config.mode"] == "train" and settings["config.epochs"] == "nine"
        assert run.identity()["config.seed"] == 3 and settings["variant"] == "wide"
        del run.content["best"]  # as of a run that was killed
        assert run.best["val_loss"] == min(
            line["val_loss"] for line in run.metrics() if line["kind"] == "epoch"
        )


def test_settings_without_names_are_refused(tmp_path):
    with pytest.raises(EngineError, match=r"config = \['a'\]: expected settings by name"):
        train(tmp_path / "run", config=["a"])


def test_a_record_names_the_commit_and_says_whether_a_file_differs_from_it(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    assert code_identity() == {"commit": None, "dirty": None}

    def git(*words):
        as_one = ("git", "-c", "user.name=one", "-c", "user.email=one@example.org", *words)
        return subprocess.run(as_one, capture_output=True, text=True, check=True).stdout.strip()

    git("init")
    assert code_identity() == {"commit": None, "dirty": False}
    file = tmp_path / "train.py"
    file.write_text("lr = 0.1")
    assert code_identity()["dirty"] is False  # git does not know the file
    git("add", "train.py")
    git("commit", "-m", "Begin")
    assert code_identity() == {"commit": git("rev-parse", "HEAD"), "dirty": False}
    file.write_text("lr = 0.2")
    assert code_identity() == {"commit": git("rev-parse", "HEAD"), "dirty": True}


def test_a_failed_run_says_why(tmp_path):
    with pytest.raises(NonFiniteError):
        train(tmp_path / "run", inputs=INPUTS * torch.nan)
    content = read_run(tmp_path / "run").content
    assert content["status"] == "failed" and "NonFiniteError" in content["reason"]


class FailsAtTheEnd(Callback):
    """Its on_fit_end fails; the update before it too, if asked."""

    def __init__(self, *, earlier: bool) -> None:
        self.earlier, self.ended = earlier, 0

    def on_update_end(self, trainer):
        if self.earlier:
            raise ValueError("mine")

    def on_fit_end(self, trainer):
        self.ended += 1
        raise RuntimeError("in on_fit_end")


@pytest.mark.parametrize(
    ("earlier", "error", "says"), [(True, ValueError, "mine"), (False, RuntimeError, "in on_fit")]
)
def test_an_error_in_on_fit_end_does_not_hide_the_first(tmp_path, earlier, error, says):
    callback = FailsAtTheEnd(earlier=earlier)
    with pytest.raises(error, match=says) as caught:
        train(tmp_path / "run", callbacks=[callback])
    content = read_run(tmp_path / "run").content
    assert content["status"] == "failed" and says in content["reason"]
    assert callback.ended == 1
    assert not earlier or "on_fit_end then raised RuntimeError" in caught.value.__notes__[-1]


def test_a_killed_run_is_still_running_and_its_best_is_in_the_log(tmp_path):
    history = train(tmp_path / "run")
    record = tmp_path / "run" / "run.json"
    content = json.loads(record.read_text())
    record.write_text(json.dumps(content | {"status": "running", "best": None}))
    assert read_run(tmp_path / "run").best["val_loss"] == history.best["val_loss"]


def test_a_directory_in_which_another_process_trains_is_said(tmp_path):
    train(tmp_path / "run")
    record = tmp_path / "run" / "run.json"
    content = json.loads(record.read_text()) | {"status": "running"}
    assert content["process"]["pid"] == os.getpid()
    content["process"]["pid"] = os.getppid()
    record.write_text(json.dumps(content))
    with pytest.warns(UserWarning, match=rf"process {os.getppid()} is still training there"):
        train(tmp_path / "run", resume="auto", epochs=3)
    gone = subprocess.Popen(["true"])
    gone.wait()
    content["process"]["pid"] = gone.pid
    record.write_text(json.dumps(content))
    with warnings.catch_warnings():  # it was killed: the usual case
        warnings.simplefilter("error")
        train(tmp_path / "run", resume="auto", epochs=4)


def test_a_run_that_continues_elsewhere_has_its_best_weights_there(tmp_path):
    worsens = {"monitor": "train_loss", "mode": "max", "config": None}  # epoch 1 stays the best
    train(tmp_path / "first", **worsens)
    history = train(tmp_path / "second", resume=tmp_path / "first", epochs=3, **worsens)
    best = load_weights(nn.Linear(4, 3), tmp_path / "second" / "best.pt")
    assert best["epoch"] == history.best["epoch"] == 1
    logged = [line["epoch"] for line in read_run(tmp_path / "second").metrics() if "lr" in line]
    assert set(logged) == {1, 2, 3}
    (tmp_path / "first" / "best.pt").unlink()
    with pytest.warns(UserWarning, match="no best.pt of the best epoch so far, 1"):
        train(tmp_path / "third", resume=tmp_path / "first", epochs=3, **worsens)


def test_a_run_that_continues_where_another_one_is_keeps_that_beside_it(tmp_path):
    worsens = {"monitor": "train_loss", "mode": "max", "config": None}  # epoch 1 stays the best
    train(tmp_path / "first", **worsens)
    train(tmp_path / "other", lr=0.3, epochs=4, **worsens)
    others = load_weights(nn.Linear(4, 3), tmp_path / "other" / "best.pt")
    history = train(tmp_path / "other", resume=tmp_path / "first", epochs=3, **worsens)
    assert load_weights(nn.Linear(4, 3), tmp_path / "other" / "best.pt") == history.best
    assert load_weights(nn.Linear(4, 3), tmp_path / "other-1" / "best.pt") == others
    epochs = [line["epoch"] for line in read_run(tmp_path / "other").metrics() if "lr" in line]
    assert set(epochs) == {1, 2, 3}


def test_the_working_directory_cannot_be_set_aside(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    train(".")
    with pytest.raises(EngineError, match=r"run_dir = '\.': holds an earlier run.*runs/second"):
        train(".")
    assert read_run(tmp_path).status == "finished"


class Deletes(Callback):
    def on_epoch_start(self, trainer):
        if trainer.progress.epoch == 2:
            shutil.rmtree(trainer.run_dir)


def test_a_directory_that_is_deleted_during_the_run_is_said(tmp_path):
    with pytest.raises(EngineError, match="gone: was it moved or deleted"):
        train(tmp_path / "run", callbacks=[Deletes()])


def test_weights_come_with_the_numbers_of_the_epoch_that_has_just_ended(tmp_path):
    history = train(tmp_path / "run")
    model = nn.Linear(4, 3)
    assert load_weights(model, tmp_path / "run") == history[-1]
    state = checkpoint.load(tmp_path / "run" / "last.pt")
    state["progress"]["update"] += 1
    checkpoint.save(state, tmp_path / "inside.pt")
    assert load_weights(model, tmp_path / "inside.pt") == {}


@pytest.mark.filterwarnings("ignore:Sparse CSR")
def test_data_has_an_identity_of_its_examples_and_their_order():
    data = TensorDataset(INPUTS, TARGETS)

    def identity(dataset):
        return data_identity(DataLoader(dataset, 4))["hash"]

    one = identity(Subset(data, [0, 1, 2]))
    assert one == identity(Subset(TensorDataset(INPUTS.clone(), TARGETS), [0, 1, 2]))
    assert one != identity(Subset(data, [0, 2, 1]))
    changed = INPUTS.clone()
    changed[0, 0] += 1e-6
    assert one != identity(Subset(TensorDataset(changed, TARGETS), [0, 1, 2]))
    assert data_identity(InMemoryLoader(INPUTS, TARGETS, 4)) == data_identity(make_loader(data, 4))
    batch = (INPUTS.to_sparse(), TARGETS)
    assert data_identity([batch]) == data_identity([(INPUTS.to_sparse(), TARGETS)])
    assert data_identity([batch])["hash"] != data_identity([(changed.to_sparse(), TARGETS)])["hash"]
    assert data_identity([(INPUTS.to_sparse_csr(), TARGETS)])["hash"] is None
    assert data_identity([1, 2])["hash"] is None  # said to be unknown, not made up


def test_one_change_is_named_with_the_metric_beside_it(tmp_path):
    first, second = train(tmp_path / "a"), train(tmp_path / "b", lr=0.5)
    found = compare(read_run(tmp_path / "a"), read_run(tmp_path / "b"))
    assert found.changed == {"optimizer.lr": (0.1, 0.5)}
    assert found.values == (first.best["val_loss"], second.best["val_loss"])
    assert found.verdict == "One thing changed: optimizer.lr."


def test_two_changes_are_called_so(tmp_path):
    train(tmp_path / "a")
    train(tmp_path / "b", lr=0.5, batch_size=6)
    found = compare(read_run(tmp_path / "a"), read_run(tmp_path / "b"))
    assert set(found.changed) == {"optimizer.lr", "batch_size"}
    assert found.verdict.startswith("2 things changed") and "one at a time" in found.verdict


def test_a_seed_is_noise_and_another_validation_set_is_no_comparison(tmp_path):
    train(tmp_path / "a")
    train(tmp_path / "b", seed=1)
    train(tmp_path / "c", val=DataLoader(TensorDataset(INPUTS[:6], TARGETS[:6]), 6))
    a, b, c = (read_run(tmp_path / name) for name in "abc")
    assert "noise" in compare(a, b).verdict
    assert "cannot be compared" in compare(a, c).verdict
    assert compare(a, a).verdict == "Nothing changed."


def test_runs_are_listed_the_oldest_first(tmp_path):
    for name in ("z", "y"):
        train(tmp_path / name)
    record = tmp_path / "y" / "run.json"
    content = json.loads(record.read_text())
    record.write_text(json.dumps(content | {"started": "2999-01-01T00:00:00+00:00"}))
    assert [run.name for run in read_runs(tmp_path)] == ["z", "y"]


def call(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def test_the_command_lists_shows_and_compares(tmp_path):
    train(tmp_path / "a")
    train(tmp_path / "b", lr=0.5)
    listed = call("list", tmp_path)
    assert listed.exit_code == 0 and "best val_loss" in listed.output
    assert len(json.loads(call("list", tmp_path, "--json").output)) == 2
    shown = call("show", tmp_path / "a")
    assert "optimizer.lr" in shown.output and "val_accuracy" in shown.output
    assert json.loads(call("show", tmp_path / "a", "--json").output)["status"] == "finished"
    compared = call("compare", tmp_path / "a", tmp_path / "b")
    assert "One thing changed: optimizer.lr." in compared.output
    as_json = json.loads(call("compare", tmp_path / "a", tmp_path / "b", "--json").output)
    assert as_json["changed"] == {"optimizer.lr": [0.1, 0.5]}


@pytest.mark.parametrize(
    "arguments", [("list", "nowhere"), ("show", "nowhere"), ("compare", "nowhere", "nowhere")]
)
def test_a_wrong_path_is_the_users_fault_in_one_line(arguments):
    result = call(*arguments)
    assert result.exit_code == 2
    assert "nowhere" in result.output and len(result.output.splitlines()) == 1


def test_an_empty_directory_says_how_runs_come_about(tmp_path):
    assert "Trainer(run_dir=...)" in call("list", tmp_path).output


@pytest.mark.parametrize("text", ["", "{", "[]", '{"a": 1}'])
def test_a_foreign_record_is_named(tmp_path, text):
    (tmp_path / "run.json").write_text(text)
    with pytest.raises(EngineError, match=r"run\.json"):
        read_run(tmp_path)


def test_every_log_line_has_a_gradient_norm(tmp_path):
    train(tmp_path / "run", log_every=1)
    text = (tmp_path / "run" / "metrics.jsonl").read_text()
    lines = [line for line in map(json.loads, text.splitlines()) if line["kind"] == "update"]
    assert len(lines) == 10
    assert all(line["grad_norm"] > 0 for line in lines)


@pytest.mark.parametrize("content", [{"settings": {}}, [], 5, {"settings": {"monitor": "loss"}}])
def test_a_record_of_something_else_is_named_and_the_others_are_listed(tmp_path, content):
    train(tmp_path / "mine")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "run.json").write_text(json.dumps(content))
    result = CliRunner().invoke(app, ["list", str(tmp_path)])
    assert result.exit_code == 2 and "mine" in result.output
    assert "other" in result.stderr and "was not written by this engine" in result.stderr


def test_a_learning_rate_in_a_tensor_is_recorded_as_the_number_that_it_was(tmp_path):
    """A schedule fills it in place."""

    def fit(resume=None, epochs=3):
        model = nn.Linear(4, 3)
        optimizer = torch.optim.AdamW(model.parameters(), lr=torch.tensor(0.5))
        scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)
        trainer = Trainer(
            model, nn.CrossEntropyLoss(), optimizer, scheduler=scheduler, run_dir=tmp_path / "run"
        )
        return trainer.fit([(INPUTS, TARGETS)], epochs=epochs, resume=resume)

    fit(epochs=1)
    history = fit(resume="auto")
    assert history.column("lr") == [0.5, 0.25, 0.125]
    assert [epoch["lr"] for epoch in json.loads(history.to_json())["epochs"]] == [0.5, 0.25, 0.125]
    assert read_run(tmp_path / "run").content["settings"]["optimizer.lr"] == 0.5


class KilledAfterTheLine(Callback):
    def on_epoch_end(self, trainer):
        if trainer.progress.epoch == 2:
            raise KeyboardInterrupt


def test_an_epoch_whose_line_the_kill_came_after_is_logged_once(tmp_path):
    """A checkpoint inside the epoch was at its last update, so that it is validated again."""
    run = {"epochs": 3, "checkpoint_every": 5}  # 5 updates an epoch
    with pytest.raises(KeyboardInterrupt):
        train(tmp_path / "run", callbacks=[KilledAfterTheLine()], **run)
    history = train(tmp_path / "run", resume="auto", **run)
    lines = [line for line in read_run(tmp_path / "run").metrics() if line["kind"] == "epoch"]
    assert [line["updates"] for line in lines] == [5, 10, 15] == history.column("updates")
