"""The doctor finds what is wrong, says nothing of what is sound, and gives everything back."""

import importlib
import json
import random
import re
import zlib

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

from course.debug import Finding, Report, diagnose
from course.debug.probes.setup import as_setup
from tests.debug.faulty import PAIRS
from tests.debug.sound import SOUND
from tests.debug.told import assert_told_apart
from tests.sampling import sample

diagnosis = importlib.import_module(
    "course.debug.diagnose"
)  # `course.debug.diagnose` is a function

QUICK = [
    next(p for p in PAIRS if p.name.startswith(start))
    for start in (
        "never_cleared[cnn]", "cleared_between", "clipped_elsewhere", "accumulated_in_full",
        "remainder[leaks]", "schedule[cosine]", "kept_tensors", "softmax_in_the_model[rnn]",
        "one_column", "regressed_classes", "labels_from_one", "scored_in_train_mode",
        "scored_with_graph", "trained_in_eval_mode", "head_replaced", "layers_in_a_container",
        "scale_as_tensor", "head_left_frozen", "sorted_and_unshuffled", "same_rows_in_validation",
        "split_by_row", "too_fast", "too_slow",
    )
]  # fmt: skip


@pytest.mark.parametrize("pair", sample(QUICK, 3), ids=lambda pair: pair.name)
def test_the_fault_is_named_first_and_its_twin_is_left_alone(pair):
    assert_told_apart(pair)


@pytest.mark.parametrize("name", sample([*SOUND], 48))
def test_no_alarm_on_a_sound_program(name):
    report = diagnose(SOUND[name]())
    assert report.ok, str(report)


def fingerprint(setup: dict) -> list:
    """Everything that diagnose was handed, hashed or listed."""
    model, optimizers = setup["model"], setup["optimizer"]
    optimizers = optimizers if isinstance(optimizers, list) else [optimizers]
    hashed = [
        (
            n,
            id(t),
            _hash(t),
            t.requires_grad,
            None if t.grad is None else (id(t.grad), _hash(t.grad)),
        )
        for n, t in [*model.named_parameters(), *model.named_buffers()]
    ]
    modules = [
        (n, m.training, len(m._forward_hooks), len(m._forward_pre_hooks), len(m._backward_hooks))
        for n, m in model.named_modules()
    ]
    states = [
        (o.param_groups[0]["lr"], sorted(o.__dict__), [
            (id(p), sorted((k, _hash(v) if torch.is_tensor(v) else v) for k, v in s.items()))
            for p, s in o.state.items()
        ])
        for o in optimizers
    ]  # fmt: skip
    loader = setup["train_loader"]
    generator = getattr(loader, "generator", None)
    data = [_hash(t) for t in getattr(getattr(loader, "dataset", None), "tensors", ())]
    scheduler = setup.get("scheduler")
    schedule = repr({k: v for k, v in vars(scheduler).items() if k != "optimizer"}) if (
        scheduler) else ""  # fmt: skip
    return [
        hashed, modules, states, data, schedule,
        None if generator is None else _hash(generator.get_state()),
        _hash(torch.get_rng_state()), random.getstate(), str(np.random.get_state()),
        torch.is_grad_enabled(), torch.get_default_dtype(),
        id(torch.autograd.backward), id(torch.optim.Optimizer.zero_grad), id(nn.Module.zero_grad),
        id(torch.utils.data.DataLoader.__iter__),
        sorted(k for k in setup if not k.startswith("_")),
    ]  # fmt: skip


def _hash(tensor: torch.Tensor) -> int:
    return zlib.crc32(tensor.detach().cpu().contiguous().numpy().tobytes())


@pytest.mark.parametrize(
    "name",
    ["warmup_by_batch", "two_optimizers_of_a_gan", "averaged_weights", "frozen_backbone",
     "accumulates_over_calls", "every_style['cnn']", "wrapped_model"],
)  # fmt: skip
def test_everything_is_given_back_bit_for_bit(name):
    setup = SOUND[name]()
    for batch in list(setup["train_loader"])[:3]:
        setup["train_step"](batch)
    before = fingerprint(setup)
    diagnose(setup)
    assert fingerprint(setup) == before


def test_everything_is_given_back_after_an_exception():
    setup = SOUND["every_style['cnn']"]()
    plain, calls = setup["train_step"], []

    def breaks(batch):
        plain(batch)
        calls.append(1)
        setup["model"].eval().requires_grad_(False)
        setup["model"].register_forward_hook(lambda *_: None)
        torch.set_grad_enabled(False)
        raise RuntimeError("no more")

    setup["train_step"] = breaks
    before = fingerprint(setup)
    report = diagnose(setup)
    assert fingerprint(setup) == before
    assert calls == []  # the user's own list, too
    assert any("no more" in f.message for f in report.findings)


def test_what_is_declared_is_no_bug():
    pair = next(p for p in PAIRS if p.name.startswith("head_left_frozen"))
    setup = pair.make(True) | {"declared": {"frozen": ["5", "6", "3"]}}
    assert "frozen-params" not in [f.id for f in diagnose(setup).alarms]


def test_a_missing_part_is_named():
    with pytest.raises(ValueError, match="optimizer, train_loader missing"):
        diagnose({"model": nn.Linear(1, 1), "loss_fn": nn.MSELoss()})


def plain_parts(**other):
    model = other.pop("model", None) or nn.Linear(8, 3)
    x, y = torch.randn(40, 8), torch.arange(40) % 3
    return {
        "model": model, "loss_fn": nn.CrossEntropyLoss(),
        "optimizer": torch.optim.SGD(model.parameters(), 0.1),
        "train_loader": [(x[i : i + 10], y[i : i + 10]) for i in range(0, 40, 10)], **other,
    }  # fmt: skip


class Raises(nn.Linear):
    def forward(self, x):
        raise ValueError("boom")


class Named(nn.Linear):
    def forward(self, x):
        return {"logits": super().forward(x)}


def broken_loader():
    yield torch.randn(10, 8), torch.arange(10) % 3
    raise KeyError("row 33")


CANNOT_STEP = {
    "forward": ({"model": Raises(8, 3)}, "raises ValueError: boom"),
    "width": ({"model": nn.Linear(5, 3)}, "shapes cannot be multiplied"),
    "no forward": ({"model": nn.ModuleDict({"head": nn.Linear(8, 3)})}, "forward"),
    "loss": ({"loss_fn": lambda outputs, targets: 1 / 0}, "raises ZeroDivisionError"),
    "loss of numbers": ({"loss_fn": lambda o, t: 0.5}, "returns a float"),
    "outputs in a dict": ({"model": Named(8, 3)}, "not dict"),
    "loader": ({"train_loader": broken_loader()}, "after 1 batches: KeyError: 'row 33'"),
}  # fmt: skip


@pytest.mark.parametrize("wrong,message", CANNOT_STEP.values(), ids=CANNOT_STEP)
def test_a_set_up_that_cannot_make_a_step_gets_no_clean_bill(wrong, message):
    report = diagnose(plain_parts(**wrong), budget=60)
    assert re.search(message, next(f.message for f in report.alarms if f.id == "raises"))


def test_a_loss_of_named_outputs_is_no_bug():
    report = diagnose(
        plain_parts(
            model=Named(8, 3),
            loss_fn=lambda o, t: F.cross_entropy(o["logits"], t),
        ),
        budget=60,
    )
    assert "raises" not in [f.id for f in report.findings]


def test_a_report_says_what_could_not_be_called():
    report = diagnose(plain_parts(model=Raises(8, 3), val_loader=[]))
    assert re.search(
        r"\d+ could not be tried: model\(inputs\) raises ValueError: boom", report.coverage
    )
    assert "val_loader (" not in report.coverage  # it was given


@pytest.mark.parametrize("name,value", [
    ("optimizer", "sgd"), ("optimizer", torch.optim.SGD), ("loss_fn", nn.CrossEntropyLoss),
    ("loss_fn", "ce"), ("train_loader", 3), ("evaluate", {"loss": 1.0}), ("model", F.relu),
])  # fmt: skip
def test_another_kind_of_thing_is_refused_by_name(name, value):
    with pytest.raises(ValueError, match=rf"^{name} (=|is the class)"):
        diagnose(plain_parts() | {name: value})


def test_a_model_without_weights_yet_is_refused():
    with pytest.raises(ValueError, match=r"lazy layers.*Call it on one batch first"):
        diagnose(plain_parts() | {"model": nn.LazyLinear(3)})


def test_a_misspelt_part_is_said():
    with pytest.warns(UserWarning, match="'val_loder' is not examined. Is it 'val_loader'"):
        as_setup(plain_parts(val_loder=[]))
    with pytest.raises(ValueError, match="the set-up has no parts; model, loss_fn, optimizer"):
        as_setup([1])


def test_the_report_escapes_html_and_goes_to_json():
    finding = Finding("x", "error", "<b>bold</b>", {"loss": float("inf")}, "a < b")
    report = Report([finding], ["probe"], {"other": "<why>"})
    assert "<b>" not in report._repr_html_() and "&lt;why&gt;" in report._repr_html_()
    assert json.loads(json.dumps(report.to_json()))["findings"][0]["evidence"]["loss"] == "inf"
    assert "x: <b>bold</b>" in str(report)


def test_a_report_says_what_was_not_checked():
    report = diagnose(SOUND["only_four_things"]())
    assert report.not_checked["modes.no_grad"] == "no evaluate()"
    assert "data.single_class" in report.checked


@pytest.mark.slow
def test_a_sample_of_the_other_pairs_meets_the_goals_of_the_whole_set():
    """Every two-hundredth; the whole set is `make bench TARGET=diagnose`."""
    from tests.bench.diagnose import judge, shares

    others = [pair for pair in PAIRS if pair not in QUICK]
    assert len(PAIRS) >= 60 and len(SOUND) >= 20
    rates = shares([judge(pair) for pair in others[::200]])
    assert rates["told_apart"] >= 0.84
    assert rates["named_first"] >= 0.76


@pytest.mark.parametrize("cause", ["padding-not-masked", "raises", None])
def test_what_training_comes_to_is_said_where_no_probe_names_a_cause(monkeypatch, cause):
    """`raises` is itself what another bug can cause."""

    def outcome(_session):
        yield Finding("loss-negated", "error", "Steps that lower the loss lower the score.")

    def probe(_session):
        if cause:
            yield Finding(cause, "error", "Seen.")

    monkeypatch.setattr(diagnosis, "PROBES", (outcome, probe))
    monkeypatch.setattr(diagnosis, "OUTCOMES", (outcome,))
    named = [alarm.id for alarm in diagnose(SOUND["only_four_things"]()).alarms]
    assert ("loss-negated" in named) == (cause != "padding-not-masked")
