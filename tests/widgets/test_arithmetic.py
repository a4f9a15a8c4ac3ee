"""The calculator's counts against a loop that counts, and its epoch's end against the same loop."""

from itertools import pairwise

import pytest

from course.widgets.arithmetic.state import Settings, frame


def counted(settings: Settings) -> tuple[int, int, list[tuple[int, int, bool]]]:
    """Forward passes, updates, and the first epoch's (micro-batch, size, stepped), by counting."""
    passes = updates = held = 0
    first = []
    for epoch in range(settings.epochs):
        sizes = [
            min(settings.batch_size, settings.num_examples - start)
            for start in range(0, settings.num_examples, settings.batch_size)
        ]
        if settings.drop_last:
            sizes = [size for size in sizes if size == settings.batch_size]
        if settings.remainder != "carry":
            held = 0
        for index, size in enumerate(sizes, start=1):
            passes, held = passes + 1, held + 1
            ends = index == len(sizes) and settings.remainder == "flush"
            stepped = held == settings.accum_steps or ends
            updates, held = updates + stepped, 0 if stepped else held
            if epoch == 0:
                first.append((index, size, stepped))
    return passes, updates, first


@pytest.mark.parametrize("remainder", ["flush", "drop", "carry"])
@pytest.mark.parametrize("drop_last", [False, True])
@pytest.mark.parametrize(("n", "b", "k"), [(10_000, 32, 4), (1_000, 64, 3), (100, 32, 8)])
def test_counts_and_the_epochs_end_are_those_of_a_loop(n, b, k, drop_last, remainder):
    settings = Settings(
        num_examples=n, batch_size=b, accum_steps=k, drop_last=drop_last, remainder=remainder
    )
    passes, updates, first = counted(settings)
    shown = frame(settings)
    assert (shown["iterations"], shown["updates"]) == (passes, updates)
    tail = [(one["index"], one["size"], one["fate"] == "step") for one in shown["tail"]]
    assert tail == first[-8:]


def test_the_lectures_numbers():
    shown = frame(Settings())
    assert (shown["formula_updates"], shown["loop_updates"]) == (237, 234)
    assert (shown["iterations_per_epoch"], shown["last_batch"]) == (313, 16)
    assert shown["loop_largest_window"] == 5


def test_doubling_the_batch_halves_the_updates_and_k_leaves_the_passes_alone():
    one, four = (frame(Settings(accum_steps=k)) for k in (1, 4))
    assert one["iterations"] == four["iterations"] == one["updates"]
    sweep = one["sweep"]["updates"]
    assert all(abs(a / b - 2) < 0.06 for a, b in pairwise(sweep))


def test_drop_last_without_any_batch_is_refused():
    with pytest.raises(ValueError, match="leaves no batch"):
        Settings(num_examples=100, batch_size=128, drop_last=True)
