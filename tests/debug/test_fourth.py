"""A fourth set, by another author who had not read the doctor, and what it cried wolf over."""

import time

import pytest
import torch
from torch import nn

from course.debug import diagnose
from course.debug.probes import activations, checkpoints, schedule
from course.debug.probes.session import NotChecked, Session
from course.debug.probes.setup import as_setup
from tests.debug.faulty import PAIRS, fourth
from tests.debug.faulty.fourth.kit import batches, blobs
from tests.debug.faulty.kit import parts
from tests.debug.sound import SOUND
from tests.debug.told import assert_told_apart
from tests.sampling import sample

HERE = {p.name: p for p in PAIRS if any(hasattr(part, p.name) for part in fourth.PARTS)}


def test_all_pairs_of_the_fourth_set_are_tried():
    assert len(HERE) == 30


@pytest.mark.parametrize("name", sample([*HERE], 16))
def test_the_fault_is_named_first_and_its_twin_is_left_alone(name):
    assert_told_apart(HERE[name])


@pytest.mark.parametrize("name", ["ordinal_off_by_one", "gan_not_detached"])
def test_thresholds_of_grades_are_no_classes_and_small_logits_no_probabilities(name):
    twin = diagnose(HERE[name].make(False))
    assert twin.ok, str(twin)


@pytest.mark.parametrize("style", ["mlp", "multilabel"])
def test_a_last_layer_of_zeros_gives_no_probabilities(style):
    torch.manual_seed(0)
    setup = parts(style)
    nn.init.zeros_(setup["model"][-1].weight)
    nn.init.zeros_(setup["model"][-1].bias)
    probe = activations.double_softmax if style == "mlp" else activations.double_sigmoid
    with pytest.raises(NotChecked, match="all outputs are 0, as from a last layer of zeros"):
        list(probe(Session(as_setup(setup))))
    if style == "mlp":
        setup["model"].append(nn.Softmax(1))
        assert [f.id for f in probe(Session(as_setup(setup)))] == ["double-softmax"]


@pytest.mark.parametrize(
    "name", ["truncated_bptt_tied_lm", "lora_on_frozen", "byol_target_network"]
)
def test_what_is_kept_or_frozen_on_purpose_is_left_alone(name):
    report = diagnose(SOUND[name]())
    assert report.ok, str(report)


def scheduled(rate, function):
    """The twin of lambda_returns_lr with another schedule."""
    setup = HERE["lambda_returns_lr"].make(False)
    optimizer = torch.optim.AdamW(setup["model"].parameters(), rate)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, function)
    return {k: setup[k] for k in ("model", "loss_fn", "train_loader")} | {
        "optimizer": optimizer,
        "scheduler": scheduler,
    }


def factors(rate, function):
    return [f.message for f in schedule.factor(Session(as_setup(scheduled(rate, function))))]


def test_a_function_that_returns_the_rate_is_told_by_its_numbers():
    (said,) = factors(2e-3, lambda step: 2e-3 * min(1, (step + 1) / 5000))
    assert "first rate, 0.002" in said and "the largest rate is then 4e-06" in said
    table = [1e-3, 2e-3]  # and no further
    assert len(factors(2e-3, table.__getitem__)) == 1


@pytest.mark.parametrize(
    ("rate", "function"),
    [
        (1.0, lambda step: 16**-0.5 * min((step + 1) ** -0.5, (step + 1) * 400**-1.5)),
        (2e-3, lambda step: min(1.0, (step + 1) / 5000)),
        (2e-3, lambda step: 0.05),
        (1e-3, lambda step: 0.5**step),
    ],
)
def test_a_factor_and_a_rate_over_a_first_rate_of_1_are_left_alone(rate, function):
    assert not factors(rate, function)


@pytest.mark.parametrize("name", ["lambda_returns_lr", "ema_not_saved"])
def test_what_was_missed_at_first_is_named(name):
    pair = HERE[name]
    assert [f.id for f in diagnose(pair.make(True)).alarms] == list(pair.ids)
    assert diagnose(pair.make(False)).ok


def test_scores_that_two_equal_runs_do_not_share_say_nothing_of_what_was_loaded():
    setup = HERE["ema_not_saved"].make(True)
    timed = setup | {"evaluate": lambda: {"seconds": time.perf_counter()}}
    assert not [*checkpoints.checkpoint(Session(as_setup(timed)))]
    assert [*checkpoints.checkpoint(Session(as_setup(setup)))]


def test_a_frozen_layer_between_a_narrow_pair_in_a_row_is_no_adapted_one():
    """Narrow layers of the same shapes as an adapter's follow it and do not stand beside it."""
    torch.manual_seed(0)
    layers = [nn.Linear(10, 24), nn.Linear(24, 24), nn.Linear(24, 3), nn.Linear(3, 24)]
    model = nn.Sequential(*layers, nn.ReLU(), nn.Linear(24, 3))
    model[1].requires_grad_(False)
    report = diagnose(
        {
            "model": model,
            "loss_fn": nn.CrossEntropyLoss(),
            "optimizer": torch.optim.Adam(model.parameters(), 3e-3),
            "train_loader": batches(*blobs(256)),
        }
    )
    assert [f.id for f in report.alarms] == ["frozen-params"], str(report)
