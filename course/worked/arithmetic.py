"""Training arithmetic: iterations, last batches and updates of the lecture's examples.

`training_arithmetic` itself stands in `course/data/arithmetic.py`, below the engine.
"""

from collections.abc import Iterator
from fractions import Fraction

from course.data.arithmetic import TrainingArithmetic, training_arithmetic
from course.worked.registry import Step, worked

__all__ = ["TrainingArithmetic", "training_arithmetic"]


@worked(
    "N01",
    title="10,000 examples in batches of 32",
    source="Training-loop chapter, c0",
    perturb={"batch_size": 64},
)
def epochs_and_iterations(
    num_examples: int = 10_000, batch_size: int = 32, epochs: int = 3
) -> Iterator[Step]:
    """Iterations, updates and examples, with the short last batch and without it."""
    run = training_arithmetic(num_examples, batch_size, epochs)
    yield Step("batches, exactly", num_examples / batch_size, 312.5, formula="N / B")
    yield Step("iterations an epoch", run.iterations_per_epoch, 313, formula="⌈N / B⌉")
    yield Step("last batch", run.last_batch, 16, formula="N − (⌈N / B⌉ − 1) · B")
    yield Step("updates", run.updates, 939, formula="E · ⌈N / B⌉")
    yield Step("examples seen", run.examples_seen, 30_000, formula="E · N")
    cut = training_arithmetic(num_examples, batch_size, epochs, drop_last=True)
    yield Step("drop_last: iterations an epoch", cut.iterations_per_epoch, 312, formula="⌊N / B⌋")
    yield Step("drop_last: updates", cut.updates, 936, formula="E · ⌊N / B⌋")
    yield Step("drop_last: examples seen", cut.examples_seen, 29_952, formula="E · ⌊N / B⌋ · B")


@worked(
    "N02",
    title="The hand calculation: 1,000 / 64, 5 epochs",
    source="Training-loop chapter, c0, hand calculation",
    perturb={"num_examples": 1_001},
)
def hand_calculation(
    num_examples: int = 1_000, batch_size: int = 64, epochs: int = 5
) -> Iterator[Step]:
    """Full batches, the last one, and the examples added up again."""
    run = training_arithmetic(num_examples, batch_size, epochs)
    full = run.iterations_per_epoch - 1
    yield Step("batches, exactly", num_examples / batch_size, 15.625, formula="N / B")
    yield Step("iterations an epoch", run.iterations_per_epoch, 16, formula="⌈N / B⌉")
    yield Step("examples in full batches", full * batch_size, 960, formula=f"{full} · {batch_size}")
    yield Step("last batch", run.last_batch, 40, formula=f"N − {full} · {batch_size}")
    yield Step("updates", run.updates, 80, formula=f"{epochs} · {run.iterations_per_epoch}")
    again = epochs * full * batch_size + epochs * run.last_batch
    added = f"{epochs * full} · {batch_size} + {epochs} · {run.last_batch}"
    yield Step("examples seen, batch by batch", again, 5_000, formula=added)


@worked(
    "N03",
    title="Accumulation: the formula's updates and the loop's",
    source="Training-loop chapter, c0, gradient accumulation and its code",
    perturb={"accum_steps": 3},
    reconstructed=(
        "The list below the heading is lost. Arithmetic leaves one possibility: 313 micro-batches "
        "and 79 updates an epoch, 78 of four micro-batches and 1 of one."
    ),
)
def accumulation_updates(
    num_examples: int = 10_000, batch_size: int = 32, accum_steps: int = 4, epochs: int = 3
) -> Iterator[Step]:
    """The formula's count, then the printed loop walked micro-batch by micro-batch."""
    run = training_arithmetic(num_examples, batch_size, epochs, accum_steps=accum_steps)
    yield Step("effective batch", run.effective_batch, 128, formula="B · K")
    yield Step("micro-batches an epoch", run.iterations_per_epoch, formula="⌈N / B⌉")
    yield Step("updates an epoch, flushing", run.updates_per_epoch, formula="⌈N / (B·K)⌉")
    full, left = divmod(run.iterations_per_epoch, accum_steps)
    yield Step(
        "of them full, and micro-batches in the short one", [full, left], formula="M divmod K"
    )
    yield Step("updates by the formula", run.formula_updates, 237, formula="E · ⌈N / (B·K)⌉")

    windows = _printed_loop(run.iterations_per_epoch, accum_steps, epochs)
    yield Step(
        "updates the printed loop makes",
        len(windows),
        237,
        formula="steps when (i + 1) mod K = 0: E · ⌊M / K⌋",
        correction=(
            "The formula is right for a loop that also steps at the end of an epoch. The chapter's "
            "own loop does not: it makes 234, and each epoch's leftover leaks into the next."
        ),
    )
    yield Step("most micro-batches in one of its updates", max(windows), formula="K + M mod K")
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
    """Micro-batches behind each update of the chapter's loop."""
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
    source="Training-loop chapter, c0, quiz",
    perturb={"num_examples": 50_100},
)
def iterations_quiz(num_examples: int = 50_000, batch_size: int = 256) -> Iterator[Step]:
    """One epoch."""
    run = training_arithmetic(num_examples, batch_size, 1)
    cut = training_arithmetic(num_examples, batch_size, 1, drop_last=True)
    yield Step("batches, exactly", num_examples / batch_size, formula="N / B")
    yield Step("iterations", run.iterations_per_epoch, formula="⌈N / B⌉")
    yield Step("last batch", run.last_batch)
    yield Step("drop_last: iterations", cut.iterations_per_epoch, formula="⌊N / B⌋")


@worked(
    "N05",
    title="Quiz: updates for 20,000 / 64, K = 4, 10 epochs",
    source="Training-loop chapter, c9, quiz",
    perturb={"epochs": 9},
)
def updates_quiz(
    num_examples: int = 20_000, batch_size: int = 64, accum_steps: int = 4, epochs: int = 10
) -> Iterator[Step]:
    """The intended answer is the formula's; the chapter's loop makes ten updates fewer."""
    size = (num_examples, batch_size, epochs)
    run = training_arithmetic(*size, accum_steps=accum_steps)
    yield Step("micro-batches an epoch", run.iterations_per_epoch, formula="⌈N / B⌉")
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
    source="Engineering module, §4",
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
    """Counts of both loaders, and black and white after Normalize(mean, sd)."""
    train = training_arithmetic(num_train, batch_size, epochs)
    val = training_arithmetic(num_val, val_batch_size, 1)
    yield Step("training batches, last one", [train.iterations_per_epoch, train.last_batch])
    yield Step("validation batches, last one", [val.iterations_per_epoch, val.last_batch])
    yield Step("updates", train.updates, formula="E · ⌈N / B⌉")
    black, white = (float((p - Fraction(str(mean))) / Fraction(str(sd))) for p in (0, 1))
    yield Step("normalised pixel range", [black, white], formula="(p − mean) / sd, p = 0 and 1")


@worked(
    "N45",
    title="The annotated script: 2,000 / 64, 100 epochs",
    source="Annotated-loop essay",
    perturb={"epochs": 10},
)
def annotated_script(
    num_examples: int = 2_000, batch_size: int = 64, epochs: int = 100
) -> Iterator[Step]:
    """Batches an epoch, the last of them, and all updates."""
    run = training_arithmetic(num_examples, batch_size, epochs)
    yield Step("batches, exactly", num_examples / batch_size, formula="N / B")
    yield Step("iterations an epoch", run.iterations_per_epoch, formula="⌈N / B⌉")
    yield Step("last batch", run.last_batch)
    yield Step("updates", run.updates, formula="E · ⌈N / B⌉")


@worked(
    "N46",
    title="The simulator: 500 / 16",
    source="Training-loop chapter, c6",
    perturb={"batch_size": 15},
)
def simulator(num_examples: int = 500, batch_size: int = 16) -> Iterator[Step]:
    """One epoch of the training simulator."""
    run = training_arithmetic(num_examples, batch_size, 1)
    yield Step("batches, exactly", num_examples / batch_size, formula="N / B")
    yield Step("updates an epoch", run.updates_per_epoch, formula="⌈N / B⌉")
    yield Step("last batch", run.last_batch)


@worked(
    "N47",
    title="Accumulation steps for a wanted batch",
    source='Lecture 3, "Simulating a big batch"; training-loop chapter, c7',
    perturb={"wanted": (512, 64)},
    reconstructed=(
        "The lecture's K is lost and stands as 4 in an earlier public revision of the slide; "
        "256 = 64 · K leaves no other. The chapter's 64 = 8 · 8 is printed."
    ),
)
def accumulation_steps(
    wanted: tuple[int, int] = (256, 64), fits: tuple[int, int] = (64, 8)
) -> Iterator[Step]:
    """K = wanted batch / what fits in memory, checked by the effective batch it gives."""
    for name, big, small, k in zip(("lecture", "chapter"), wanted, fits, (4, 8), strict=True):
        accum_steps = big // small
        yield Step(f"{name}: K", accum_steps, k, formula=f"{big} / {small}")
        run = training_arithmetic(big, small, 1, accum_steps=accum_steps)
        yield Step(f"{name}: updates for one wanted batch", run.updates, formula="one step")
