"""Relations that hold for any training program: each finds its bug, and leaves the twin alone."""

import itertools
import time

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from course.debug import climb, diagnose
from course.engine.loss_of import Loss
from course.state.snapshot import reached
from tests.debug.faulty import PAIRS, dress, kinds
from tests.debug.sound import SOUND
from tests.debug.told import assert_told_apart
from tests.sampling import sample

OF_MANY_KINDS = [p for p in PAIRS if hasattr(kinds, p.name) or hasattr(dress, p.name)]


def test_all_pairs_of_many_kinds_are_tried():
    assert len(OF_MANY_KINDS) == 36


@pytest.mark.parametrize("pair", sample(OF_MANY_KINDS, 8), ids=lambda pair: pair.name)
def test_the_relation_that_breaks_names_the_bug_and_holds_for_the_twin(pair):
    assert_told_apart(pair)


def dictionaries(**more):
    """Dict batches, and nothing but what a batch costs."""
    model = kinds.Tagger(2, "masked")

    def loss_of(model, batch):
        out = model(batch["ids"], batch["mask"])
        return Loss(F.cross_entropy(out, batch["label"]), len(out), out, batch["label"])

    return {
        "model": model, "loss_of": loss_of, "optimizer": torch.optim.Adam(model.parameters(), 3e-3),
        "train_loader": kinds.load(kinds.Rows(**kinds.padded())),
    } | more  # fmt: skip


def test_a_batch_of_any_kind_needs_no_more_than_what_it_costs():
    torch.manual_seed(0)
    report = diagnose(dictionaries())
    assert report.ok, str(report)
    assert {"padding.behind", "model.state", "data.stored"} <= set(report.checked)
    torch.manual_seed(0)
    over_all = kinds.Tagger(2, "all")
    optimizer = torch.optim.Adam(over_all.parameters())
    pooled = diagnose(dictionaries(model=over_all, optimizer=optimizer))
    assert [f.id for f in pooled.alarms] == ["padding-not-masked"], str(pooled)


def test_what_a_batch_costs_has_to_be_known():
    setup = dictionaries()
    del setup["loss_of"]
    with pytest.raises(ValueError, match=r"loss_fn missing.*loss_of\(model, batch\), or"):
        diagnose(setup)


def test_the_report_says_how_much_was_tried_and_what_to_hand_in():
    torch.manual_seed(0)
    report = diagnose(dictionaries())
    tried, total = len(report.checked), len(report.checked) + len(report.not_checked)
    text = str(report)
    assert f"Nothing wrong was seen in {tried} checks." in text
    assert report._repr_html_().startswith(f"<p>Nothing wrong was seen in {tried} checks.</p>")
    assert "<table" not in report._repr_html_()  # no finding, no table
    assert f"{tried} of {total} checks were tried." in text.replace("\n      ", " ")
    without = [why for why in report.not_checked.values() if why == "no evaluate()"]
    assert f"evaluate ({len(without)} more)" in text.replace("\n      ", " ")
    assert "padding.behind" not in text and "padding.behind" not in report._repr_html_()
    assert "The loss of a batch is the same without the padding" in report._repr_html_()


def test_a_busy_machine_finds_the_same(monkeypatch):
    pair = next(p for p in OF_MANY_KINDS if p.name == "mean_over_padding")
    calm, calm_climb = diagnose(pair.make(True)), climb(SOUND["only_four_things"](), top=4)
    hours = itertools.count(step=3600.0)
    monkeypatch.setattr(time, "perf_counter", lambda: next(hours))
    busy, busy_climb = diagnose(pair.make(True)), climb(SOUND["only_four_things"](), top=4)
    assert busy.checked == calm.checked and busy.not_checked == calm.not_checked
    assert [f.to_json() for f in busy.findings] == [f.to_json() for f in calm.findings]
    assert [r.message for r in busy_climb.rungs] == [r.message for r in calm_climb.rungs]


def test_a_budget_of_forwards_ends_the_experiments():
    pair = next(p for p in OF_MANY_KINDS if p.name == "mean_over_padding")
    report = diagnose(pair.make(True), budget=10)
    assert "a larger budget" in report.coverage and len(report.checked) < 40


def test_what_is_declared_is_not_alarmed():
    pair = next(p for p in OF_MANY_KINDS if p.name == "hidden_state_of_other_rows")
    assert diagnose(pair.make(True) | {"declared": {"allow": "state-carried"}}).ok


def test_reached_walks_through_objects_and_closures_and_changes_nothing():
    held, other = nn.Linear(2, 2), {"best": torch.ones(2)}

    class Trainer:
        def __init__(self):
            self.model = held

        def step(self):
            return other

    found = reached({"step": Trainer().step, "look": lambda: other["best"]})
    assert any(thing is held for thing in found) and any(thing is other for thing in found)
    assert other["best"].tolist() == [1.0, 1.0]
