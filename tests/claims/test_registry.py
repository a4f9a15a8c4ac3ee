"""The registry of claims: judging, seeding, looking up, and keeping a GPU's verdicts."""

import json
import random
import subprocess
import sys

import numpy
import pytest
import torch
from torch import nn
from torch.nn import functional as F

from course.catalogue import UnknownIdError
from course.claims import compute, judge
from course.claims import registry as claims_registry
from course.claims import trial as trials
from course.claims.registry import claim, compute_all, record_gpu_verdicts
from course.claims.trial import Measured, recorded_gpu_verdicts, weigh, weigh_settings


def test_judging_knows_three_outcomes():
    assert judge(stated=True) == judge(stated=True, conditioned=True) == "holds"
    assert judge(stated=False, conditioned=True) == "holds if"
    assert judge(stated=False) == "does not hold"


def test_a_measurement_must_name_a_number_of_its_evidence():
    with pytest.raises(KeyError):
        weigh("missing", {"there": 1.0}, stated=True)
    with pytest.raises(AssertionError):
        Measured(verdict="holds", deciding="text", evidence={"text": "no number"})


def test_a_claim_is_registered_with_a_known_verdict_and_a_condition_only_for_holds_if():
    words = {"title": "t", "says": "x."}
    with pytest.raises(AssertionError, match="is not one of"):
        claim("F01", expected="maybe", **words)
    with pytest.raises(AssertionError, match="condition"):
        claim("F01", expected="holds if", **words)


def test_listing_reads_no_torch():
    code = (
        "import io, sys; from course.claims.command import run_command\n"
        "out = io.StringIO(); run_command(list_only=True, out=out)\n"
        "assert 'F26' in out.getvalue() and 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


@pytest.mark.parametrize("typed", ["f26", "F-26", "F 26"])
def test_an_id_may_be_typed_loosely(typed):
    assert compute(typed).entry.id == "F26"


def test_an_unknown_id_suggests_the_nearest():
    with pytest.raises(UnknownIdError, match=r"'F1388' is not the id of a claim.*nearest: F138"):
        compute("F1388")


def test_a_trial_leaves_random_generators_and_threads_alone():
    threads = torch.get_num_threads()
    before = random.getstate(), numpy.random.get_state()[1].tolist(), torch.get_rng_state()
    compute("F103", seed=5)
    assert random.getstate() == before[0]
    assert numpy.random.get_state()[1].tolist() == before[1]
    assert torch.equal(torch.get_rng_state(), before[2])
    assert torch.get_num_threads() == threads


def test_the_seed_decides_every_draw():
    first, again, other = (compute("F06", seed=seed).measured.number for seed in (3, 3, 4))
    assert first == again != other


def test_a_device_that_torch_cannot_use_is_named():
    for device in ("xpu:7", "meta"):
        with pytest.raises(ValueError, match=rf"device '{device}'.*Use auto or cpu"):
            compute("F15", device=device)


def test_verdicts_follow_the_measurement_another_loss_for_float_one_hot(monkeypatch):
    cross_entropy = F.cross_entropy

    def otherwise(logits, targets, *args, **kwargs):
        return cross_entropy(logits, targets, *args, **kwargs) * (1 + targets.is_floating_point())

    monkeypatch.setattr(F, "cross_entropy", otherwise)
    assert compute("F08").verdict == "holds"


def test_verdicts_follow_the_measurement_parameters_without_frozen_ones(monkeypatch):
    every = nn.Module.parameters
    monkeypatch.setattr(
        nn.Module, "parameters", lambda self: (p for p in every(self) if p.requires_grad)
    )
    trial = compute("F18")
    assert trial.verdict == "holds" and not trial.as_expected
    assert "The verdict on record is 'does not hold'" in str(trial)


def test_verdicts_follow_the_measurement_a_loader_that_does_not_pin(monkeypatch):
    monkeypatch.setattr("torch.utils.data._utils.pin_memory.pin_memory", lambda data, device: data)
    assert compute("F92", device="cpu").verdict == "holds"


def test_verdicts_follow_the_measurement_an_eval_that_freezes(monkeypatch):
    monkeypatch.setattr(nn.Module, "eval", lambda self: self.train(False).requires_grad_(False))
    assert compute("F24").verdict == "does not hold"


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU to record from")
def test_gpu_verdicts_are_not_written_without_a_gpu(tmp_path):
    with pytest.raises(RuntimeError, match="only be recorded on a machine with a CUDA device"):
        record_gpu_verdicts(tmp_path / "gpu_verdicts.json")
    assert not list(tmp_path.iterdir())


def test_no_record_of_a_gpu_is_an_empty_one(tmp_path):
    assert recorded_gpu_verdicts(tmp_path / "absent.json") == {}


@pytest.mark.skipif(torch.cuda.is_available(), reason="there it is decided anew")
def test_a_gpus_verdict_is_shown_beside_needs_gpu(tmp_path, monkeypatch):
    from course.claims.show import line

    assert "[on " not in line(compute("F123")) or trials.GPU_VERDICTS.exists()
    found = {"verdict": "holds", "deciding": "time ratio", "number": 1.75}
    record = {"device": "Example GPU", "claims": {"F123": found}}
    file = tmp_path / "gpu_verdicts.json"
    file.write_text(json.dumps(record), "utf-8")
    monkeypatch.setattr(trials, "GPU_VERDICTS", file)
    trial = compute("F123")
    assert "[on Example GPU: holds, time ratio = 1.75]" in line(trial)
    assert "On record for Example GPU: holds" in str(trial)


@pytest.mark.gpu
def test_gpu_verdicts_are_written_with_device_and_versions(tmp_path, device):
    if device.type != "cuda":
        pytest.skip("this test is for the GPU")
    document = record_gpu_verdicts(tmp_path / "gpu_verdicts.json")
    assert document == json.loads((tmp_path / "gpu_verdicts.json").read_text("utf-8"))
    assert document["device"] and document["versions"]["cuda"]
    assert all(trial["verdict"] != "needs GPU" for trial in document["claims"].values())


def test_all_claims_come_in_the_order_of_their_ids(monkeypatch):
    first_two = list(claims_registry.catalogue().items())[:2]
    monkeypatch.setattr(claims_registry, "catalogue", lambda: dict(first_two))
    assert [trial.entry.id for trial in compute_all()] == ["F01", "F02"]


def test_a_device_is_tried_also_for_a_claim_that_needs_none():
    for device in ("mars", [], 1.5):
        with pytest.raises(ValueError, match="is not a device"):
            compute("F26", device=device)


@pytest.mark.parametrize("seed", [-1, 2**32, 1.5, "a", True, None])
def test_a_seed_that_numpy_does_not_take_is_refused(seed):
    with pytest.raises(
        ValueError, match=r"seed = .*: expected a whole number from 0 to 4294967295"
    ):
        compute("F26", seed=seed)


@pytest.mark.parametrize(
    "id, says",
    [
        ("K17", "course claims K17"),
        ("N20", "course worked N20"),
        (26, "expected a string, e.g. 'F26'"),
        (None, "expected a string"),
    ],
)
def test_an_id_of_another_kind_is_told_where_to_go(id, says):
    with pytest.raises(UnknownIdError, match=says):
        compute(id)


def test_a_larger_batch_is_compared_by_epochs_and_by_updates():
    """Eight times fewer updates per epoch are not a divergence."""
    found = compute("F33").measured.evidence["loss, by data and rate"]
    for losses in found.values():
        assert losses["batch 256, same number of updates"] < 1.25 * losses["batch 32"] + 0.02
    assert found["spirals 0.5"]["batch 256"] > 3 * found["spirals 0.5"]["batch 32"]


def test_a_claim_about_training_shows_its_settings_and_its_criterion():
    trial = compute("F72")
    assert len(trial.measured.settings) >= 2 and trial.measured.criterion
    models = {setting.split(" on ")[0] for setting in trial.measured.settings}
    assert len(models) >= 2
    text, html, document = str(trial), trial._repr_html_(), trial.to_json()
    for setting in trial.measured.settings:
        assert setting in " ".join(text.split()) and setting in html
        assert setting in document["settings"]
    assert trial.measured.criterion in " ".join(text.split())


def test_the_verdict_over_settings_is_all_some_or_none():
    def verdict(*held: bool) -> str:
        found = dict(enumerate(held))
        return weigh_settings("x", {"x": 1.0}, found, criterion="c").verdict

    assert [verdict(True, True), verdict(True, False), verdict(False, False)] == [
        "holds",
        "holds if",
        "does not hold",
    ]
    with pytest.raises(AssertionError, match="one setting decides nothing"):
        verdict(True)
