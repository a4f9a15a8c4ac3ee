"""Bugs that look harmless where they stand: each is named first, each twin is left alone."""

import pytest
import torch

from course.debug import diagnose
from course.debug.probes import axes
from course.debug.probes.session import Session
from course.debug.probes.setup import as_setup
from tests.debug.faulty import PAIRS, fresh, reported, subtle
from tests.debug.faulty.kit import nn, parts, whole
from tests.debug.sound import SOUND
from tests.debug.told import assert_told_apart
from tests.sampling import sample

HOMES = ((subtle, ()), (reported, pytest.mark.slow), (fresh, pytest.mark.slow))
SUBTLE = [
    pytest.param(pair, marks=marks, id=pair.name)
    for pair in PAIRS for home, marks in HOMES if hasattr(home, pair.name.split("[")[0])
]  # fmt: skip


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("pair", sample(SUBTLE, 40))
def test_a_subtle_fault_is_named_first_and_its_twin_is_left_alone(pair):
    assert_told_apart(pair)


def notes(setup):
    return {f.id: f for f in diagnose(setup).findings if not f.is_alarm}


def test_a_smoothed_validation_loss_is_worth_a_note_with_the_plain_one():
    smoothed = whole(parts("mlp", loss_fn=nn.CrossEntropyLoss(label_smoothing=0.2)))
    for batch in [*smoothed["train_loader"]] * 5:  # at first both losses are ln 3
        smoothed["train_step"](batch)
    found = notes(smoothed)["label-smoothing-in-eval"]
    assert found.evidence["cross_entropy"] != pytest.approx(found.evidence["val_loss"], rel=1e-2)
    assert "label-smoothing-in-eval" not in notes(whole(parts("mlp")))


def test_targets_that_are_nan_and_left_out_by_the_loss_are_worth_a_note():
    found = notes(SOUND["missing_targets_masked"]())["non-finite-values"]
    assert "the loss ignores them" in found.message


def test_padding_that_nobody_declared_is_a_note_of_one_probe_and_an_alarm_of_the_doctor():
    pair = next(p for p in PAIRS if p.name == "attention_over_padding")
    bad, good = (pair.make(bug) | {"declared": {}} for bug in (True, False))
    assert [f.severity for f in axes.padding(Session(as_setup(bad)))] == ["note"]
    assert "padding-not-masked" in {f.id for f in diagnose(bad).findings if f.is_alarm}
    assert "padding-not-masked" not in {f.id for f in diagnose(good).findings}


@pytest.mark.parametrize("cell", [nn.GRU, nn.LSTM, nn.RNN])
def test_pixels_into_a_gated_network_are_named_by_its_saturated_gates(cell):
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.cell, self.head = cell(4, 16, batch_first=True), nn.Linear(16, 3)

        def forward(self, x):
            return self.head(self.cell(x)[0][:, -1])

    def setup(scale):
        s = parts("rnn", model=Net())
        for loader in (s["train_loader"], s["val_loader"]):
            x, y = loader.dataset.tensors
            loader.dataset.tensors = ((x * 40 + 128).clamp(0, 255) * scale, y)
        return s

    torch.manual_seed(0)
    first = diagnose(setup(1.0)).alarms[0]
    assert first.id == "range-not-normalised" and first.evidence["saturated"] > 0.5
    assert diagnose(setup(1 / 255)).ok


def test_a_rise_of_the_loss_is_told_beside_what_plain_steps_reach():
    """What goes backward is the loss of other labels: the returned one is right and rises."""
    s = whole(parts("mlp"))
    model, loss_fn = s["model"], s["loss_fn"]

    def train_step(batch):
        x, y = batch
        s["optimizer"].zero_grad()
        outputs = model(x)
        loss_fn(outputs, (y + 1) % 3).backward()
        s["optimizer"].step()
        return loss_fn(outputs, y).item()

    finding = diagnose(s | {"train_step": train_step}).alarms[0]
    assert finding.id == "loss-rises" and not finding.evidence["negated"]
    assert finding.evidence["after_plain_steps"] < finding.evidence["before"] < (
        finding.evidence["after"]
    )  # fmt: skip
    model.eval()
    with torch.no_grad():  # the first batches are drawn by the loader's generator of its own
        every = [loss_fn(model(x), y).item() for x, y in s["train_loader"]]
    assert min(every) <= finding.evidence["before"] <= max(every)


def test_a_step_that_returns_something_else_is_not_asked_where_it_leads():
    report = diagnose(SOUND["reinforce"]())
    assert report.not_checked["progress.downhill"] == (
        "train_step does not return the loss of its batch"
    )
