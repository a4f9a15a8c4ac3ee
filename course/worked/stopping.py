"""Early stopping: five traces of a validation loss, and where the chapter's rule stops each."""

import math
from collections.abc import Iterable, Iterator

from course.worked.registry import worked
from course.worked.step import Step


def stop_index(losses: Iterable[float], patience: int, min_delta: float) -> int | None:
    """Index of the epoch at which the chapter's rule stops; None if it never does.

    A loss is an improvement if loss < best − min_delta, with best = ∞ at the start; the rule counts
    the epochs without one. NaN is never smaller than anything, so it is never an improvement.
    """
    best, bad_epochs = math.inf, 0
    for index, loss in enumerate(losses):
        if loss < best - min_delta:
            best, bad_epochs = loss, 0
        else:
            bad_epochs += 1
            if bad_epochs >= patience:
                return index
    return None


@worked(
    "N53",
    title="Where early stopping stops",
    perturb={"patience": 4},
)
def early_stopping(
    turning: tuple[float, ...] = (1.0, 0.9, 0.8, 0.81, 0.82, 0.83),
    short_patience: int = 3,
    patience: int = 5,
    min_delta: float = 1e-4,
    epochs: int = 200,
) -> Iterator[Step]:
    """A turn upwards, two slow descents, NaN throughout, and one NaN."""

    def falling(by: float) -> list[float]:
        return [1 - by * epoch for epoch in range(epochs)]

    def stop(losses: Iterable[float], patience: int = patience) -> int | str:
        index = stop_index(losses, patience, min_delta)
        return "never" if index is None else index

    trace = ", ".join(f"{loss:g}".removeprefix("0") or "0" for loss in turning)
    yield Step(f"{trace} with patience {short_patience}", stop(turning, short_patience))
    rule = f"improvement: more than {min_delta:g} below the best, within {patience} epochs"
    yield Step("−1e-5 per epoch", stop(falling(1e-5)), formula=rule)
    yield Step("−5e-5 per epoch", stop(falling(5e-5)), formula=rule)
    yield Step("all NaN", stop([math.nan] * epochs), formula="nan < best is False")
    yield Step("NaN first, then better every epoch", stop([math.nan, *falling(0.001)]))
