"""What chapter 3h's exercises state was measured: five experiments, and a baseline."""

import math
import re
import sys
from functools import cache
from itertools import islice

import pytest

from autograde import bank, check
from autograde.bank.quick_arena import train
from autograde.kinds.fix import variant
from course.widgets.simulator.state import Settings, SimulatedRun

UPDATES = 320


@cache
def experiment(other: str) -> tuple[dict, dict]:
    run = SimulatedRun(Settings(other=other))
    for _ in range(UPDATES):
        run.step()
    usual, changed = run.frame()["learners"]
    return usual, changed


def test_adam_at_a_rate_of_one_is_finite_and_near_chance():
    _, changed = experiment("adam 1")
    assert all(map(math.isfinite, changed["losses"])) and changed["accuracy"] < 0.5
    assert abs(changed["loss"] - math.log(3)) < 0.1


def test_the_rate_of_sgd_decides_whether_it_arrives():
    assert experiment("sgd")[1]["reached"] is None and experiment("sgd")[1]["accuracy"] < 0.6
    assert experiment("sgd 0.3")[1]["reached"] < UPDATES


def test_without_clearing_the_norm_is_far_above_the_healthy_one_and_not_a_straight_line():
    usual, changed = experiment("uncleared")
    norm = dict(zip(changed["norm_at"], changed["norms"], strict=True))
    early = max(value for at, value in norm.items() if at <= 50)
    assert changed["norm"] > 10 * max(1.0, usual["norm"])
    assert early > 0.25 * changed["norm"], "a straight line would be at 50/320 of it"


def test_a_graph_that_is_let_go_raises_the_peak_alone():
    usual, changed = experiment("graph")
    assert changed["live_kb"] == usual["live_kb"] and changed["peak_kb"] > 1.5 * usual["peak_kb"]


def test_the_cosine_is_not_the_lower_one_after_these_updates():
    usual, changed = experiment("cosine")
    assert changed["loss"] >= usual["loss"] and changed["reached"] == usual["reached"]


@pytest.mark.parametrize("seed", [0])
def test_the_baseline_of_the_arena_does_not_arrive(seed):
    settings = {"optimizer": "sgd", "lr": 0.01, "momentum": 0.0, "batch_size": 32}
    assert max(islice(train(settings, seed), 400)) < bank.load("03h.arena").quality


def test_the_usual_adam_is_nearly_fast_enough_and_a_full_batch_is():
    arena = bank.load("03h.arena")
    usual = {"optimizer": "adam", "lr": 0.01, "momentum": 0.0, "batch_size": 32}
    assert arena.judge_given(usual).points == 1
    assert arena.judge_given({**usual, "batch_size": 500}).points == 2
    assert arena.judge_given(arena.good).points == 3


SCRIPTS = [id for id, entry in bank.asks_for_code().items()
           if id.startswith("03h.") and ".script_" in entry.module]  # fmt: skip


@pytest.mark.parametrize("id", SCRIPTS)
def test_a_script_that_still_has_its_bug_earns_nothing(id):
    module = sys.modules[bank.load(id).run.__module__]
    touched = module.GIVEN.replace("):\n", "):\n    pass\n", 1)
    assert touched != module.GIVEN
    for seed in range(2):
        assert check(id, variant(touched, __file__), parts="all", seed=seed).points == 0


def test_there_are_eight_scripts_of_thirty_to_eighty_lines_or_nearly():
    lengths = []
    for id in SCRIPTS:
        module = sys.modules[bank.load(id).run.__module__]
        lengths.append(len(module.GIVEN.strip().splitlines()))
    assert len(lengths) == 8 and min(lengths) >= 25 and max(lengths) <= 80, lengths


def test_a_rewritten_script_keeps_all_but_the_point_for_few_lines():
    from autograde.bank import script_clipping

    other = re.sub(r"\blog\b", "record", script_clipping.FIXED)
    other = other.replace("inputs", "x").replace("targets", "y")
    assert check("03h.clipping", variant(other, __file__), parts="all", seed=0).points == 2
