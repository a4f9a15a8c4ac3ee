"""What an accuracy says of ideal outputs: whether it counts right answers, all of them, in its way.

An accuracy may be of answers that are not the largest outputs: of sure ones alone, of votes, of
families of classes, of scores moved by known shares. Outputs that are right beyond doubt are right
in each of these ways, and wrong ones in any batch are missed; a wrong count is neither.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from course.debug.probes.modes import close, scored_with
from course.debug.probes.session import NotChecked, Session, pair

SURE = 50.0
"""Score of an ideal answer above the others: all of the chance, and more than a prior takes."""
EXACT = 1e-6
"""Relative distance from 1 or 100 of the accuracy of ideal answers."""
MOST_TURNS = 3
"""Other answers that are tried in a batch: the next class may be of the same family."""


def counts_in_its_way(session: Session, name: str) -> bool:
    """The accuracy of ideal outputs is all, and less where those of the first or of the last batch
    are of other classes."""
    batches = len(session.val_epoch.batches)
    try:
        if not _is_all(_scored(session, name, {})):
            return False
        return all(
            any(not _is_all(_scored(session, name, {place: turn}))
                for turn in range(1, MOST_TURNS + 1))
            for place in {0, batches - 1}
        )  # fmt: skip
    except NotChecked:
        return False


def _is_all(value: float) -> bool:
    return any(close(value, most, EXACT) for most in (1.0, 100.0))


def _scored(session: Session, name: str, turned: dict[int, int]) -> float:
    """The accuracy where the model gives ideal outputs, of classes further on in these batches."""
    targets = [session.place(pair(batch)[1]) for batch in session.val_epoch.batches]
    calls = 0

    def ideal(_: nn.Module, __: Any, outputs: Any) -> Any:
        nonlocal calls
        place = calls % len(targets)
        calls += 1
        classes = outputs.shape[-1] if isinstance(outputs, Tensor) else 0
        if classes < 2 or outputs.shape[:-1] != targets[place].shape:
            raise NotChecked("outputs and targets are not classes")
        answers = (targets[place].clamp_min(0) + turned.get(place, 0)) % classes
        return SURE * nn.functional.one_hot(answers, classes).to(outputs)

    return scored_with(session, ideal).get(name, float("nan"))
