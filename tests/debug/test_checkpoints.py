"""A checkpoint by reference, without a part or in another mode is named; a whole one is not."""

import copy

import pytest
import torch
from torch import nn

from course.debug import diagnose
from course.debug.probes import checkpoints as probe
from course.debug.probes.saved import holds_weights_alone
from course.debug.probes.session import NotChecked, Session
from course.debug.probes.setup import as_setup
from tests.debug.faulty import PAIRS, checkpoints
from tests.debug.faulty.kit import parts, plain, whole
from tests.debug.test_diagnose import fingerprint

SAVED = [pair for pair in PAIRS if hasattr(checkpoints, pair.name.split("[")[0])]


@pytest.mark.parametrize("pair", SAVED, ids=lambda pair: pair.name)
def test_a_faulty_checkpoint_is_named_first_and_a_whole_one_is_left_alone(pair):
    faulty, twin = diagnose(pair.make(True)), diagnose(pair.make(False))
    assert [f.id for f in faulty.alarms][:1] == [pair.ids[0]], str(faulty)
    assert faulty.alarms[0].fix and faulty.alarms[0].evidence
    assert twin.ok and "checkpoints.checkpoint" in twin.checked, str(twin)


@pytest.mark.parametrize("pair", SAVED, ids=lambda pair: pair.name)
def test_saving_and_loading_leaves_no_trace_in_what_was_handed_in(pair):
    setup = pair.make(True)
    before = fingerprint(setup)
    diagnose(setup)
    assert fingerprint(setup) == before


def resumed_by(without):
    """A run with Adam whose load() leaves some parts out."""
    s = whole(parts("mlp", 0.01, "Adam"))

    def load(state):
        for name in set(state) - set(without):
            s[name].load_state_dict(state[name])

    names = ("model", "optimizer")
    return s | {"load": load, "save": lambda: copy.deepcopy({n: s[n].state_dict() for n in names})}


def test_the_distance_told_is_that_of_a_resume_by_hand():
    finding = diagnose(resumed_by({"optimizer"})).alarms[0]
    setup = resumed_by({"optimizer"})
    batches = list(setup["train_loader"])
    ends = []
    for resumed in (False, True):
        s = copy.deepcopy({k: setup[k] for k in ("model", "optimizer", "loss_fn")})
        step = plain(s)
        for batch in batches[:4]:
            step(batch)
        state = copy.deepcopy(s["model"].state_dict())
        if resumed:  # Adam's memory is that of 4 steps more
            for batch in batches[:4]:
                step(batch)
            s["model"].load_state_dict(state)
        torch.manual_seed(0)
        for batch in batches[4:8]:
            step(batch)
        ends.append(nn.utils.parameters_to_vector(s["model"].parameters()))
    by_hand = float((ends[0] - ends[1]).detach().abs().max())
    assert 0.1 * by_hand < finding.evidence["largest_distance"] < 10 * by_hand
    assert "step of" in finding.evidence["first"] or "exp_avg" in finding.evidence["first"]


def test_nothing_is_left_out_and_nothing_is_said():
    assert diagnose(resumed_by(())).ok


class EarlyStopping:
    """fit() keeps the best weights and puts them back; it resumes nothing."""

    def __init__(self, form):
        self.s, self.form, self.best = whole(parts("mlp", 0.01, "Adam")), form, None

    def save(self):
        state = copy.deepcopy(self.s["model"].state_dict())
        return {"state": state, "list": list(state.values()), "nested": {"model": state},
                "counted": {"model": state, "step": 3}}[self.form]  # fmt: skip

    def load(self, state):
        own = self.s["model"].state_dict()
        state = (
            state.get("model", state)
            if isinstance(state, dict)
            else dict(zip(own, state, strict=True))
        )
        self.s["model"].load_state_dict(state)

    def setup(self):
        return self.s | {"save": self.save, "load": self.load}


@pytest.mark.parametrize(
    ("form", "severity"),
    [("state", "note"), ("list", "note"), ("nested", "error"), ("counted", "error")],
)
def test_weights_alone_are_no_checkpoint_to_resume_from(form, severity):
    """A state with places by name is one: there the optimizer is missed."""
    found = diagnose(EarlyStopping(form).setup()).findings
    assert [(f.id, f.severity) for f in found] == [("checkpoint-incomplete", severity)]
    assert ("weights alone" in found[0].message) is (severity == "note")


def test_weights_alone_that_do_not_come_back_are_an_alarm():
    trainer = EarlyStopping("state")
    setup = trainer.setup() | {"load": lambda state: None}
    finding = diagnose(setup).alarms[0]
    assert finding.id == "checkpoint-incomplete" and "weight" in finding.evidence["first"]


def test_weights_alone_in_a_file_are_told_from_a_checkpoint(tmp_path):
    s = whole(parts("mlp", 0.01, "Adam"))
    model, optimizer = s["model"], s["optimizer"]
    for state, alone in (
        (model.state_dict(), True),
        ({"model": model.state_dict()}, False),
        (model.state_dict() | {"epoch": 2}, False),
        (optimizer.state_dict(), False),
    ):
        torch.save(state, tmp_path / "file.pt")
        assert holds_weights_alone(model, None, tmp_path / "file.pt") is alone
    assert holds_weights_alone(model, copy.deepcopy(model), tmp_path / "none.pt")
    assert not holds_weights_alone(model, None, tmp_path / "none.pt")


def test_a_load_that_raises_is_named_with_its_message():
    s = whole(parts("mlp"))
    s["save"] = lambda: {f"_orig_mod.{k}": v.clone() for k, v in s["model"].state_dict().items()}
    finding = diagnose(s | {"load": s["model"].load_state_dict}).alarms[0]
    assert finding.id == "checkpoint-refused" and "Missing key" in finding.message


def test_without_save_and_load_nothing_was_checked():
    report = diagnose(whole(parts("mlp")))
    assert report.not_checked["checkpoints.checkpoint"] == "no save and load"
    run_free = {k: v for k, v in resumed_by(()).items() if k != "train_step"}
    assert "checkpoints.checkpoint" in diagnose(run_free).checked
    with pytest.raises(NotChecked, match="which batches train"):
        list(probe.checkpoint(Session(as_setup(run_free | {"train": lambda n_steps: []}))))
