"""A fourth set, by another author who had not read the doctor, and what it cried wolf over."""

import pytest
import torch
from torch import nn

from course.debug import diagnose
from tests.debug.faulty import PAIRS, fourth
from tests.debug.faulty.fourth.kit import batches, blobs
from tests.debug.sound import SOUND
from tests.sampling import sample

HERE = {p.name: p for p in PAIRS if any(hasattr(part, p.name) for part in fourth.PARTS)}
TOLD = [name for name in HERE if name not in fourth.MISSED]


def test_all_pairs_of_the_fourth_set_are_tried():
    assert len(HERE) == 30 and len(TOLD) == 14 and len(fourth.MISSED) == 16


@pytest.mark.parametrize("name", sample(TOLD, 4))
def test_the_fault_is_named_first_and_its_twin_is_left_alone(name):
    pair = HERE[name]
    faulty, twin = diagnose(pair.make(True)), diagnose(pair.make(False))
    assert faulty.alarms and faulty.alarms[0].id in pair.ids, str(faulty)
    assert faulty.alarms[0].fix and faulty.alarms[0].evidence
    assert twin.ok, str(twin)


@pytest.mark.parametrize("name", sample([*fourth.MISSED], 4))
def test_what_is_missed_is_not_given_another_name_and_its_twin_is_left_alone(name):
    faulty, twin = (diagnose(HERE[name].make(bug)) for bug in (True, False))
    assert faulty.ok, f"{fourth.MISSED[name]}: {faulty}"
    assert twin.ok, str(twin)


@pytest.mark.parametrize("name", ["ordinal_off_by_one", "gan_not_detached"])
def test_thresholds_of_grades_are_no_classes_and_small_logits_no_probabilities(name):
    twin = diagnose(HERE[name].make(False))
    assert twin.ok, str(twin)


@pytest.mark.parametrize(
    "name", ["truncated_bptt_tied_lm", "lora_on_frozen", "byol_target_network"]
)
def test_what_is_kept_or_frozen_on_purpose_is_left_alone(name):
    report = diagnose(SOUND[name]())
    assert report.ok, str(report)


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
