"""The training arithmetic against a real DataLoader and loops that really count."""

import subprocess
import sys

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.data import DataLoader, TensorDataset

from course.data.arithmetic import training_arithmetic

counts = {
    "num_examples": st.integers(1, 60),
    "batch_size": st.integers(1, 20),
    "epochs": st.integers(1, 4),
    "accum_steps": st.integers(1, 6),
    "drop_last": st.booleans(),
}


def walk(num_examples, batch_size, epochs, accum_steps, drop_last, policy):
    """Micro-batch sizes, windows of every update and what was left, by a loop with real batches."""
    dataset = TensorDataset(torch.arange(num_examples))
    loader = DataLoader(dataset, batch_size=batch_size, shuffle=True, drop_last=drop_last)
    sizes, windows, lost, held, counter = [], [], 0, 0, 0
    for _ in range(epochs):
        for i, (batch,) in enumerate(loader):
            sizes.append(len(batch))
            held += 1
            counter += 1
            position = counter if policy == "carry" else i + 1
            if position % accum_steps == 0:
                windows.append(held)
                held = 0
        if policy == "flush" and held:
            windows.append(held)
            held = 0
        if policy == "drop":
            lost, held = lost + held, 0
    return sizes, windows, lost + held


@settings(max_examples=60, deadline=None)
@given(**counts, remainder=st.sampled_from(["flush", "drop", "carry"]))
def test_counts_are_those_of_a_real_loader_and_loop(remainder, **setting):
    if setting["drop_last"] and setting["num_examples"] < setting["batch_size"]:
        with pytest.raises(ValueError, match="leaves no batch"):
            training_arithmetic(**setting, remainder=remainder)
        return
    run = training_arithmetic(**setting, remainder=remainder)
    sizes, windows, lost = walk(**setting, policy=remainder)
    assert run.iterations == len(sizes) == run.iterations_per_epoch * setting["epochs"]
    assert run.last_batch == sizes[-1]
    assert run.examples_seen == sum(sizes)
    seen_an_epoch = sum(sizes) // setting["epochs"]
    assert run.examples_unseen_per_epoch == setting["num_examples"] - seen_an_epoch
    assert run.updates == len(windows)
    assert run.leftover_at_end == lost
    first_epoch = walk(**{**setting, "epochs": 1}, policy=remainder)[1]
    assert run.updates_per_epoch == len(first_epoch)


@settings(max_examples=60, deadline=None)
@given(**counts)
def test_the_printed_loop_is_counted_as_it_runs(**setting):
    if setting["drop_last"] and setting["num_examples"] < setting["batch_size"]:
        return
    run = training_arithmetic(**setting)
    _, windows, _ = walk(**setting, policy="leak")
    assert run.loop_updates == len(windows)
    assert run.loop_largest_window == max(windows, default=0)


@settings(max_examples=100, deadline=None)
@given(n=st.integers(1, 500), b=st.integers(1, 40), k=st.integers(1, 9), e=st.integers(1, 5))
def test_flushing_is_what_makes_the_formula_right(n, b, k, e):
    run = training_arithmetic(n, b, e, accum_steps=k, remainder="flush")
    assert run.updates == run.formula_updates
    assert run.formula_and_loop_agree == (run.leftover_micro_batches == 0)


def test_the_chapters_example():
    run = training_arithmetic(10_000, 32, 3)
    assert (run.iterations_per_epoch, run.last_batch, run.updates) == (313, 16, 939)
    dropped = training_arithmetic(10_000, 32, 3, drop_last=True)
    assert (dropped.iterations_per_epoch, dropped.updates, dropped.examples_seen) == (
        312,
        936,
        29_952,
    )


def test_formula_and_loop_disagree_by_the_flushed_windows():
    run = training_arithmetic(10_000, 32, 3, accum_steps=4)
    assert (run.formula_updates, run.loop_updates, run.loop_largest_window) == (237, 234, 5)
    carried = training_arithmetic(10_000, 32, 3, accum_steps=4, remainder="carry")
    assert (carried.updates, carried.leftover_at_end) == (234, 3)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"accum_steps": 0}, r"accum_steps = 0: .*For no accumulation, use 1"),
        ({"batch_size": 32.0}, r"batch_size = 32\.0: expected a whole number"),
        ({"epochs": True}, r"epochs = True"),
        ({"num_examples": -1}, r"num_examples = -1"),
        ({"remainder": "keep"}, r"'keep': expected 'flush'"),
        ({"num_examples": 10, "drop_last": True}, r"10 examples in batches of 32 leaves no batch"),
    ],
)
def test_impossible_counts_say_what_to_try_next(wrong, message):
    with pytest.raises(ValueError, match=message):
        training_arithmetic(**{"num_examples": 100, "batch_size": 32, "epochs": 1, **wrong})


def test_the_module_itself_needs_no_torch():
    code = (
        "import importlib.util as u, sys\n"
        "from pathlib import Path\n"
        "import course\n"
        "path = Path(course.__file__).parent / 'data' / 'arithmetic.py'\n"
        "spec = u.spec_from_file_location('arithmetic', path)\n"
        "module = sys.modules['arithmetic'] = u.module_from_spec(spec)\n"
        "spec.loader.exec_module(module)\n"
        "assert module.training_arithmetic(100, 16, 1).last_batch == 4\n"
        "assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
