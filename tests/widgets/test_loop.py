"""The loop's code in every combination, run: against the Trainer, a bare loop, a restart."""

import warnings
from itertools import combinations

import pytest
import torch
from torch import nn
from torch.optim.lr_scheduler import CosineAnnealingLR
from torch.utils.data import DataLoader

import course.claims as claims
import course.worked as worked
from course.engine import EarlyStopping, Trainer
from course.widgets.loop import runs, state
from course.widgets.loop.code import (
    BATCH_SIZE,
    LR,
    MAX_NORM,
    NEEDS,
    PARTS,
    PATIENCE,
    WINDOW,
    lines_of,
    shown,
    source_of,
)
from course.widgets.loop.state import ABOUT, Settings, frame

EVERY = [set(some) for count in range(len(PARTS) + 1) for some in combinations(PARTS, count)]
EPOCHS = 2
NEUTRAL = {"checkpoint", "logging"}
"""Parts that must not change a single weight."""


@pytest.fixture(autouse=True, scope="module")
def few_examples():
    """36 digits: an epoch of two windows, the second of one short micro-batch."""
    everything, few = runs.examples, _few(*runs.examples())
    runs.examples = lambda: few
    state._run.cache_clear()
    yield
    runs.examples = everything
    state._run.cache_clear()


def _few(train, val):
    train_few, val_few = (
        torch.utils.data.TensorDataset(*(tensor[:count] for tensor in one.tensors))
        for one, count in ((train, 36), (val, 50))
    )
    return train_few, val_few


def by_trainer(parts: set[str]) -> tuple[torch.Tensor, list[float]]:
    """Weights and validation losses that the course's trainer gets with the same parts."""
    train, _ = runs.examples()
    with torch.random.fork_rng(devices=[]), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.manual_seed(0)
        generator = torch.Generator().manual_seed(0) if "seeding" in parts else None
        loader = DataLoader(train, BATCH_SIZE, shuffle=True, generator=generator)
        model = runs.make_model()
        optimizer = torch.optim.SGD(model.parameters(), lr=LR)
        window = WINDOW if "accumulation" in parts else 1
        updates = EPOCHS * -(-len(loader) // window)
        trainer = Trainer(
            model,
            nn.CrossEntropyLoss(),
            optimizer,
            scheduler=CosineAnnealingLR(optimizer, updates) if "schedule" in parts else None,
            schedule_per="update" if "schedule" in parts else "epoch",
            accum_steps=window,
            max_norm=MAX_NORM if "clipping" in parts else None,
            precision="fp16" if "precision" in parts else "fp32",
            device="cpu",
            callbacks=[EarlyStopping(PATIENCE)] if "stopping" in parts else [],
        )
        history = trainer.fit(loader, epochs=EPOCHS)
    weights = nn.utils.parameters_to_vector(model.parameters()).detach()
    return weights, [runs.evaluate(model), len(history)]


@pytest.mark.parametrize(
    "parts",
    [parts for parts in EVERY if not parts & (NEUTRAL | {"stopping"})],
    ids=lambda parts: "+".join(sorted(parts)) or "bare",
)
def test_the_code_trains_as_the_trainer_does(parts):
    ours = runs.run(parts, epochs=EPOCHS)
    weights, (loss, epochs) = by_trainer(parts)
    torch.testing.assert_close(ours.weights, weights, rtol=1e-4, atol=1e-5)
    assert len(ours.val_losses) == epochs
    assert ours.val_losses[-1] == pytest.approx(loss, rel=1e-4)


def test_every_combination_runs_and_neutral_parts_change_no_bit():
    known = {}
    for parts in EVERY:
        ran = runs.run(parts, epochs=1)
        core = frozenset(parts - NEUTRAL - {"stopping"})  # patience outlasts the epoch
        weights = known.setdefault(core, ran.weights)
        assert torch.equal(ran.weights, weights), parts
        assert len(ran.log) == ("logging" in parts)
        assert not ran.warned, parts
    assert len(known) == 2**5


def test_the_bare_loop_is_the_one_everybody_writes():
    train, _ = runs.examples()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        loader, model = DataLoader(train, BATCH_SIZE, shuffle=True), runs.make_model()
        for _ in range(EPOCHS):
            for inputs, targets in loader:
                model.zero_grad()
                nn.functional.cross_entropy(model(inputs), targets).backward()
                with torch.no_grad():
                    for parameter in model.parameters():
                        parameter -= LR * parameter.grad
    weights = nn.utils.parameters_to_vector(model.parameters()).detach()
    torch.testing.assert_close(runs.run((), epochs=EPOCHS).weights, weights)


class Killed(Exception):
    pass


@pytest.mark.parametrize("others", [{"seeding"}, set(PARTS) - {"checkpoint"}, {"schedule"}])
def test_a_run_that_is_killed_and_started_again_ends_with_the_same_bits(others, tmp_path):
    parts, path = {"checkpoint"} | others, str(tmp_path / "last.pt")
    whole = runs.run(parts, epochs=4)
    judged = []

    def judge(model):
        judged.append(runs.evaluate(model))
        if len(judged) == 3:
            raise Killed
        return judged[-1]

    with pytest.raises(Killed):
        runs.run(parts, epochs=4, path=path, judge=judge)
    rest = runs.run(parts, epochs=4, path=path, seed=7)
    assert rest.val_losses == whole.val_losses[2:]
    assert torch.equal(rest.weights, whole.weights)


def test_early_stopping_stops_after_three_epochs_without_a_better_one():
    losses = iter([1.0, 0.5, 0.6, 0.5, 0.7, 0.1])
    ran = runs.run(("stopping",), epochs=6, judge=lambda model: next(losses))
    assert ran.val_losses == [1.0, 0.5, 0.6, 0.5, 0.7]


def test_with_seeds_what_the_generators_held_before_is_nothing_to_the_run():
    for parts in (("seeding",), PARTS):
        runs_of_two = [runs.run(parts, epochs=1, seed=seed) for seed in (0, 1)]
        assert torch.equal(*(one.weights for one in runs_of_two))
    assert not torch.equal(*(runs.run((), epochs=1, seed=seed).weights for seed in (0, 1)))


def test_wrong_orders_do_what_they_are_said_to_do():
    parts = ("precision", "clipping", "seeding")
    start = runs.run(parts, epochs=0).weights
    moved = {
        order: (runs.run(parts, order, epochs=1).weights - start).norm().item() for order in NEEDS
    }
    assert moved["clip_early"] < 1e-3 * moved["legal"]
    late = runs.run(("clipping", "seeding"), "clip_late", epochs=1).weights
    assert torch.equal(late, runs.run(("seeding",), epochs=1).weights)
    inside = runs.run(("schedule", "accumulation"), "schedule_inside", epochs=1)
    assert "lr_scheduler.step()" in inside.warned[0]


@pytest.mark.parametrize("order", NEEDS)
def test_an_order_without_its_parts_is_the_legal_one(order):
    for part in NEEDS[order]:
        parts = set(PARTS) - {part}
        assert lines_of(parts, order) == lines_of(parts)
    assert (lines_of(PARTS, order) == lines_of(PARTS)) == (order == "legal")


def test_the_legal_order_is_unscale_clip_step_update_schedule():
    code = source_of(lines_of(PARTS))
    calls = ("unscale_(", "clip_grad_norm_(", "scaler.step(", "scaler.update(", "scheduler.step(")
    places = [code.index(call) for call in calls]
    assert places == sorted(places)


def test_what_is_shown_is_what_runs():
    lines = lines_of(PARTS)
    texts = source_of(lines), "\n".join(shown(lines))
    run, read = (compile(text, "loop", "exec").co_code for text in texts)
    assert run == read
    for part in PARTS:
        without = {code for code, _ in lines_of(set(PARTS) - {part})}
        assert {code for code, tag in lines if tag == part} - without, part


def test_the_costs_named_are_those_of_the_claims():
    ratios = claims.compute("F54").measured.evidence["peak with micro-batches / with one batch"]
    more, less = 100 * (max(ratios.values()) - 1), 100 * (1 - min(ratios.values()))
    assert (more, less) == (pytest.approx(27, abs=3), pytest.approx(87, abs=3))
    assert "27 % more to 87 % less" in ABOUT["accumulation"].costs
    times = [round(step.computed) for step in worked.compute("N49").steps[:3]]
    assert times == [1, 2, 3] and "1, 2 or 3 times" in ABOUT["checkpoint"].costs


def test_the_frame_counts_lines_and_updates():
    shown_now = frame(Settings(accumulation=False))
    assert (shown_now["updates"], frame(Settings())["updates"]) == (13, 4)
    assert shown_now["bare_lines"] == 12
