"""Reading curves: real runs brought into each state, and drawn ones with noise."""

import json
import math

import numpy as np
import pytest
import torch
from torch import nn

from course.analysis.curves import INTERVENTIONS, read_curves, relative_slope
from course.data import load
from course.data.loading import InMemoryLoader
from course.engine import Trainer
from course.engine.errors import EngineError, NonFiniteError

DIGITS = load("digits")


def run(
    *, lr=1e-3, epochs=12, rows=None, hidden=64, shuffled=False, weight_decay=0.0, gamma=1.0,
    seed=0, **more,
):  # fmt: skip
    torch.manual_seed(seed)
    inputs, targets = DIGITS.train_inputs[:rows], DIGITS.train_targets[:rows]
    if shuffled:
        targets = targets[torch.randperm(len(targets))]
    layers = (nn.Linear(64, hidden), nn.ReLU(), nn.Linear(hidden, 10))
    model = nn.Sequential(nn.Flatten(), *layers)
    optimizer = torch.optim.SGD(model.parameters(), lr, momentum=0.9, weight_decay=weight_decay)
    train = InMemoryLoader(inputs, targets, 32, seed=seed)
    val = InMemoryLoader(DIGITS.val_inputs, DIGITS.val_targets, 256, shuffle=False)
    schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, gamma)
    trainer = Trainer(
        model, nn.CrossEntropyLoss(), optimizer, scheduler=schedule, seed=seed, **more
    )
    return trainer.fit(train, val, epochs=epochs, progress=False, on_nonfinite="skip")


STATES = [
    ("sweet spot", {"lr": 0.03, "epochs": 25}),
    ("underfit", {"lr": 1e-3, "epochs": 5}),
    ("underfit", {"lr": 0.03, "epochs": 25, "weight_decay": 0.3}),
    ("overfit", {"lr": 0.05, "epochs": 40, "rows": 60, "hidden": 256}),
    ("overfit", {"lr": 0.1, "epochs": 60, "shuffled": True, "hidden": 512}),
    ("diverged", {"lr": 0.03, "gamma": 1.7}),
    ("not learning", {"lr": 1e-7}),
]


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("state,options", STATES)
def test_a_run_that_was_brought_into_a_state_is_read_as_in_it(state, options, seed):
    reading = read_curves(run(**options, seed=seed))
    assert reading.verdict == state, str(reading)
    assert reading.interventions == INTERVENTIONS[state]


def drawn(train, val, noise, seed):
    source = np.random.default_rng(seed)
    jitter = np.exp(noise * source.standard_normal((2, len(train))))
    return [
        {"epoch": i + 1, "train_loss": a * j, "val_loss": b * k}
        for i, (a, b, j, k) in enumerate(zip(train, val, *jitter, strict=True))
    ]


EPOCHS = np.arange(30)
FALL = 2.2 * np.exp(-EPOCHS / 4)
DRAWN = {
    "sweet spot": (0.1 + FALL, 0.2 + FALL),
    "overfit": (0.02 + FALL, 0.5 + FALL + 0.03 * np.maximum(EPOCHS - 10, 0)),
    "not learning": (2.3 + 0 * FALL, 2.3 + 0 * FALL),
    "diverged": (2.3 * 1.1**EPOCHS, 2.3 * 1.1**EPOCHS),
    "underfit": (2.3 * 0.96**EPOCHS, 2.35 * 0.96**EPOCHS),
}
TRICKY = {
    "sweet spot after a spike": (
        np.where(EPOCHS == 15, 4, 0.1 + FALL), np.where(EPOCHS == 15, 5, 0.2 + FALL),
    ),
    "sweet spot below zero": (FALL - 3, FALL - 2.9),
    "underfit at rest": (1.4 + FALL * 0.4, 1.45 + FALL * 0.4),
    "diverged to chance": (
        np.where(EPOCHS > 12, 2.3, 0.1 + FALL), np.where(EPOCHS > 12, 2.3, 0.2 + FALL),
    ),
}  # fmt: skip


@pytest.mark.parametrize("noise,least", [(0.02, 98), (0.05, 90)])
@pytest.mark.parametrize("name", [*DRAWN, *TRICKY])
def test_noise_rarely_changes_the_reading(name, noise, least):
    curves = (DRAWN | TRICKY)[name]
    verdicts = [read_curves(drawn(*curves, noise, seed)).verdict for seed in range(100)]
    right = sum(name.startswith(verdict) for verdict in verdicts)
    assert right >= least, {verdict: verdicts.count(verdict) for verdict in set(verdicts)}


def test_the_best_epoch_and_the_gap_are_told_in_numbers():
    reading = read_curves(drawn(*DRAWN["overfit"], 0.0, 0))
    val = DRAWN["overfit"][1]
    assert reading.evidence["best epoch"] == val.argmin() + 1
    assert reading.evidence["best validation loss"] == pytest.approx(val.min())
    assert str(int(val.argmin()) + 1) in reading.reason


def test_the_slope_is_that_of_the_last_third():
    values = [5.0] * 20 + [1.0 - 0.01 * i for i in range(10)]
    assert relative_slope(values) == pytest.approx(-0.01 / 0.91)


@pytest.mark.parametrize(
    "epochs,state,reason",
    [
        ([], "undecided", "0 epochs"),
        ([{"train_loss": 2.0, "val_loss": 2.0}] * 3, "undecided", "can only be read from 4 epochs"),
        ([{"train_loss": v} for v in (2.0, 1.0, 0.5, 0.3, 0.2)], "undecided", "without a valid"),
        ([{"train_loss": v, "val_loss": 1.0} for v in (2, 1.5, math.nan)], "diverged", "epoch 3"),
        ([{"train_loss": v, "val_loss": math.nan} for v in (2, 1, 0.5, 0.4)], "undecided", "wit"),
    ],
)
def test_few_missing_or_lost_numbers_say_so(epochs, state, reason):
    reading = read_curves(epochs)
    assert reading.verdict == state and reason in reading.reason
    reading.plot()


def test_epochs_without_a_training_loss_are_refused():
    with pytest.raises(ValueError, match="no train_loss"):
        read_curves([{"loss": 1.0}] * 5)


def test_a_run_directory_is_read_like_its_history(tmp_path):
    history = run(lr=0.03, epochs=6, run_dir=tmp_path / "run")
    reading = read_curves(tmp_path / "run")
    assert reading.to_json() == read_curves(history).to_json()
    with pytest.raises(EngineError, match="so it is not a run directory"):
        read_curves(tmp_path)


def test_the_directory_of_a_run_that_the_engine_stopped_is_read_as_diverged(tmp_path):
    with pytest.raises(NonFiniteError):
        run(lr=1e20, epochs=3, run_dir=tmp_path / "run")
    reading = read_curves(tmp_path / "run")
    assert reading.verdict == "diverged" and "inf or nan" in reading.reason
    reading.plot()


def test_a_lost_loss_is_null_in_a_record_and_still_a_lost_loss(tmp_path):
    run(lr=0.03, epochs=5, run_dir=tmp_path / "run")
    log = tmp_path / "run" / "metrics.jsonl"
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    lines[-1]["train_loss"] = None
    log.write_text("".join(json.dumps(line) + "\n" for line in lines))
    reading = read_curves(tmp_path / "run")
    assert reading.verdict == "diverged" and "nan in epoch 5" in reading.reason


def test_one_lost_validation_loss_is_passed_over_and_a_lost_last_one_is_told():
    epochs = drawn(*DRAWN["overfit"], 0.0, 0)
    epochs[-3]["val_loss"] = math.nan
    assert read_curves(epochs).verdict == "overfit"
    epochs[-1]["val_loss"] = math.inf
    reading = read_curves(epochs)
    assert reading.verdict == "undecided" and "inf in epoch 30" in reading.reason


def test_a_reading_goes_to_json_to_a_notebook_and_to_a_picture():
    reading = read_curves(run(lr=0.03, epochs=8))
    assert json.loads(json.dumps(reading.to_json(), allow_nan=False))["verdict"] == reading.verdict
    assert "<ol><li>" in reading._repr_html_()
    figure = reading.plot()
    assert [ax.get_ylabel() for ax in figure.axes][:2] == ["mean loss", "val accuracy"]
    labels = [text.get_text() for text in figure.axes[0].get_legend().get_texts()]
    assert labels[:2] == ["training", "validation"] and labels[2].startswith("best epoch")
