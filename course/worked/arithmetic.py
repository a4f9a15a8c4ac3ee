"""Training arithmetic: iterations, last batches and updates of the lecture's examples.

`training_arithmetic` itself is in `course/data/arithmetic.py`, below the engine.
"""

from collections.abc import Iterator
from fractions import Fraction

from course.data.arithmetic import TrainingArithmetic, training_arithmetic
from course.worked.registry import worked
from course.worked.step import Step

__all__ = ["TrainingArithmetic", "training_arithmetic"]


@worked(
    "N01",
    title="10,000 examples in batches of 32",
    perturb={"batch_size": 64},
)
def epochs_and_iterations(
    num_examples: int = 10_000, batch_size: int = 32, epochs: int = 3
) -> Iterator[Step]:
    """Iterations, updates and examples, with the short last batch and without it."""
    run = training_arithmetic(num_examples, batch_size, epochs)
    yield Step("batches, exactly", num_examples / batch_size, 312.5, formula="N / B")
    yield Step("iterations per epoch", run.iterations_per_epoch, 313, formula="⌈N / B⌉")
    rest = "N − (⌈N / B⌉ − 1) · B"
    yield Step("last batch", run.last_batch, 16, formula=rest, as_printed="only 16 examples")
    yield Step("updates", run.updates, 939, formula="E · ⌈N / B⌉")
    yield Step("examples seen", run.examples_seen, 30_000, formula="E · N", as_printed="30000")
    cut = training_arithmetic(num_examples, batch_size, epochs, drop_last=True)
    yield Step("drop_last: iterations per epoch", cut.iterations_per_epoch, formula="⌊N / B⌋")
    yield Step("drop_last: updates", cut.updates, formula="E · ⌊N / B⌋")
    yield Step("drop_last: examples seen", cut.examples_seen, formula="E · ⌊N / B⌋ · B")


@worked(
    "N02",
    title="A hand calculation: 1,000 / 64, 5 epochs",
    perturb={"num_examples": 1_001},
)
def hand_calculation(
    num_examples: int = 1_000, batch_size: int = 64, epochs: int = 5
) -> Iterator[Step]:
    """Full batches, the last batch, and the examples summed as a check."""
    run = training_arithmetic(num_examples, batch_size, epochs)
    full = run.iterations_per_epoch - 1
    yield Step("batches, exactly", num_examples / batch_size, 15.625, formula="N / B")
    yield Step("iterations per epoch", run.iterations_per_epoch, 16, formula="⌈N / B⌉")
    yield Step("examples in full batches", full * batch_size, 960, formula=f"{full} · {batch_size}")
    yield Step("last batch", run.last_batch, 40, formula=f"N − {full} · {batch_size}")
    yield Step("updates", run.updates, 80, formula=f"{epochs} · {run.iterations_per_epoch}")
    again = epochs * full * batch_size + epochs * run.last_batch
    added = f"{epochs * full} · {batch_size} + {epochs} · {run.last_batch}"
    yield Step("examples seen, batch by batch", again, 5_000, formula=added, as_printed="5000")


@worked(
    "N03",
    title="Accumulation: updates by the formula and by the loop",
    perturb={"accum_steps": 3},
    reconstructed=(
        "The list below the chapter's heading is lost, but arithmetic allows only 79 updates per "
        "epoch. Its 237 comes from a formula; the loop counted below is printed in another chapter "
        "(c7)."
    ),
)
def accumulation_updates(
    num_examples: int = 10_000, batch_size: int = 32, accum_steps: int = 4, epochs: int = 3
) -> Iterator[Step]:
    """The formula's count, then the printed loop walked micro-batch by micro-batch."""
    run = training_arithmetic(num_examples, batch_size, epochs, accum_steps=accum_steps)
    yield Step("effective batch", run.effective_batch, 128, formula="B · K")
    yield Step("micro-batches per epoch", run.iterations_per_epoch, 313, formula="⌈N / B⌉")
    yield Step(
        "updates per epoch, flushing", run.updates_per_epoch, rebuilt=79, formula="⌈N / (B·K)⌉"
    )
    full, left = divmod(run.iterations_per_epoch, accum_steps)
    yield Step(
        "full updates among them, and micro-batches in the short one",
        [full, left],
        formula="M divmod K",
    )
    yield Step("updates by the formula", run.formula_updates, 237, formula="E · ⌈N / (B·K)⌉")

    windows = _printed_loop(run.iterations_per_epoch, accum_steps, epochs)
    yield Step(
        "updates of a loop that steps on every K-th micro-batch only",
        len(windows),
        formula="steps when (i + 1) mod K = 0: E · ⌊M / K⌋, and leftovers leak",
    )
    yield Step("most micro-batches in one of these updates", max(windows), formula="K + M mod K")
    for name, options in {
        "a counter that never resets": {"remainder": "carry"},
        "drop_last": {"drop_last": True, "remainder": "drop"},
        "flushing the remainder": {"remainder": "flush"},
    }.items():
        other = training_arithmetic(
            num_examples, batch_size, epochs, accum_steps=accum_steps, **options
        )
        yield Step(f"{name}: updates", other.updates)
        if options["remainder"] == "carry":
            yield Step(f"{name}: left over", other.leftover_at_end, formula="E·M mod K")


def _printed_loop(micro_batches: int, accum_steps: int, epochs: int) -> list[int]:
    """Number of micro-batches in each update of the chapter's loop."""
    windows, held = [], 0
    for _ in range(epochs):
        for i in range(micro_batches):
            held += 1  # backward() adds to .grad
            if (i + 1) % accum_steps == 0:
                windows.append(held)
                held = 0  # zero_grad()
    return windows


@worked(
    "N04",
    title="Quiz: iterations for 50,000 / 256",
    tells="iterations",
    perturb={"num_examples": 50_100},
)
def iterations_quiz(num_examples: int = 50_000, batch_size: int = 256) -> Iterator[Step]:
    """Counts for one epoch, with the short last batch and without it."""
    run = training_arithmetic(num_examples, batch_size, 1)
    cut = training_arithmetic(num_examples, batch_size, 1, drop_last=True)
    yield Step("batches, exactly", num_examples / batch_size, formula="N / B")
    yield Step("iterations", run.iterations_per_epoch, formula="⌈N / B⌉")
    yield Step("last batch", run.last_batch)
    yield Step("drop_last: iterations", cut.iterations_per_epoch, formula="⌊N / B⌋")


@worked(
    "N05",
    title="Quiz: updates for 20,000 / 64, K = 4, 10 epochs",
    tells="updates by the formula",
    perturb={"epochs": 9},
)
def updates_quiz(
    num_examples: int = 20_000, batch_size: int = 64, accum_steps: int = 4, epochs: int = 10
) -> Iterator[Step]:
    """The intended answer is the formula's; the chapter's loop makes ten fewer updates."""
    size = (num_examples, batch_size, epochs)
    run = training_arithmetic(*size, accum_steps=accum_steps)
    yield Step("micro-batches per epoch", run.iterations_per_epoch, formula="⌈N / B⌉")
    yield Step("updates by the formula", run.formula_updates, formula="E · ⌈N / (B·K)⌉")
    yield Step("updates, flushing the remainder", run.updates)
    windows = _printed_loop(run.iterations_per_epoch, accum_steps, epochs)
    yield Step("updates by the printed loop", len(windows), formula="E · ⌊M / K⌋")
    cut = training_arithmetic(*size, accum_steps=accum_steps, drop_last=True, remainder="drop")
    yield Step("updates with drop_last", cut.updates)
    carried = training_arithmetic(*size, accum_steps=accum_steps, remainder="carry")
    yield Step("updates with one counter for all epochs", carried.updates, formula="⌊E·M / K⌋")
    flushed_once = carried.updates + (carried.leftover_at_end > 0)
    yield Step("the same, flushed once at the end", flushed_once, formula="⌈E·M / K⌉")


@worked(
    "N44",
    title="MNIST: batches, updates and the range of a pixel",
    tells="updates",
    perturb={"batch_size": 64},
)
def mnist(
    num_train: int = 60_000,
    batch_size: int = 128,
    num_val: int = 10_000,
    val_batch_size: int = 512,
    epochs: int = 3,
    mean: float = 0.1307,
    sd: float = 0.3081,
) -> Iterator[Step]:
    """Counts for both loaders, and the values of black and white after Normalize(mean, sd)."""
    train = training_arithmetic(num_train, batch_size, epochs)
    val = training_arithmetic(num_val, val_batch_size, 1)
    yield Step("training batches, size of the last", [train.iterations_per_epoch, train.last_batch])
    yield Step("validation batches, size of the last", [val.iterations_per_epoch, val.last_batch])
    yield Step("updates", train.updates, formula="E · ⌈N / B⌉")
    black, white = (float((p - Fraction(str(mean))) / Fraction(str(sd))) for p in (0, 1))
    yield Step("normalised pixel range", [black, white], formula="(p − mean) / sd, p = 0 and 1")


@worked(
    "N45",
    title="The annotated script: 2,000 / 64, 100 epochs",
    tells="updates",
    perturb={"epochs": 10},
)
def annotated_script(
    num_examples: int = 2_000, batch_size: int = 64, epochs: int = 100
) -> Iterator[Step]:
    """Batches per epoch, the last batch, and the total number of updates."""
    run = training_arithmetic(num_examples, batch_size, epochs)
    yield Step("batches, exactly", num_examples / batch_size, formula="N / B")
    yield Step("iterations per epoch", run.iterations_per_epoch, formula="⌈N / B⌉")
    yield Step("last batch", run.last_batch)
    yield Step("updates", run.updates, formula="E · ⌈N / B⌉")


@worked(
    "N46",
    title="The simulator: 500 / 16",
    tells="updates per epoch",
    perturb={"batch_size": 15},
)
def simulator(num_examples: int = 500, batch_size: int = 16) -> Iterator[Step]:
    """One epoch of the training simulator."""
    run = training_arithmetic(num_examples, batch_size, 1)
    yield Step("batches, exactly", num_examples / batch_size, formula="N / B")
    yield Step("updates per epoch", run.updates_per_epoch, formula="⌈N / B⌉")
    yield Step("last batch", run.last_batch)


@worked(
    "N47",
    title="Accumulation steps for a desired batch size",
    perturb={"wanted": (512, 64)},
    reconstructed=(
        "The lecture's K is lost, but 256 = 64 · K allows only 4, and an earlier public version of "
        "the slide has it. The chapter's 8 is printed."
    ),
)
def accumulation_steps(
    wanted: tuple[int, int] = (256, 64), fits: tuple[int, int] = (64, 8)
) -> Iterator[Step]:
    """K = desired batch size / batch size that fits in memory, checked by multiplying back."""
    known = (
        {"rebuilt": 4},
        {
            "printed": 8,
            "as_printed": "8 forward passes",
            "at": "chapter c7, component 3",
        },
    )
    for name, big, small, k in zip(("lecture", "chapter"), wanted, fits, known, strict=True):
        accum_steps = big // small
        yield Step(f"{name}: K", accum_steps, formula=f"{big} / {small}", **k)
        run = training_arithmetic(big, small, 1, accum_steps=accum_steps)
        yield Step(f"{name}: updates for one desired batch", run.updates, formula="one step")
