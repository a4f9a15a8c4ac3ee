"""The detector's runs: each bug against what it must and must not change, and the mysteries."""

from itertools import combinations

import pytest
import torch

from course.claims.lab import saved_bytes
from course.widgets.detector.runs import BUGS, NUM_VAL, UPDATES, _loop, images, run
from course.widgets.detector.state import CODE, MYSTERIES, Settings, frame, looks_fine, says

SEEDS = (0, 1, 2)


def log(*bugs: str, seed: int = 0):
    return run(frozenset(bugs), seed)


def rows(part: tuple) -> set[tuple]:
    return {tuple(row) for row in part[0].tolist()}


def test_leaked_training_holds_the_validation_images_and_no_run_trains_on_unseen_ones():
    clean, leaked = images(False), images(True)
    assert not rows(clean.train) & rows(clean.val)
    assert rows(leaked.val) <= rows(leaked.train) and len(rows(leaked.val)) > 0.9 * NUM_VAL
    for parts in (clean, leaked):
        assert not rows(parts.unseen) & (rows(parts.train) | rows(parts.val))


def test_kept_graphs_change_memory_alone_and_hold_what_autograd_saves():
    kept, healthy = log("kept"), log()
    assert (kept.losses, kept.norms, kept.accuracies) == (
        healthy.losses, healthy.norms, healthy.accuracies,
    )  # fmt: skip
    model = _loop(frozenset()).model
    inputs, targets = images(False).val
    model.eval()
    each = saved_bytes(
        lambda: torch.nn.functional.cross_entropy(model(inputs), targets),
        without=[*model.parameters(), *model.buffers(), inputs],
    )
    held = [now - before for now, before in zip(kept.kilobytes, healthy.kilobytes, strict=True)]
    assert held == pytest.approx([each * count / 1e3 for count in range(1, len(held) + 1)])


def test_a_stale_optimizer_does_not_hold_the_head_whose_gradient_grows():
    loop = _loop(frozenset({"stale"}))
    held = {id(p) for group in loop.optimizer.param_groups for p in group["params"]}
    assert not held & {id(p) for p in loop.model[-1].parameters()}
    assert log("stale").norms[-1] > 10 * log().norms[-1]


@pytest.mark.parametrize("seed", SEEDS)
def test_uncleared_gradients_add_up_and_a_sleeping_model_trains_without_noise(seed):
    healthy, uncleared = log(seed=seed), log("uncleared", seed=seed)
    assert uncleared.norms[0] == healthy.norms[0] and uncleared.norms[-1] > 4 * healthy.norms[-1]
    asleep = log("asleep", seed=seed)
    first = asleep.val_at[0]
    assert asleep.losses[:first] == healthy.losses[:first]
    assert asleep.losses[first:] != healthy.losses[first:]


@pytest.mark.parametrize("seed", SEEDS)
def test_what_the_page_says_of_the_six(seed):
    fine = {bug for bug in BUGS if looks_fine(log(bug, seed=seed), log(seed=seed))}
    assert fine == {"asleep", "kept", "leaked"}
    ends = {bug: sum(log(bug, seed=seed).losses[-8:]) / 8 for bug in ("asleep", "kept")}
    assert ends["asleep"] < ends["kept"]
    leaked, healthy = log("leaked", seed=seed), log(seed=seed)
    assert leaked.accuracies[-1] - leaked.unseen > 0.05 > healthy.accuracies[-1] - healthy.unseen


def test_another_device_ends_the_run_before_its_first_update():
    settings = Settings(asleep=False, elsewhere=True)
    shown = frame(settings)
    assert shown["runs"][0]["losses"] == [] and "update 1: RuntimeError" in says(settings, shown)


def test_the_lines_marked_are_those_of_the_switches_and_no_others():
    healthy = frame(Settings(asleep=False))
    assert healthy["marked"] == [] and healthy["same"]
    for bug in BUGS:
        shown = frame(Settings(**(dict.fromkeys(BUGS, False) | {bug: True})))
        marked = [shown["code"][i] for i in shown["marked"]]
        assert marked == [broken for name, _, broken in CODE if name == bug and broken]
        assert set(shown["code"]) - set(marked) <= set(healthy["code"])


@pytest.mark.slow
def test_no_other_switches_make_the_log_of_a_mystery():
    several = [bug for bug in BUGS if bug != "elsewhere"]
    logs = [log(*bugs) for size in range(6) for bugs in combinations(several, size)]
    assert all(one != other for one, other in combinations(logs, 2))


def test_mysteries_1_and_2_have_one_bug_and_the_others_two():
    assert [len(bugs) for bugs in MYSTERIES.values()] == [1, 1, 2, 2, 2]


@pytest.mark.parametrize("name", MYSTERIES)
def test_a_mystery_is_found_by_its_switches_and_not_named_on_the_page(name):
    switches = dict.fromkeys(BUGS, False) | dict.fromkeys(MYSTERIES[name], True)
    assert frame(Settings(beside=name, **switches))["same"]
    off = frame(Settings(beside=name, asleep=False))
    assert not off["same"] and not any(BUGS[bug] in str(off) for bug in BUGS)
    assert len(off["runs"][1]["losses"]) == UPDATES
