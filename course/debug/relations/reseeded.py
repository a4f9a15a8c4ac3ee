"""Relation on the global random generators: reading the data does not set them for the step."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch

from course.debug.probes.report import Finding
from course.debug.probes.session import NotChecked, Session
from course.debug.relations.program import program_of

BATCHES = 3
"""Batches that are read from other states of the generators: none leads from these to one and the
same by chance."""
FIRST_SEED = 1_000
"""Seed of the first of these states: one that programs hardly use."""
STATES: dict[str, Callable[[], Any]] = {
    "torch's": lambda: torch.get_rng_state().numpy().tobytes(),
    "NumPy's": lambda: str(
        [v.tobytes() if isinstance(v, np.ndarray) else v for v in np.random.get_state()]
    ),
    "Python's": random.getstate,
}
"""States of the global generators, to be compared."""
FIXES = {
    "torch's": "self.own = torch.Generator().manual_seed(0)  # in __init__\n"
    "shift = torch.rand(1, generator=self.own)  # torch.manual_seed(0) sets it for all",
    "NumPy's": "self.rng = np.random.default_rng(0)  # in __init__; np.random.seed(0) is for all",
    "Python's": "self.rng = random.Random(0)  # in __init__; random.seed(0) is for all",
}


def by_reading(session: Session) -> Iterator[Finding]:
    """Reading a batch leaves each global generator at a place that depends on where it was.

    Else what a step draws of it, for noise or dropout, is the same in every step. A loader that
    sets it only where an epoch begins, or sets it back, leaves the batches apart; so does a step
    that seeds it for itself.
    """
    if session.loop.unit != "step":
        raise NotChecked("needs train_step")
    if getattr(session.setup.train_loader, "num_workers", 0):
        raise NotChecked("workers read the data, each with generators of its own")
    before, _ = _read(session, None)
    alike = [name for name in STATES if len({states[name] for states in before}) == 1]
    if not alike:
        return
    before, after = _read(session, program_of(session).make_step)
    for name in alike:
        starts, ends = ({states[name] for states in side} for side in (before, after))
        if len(starts) == len(ends) == 1 and starts != ends:
            yield Finding(
                "rng-reseeded", "warning",
                f"Reading a batch sets {name} global random generator to one and the same state "
                f"({BATCHES} batches, from {BATCHES} states), and each step draws from it: its "
                "random numbers, e.g. noise or dropout, are the same in every step.",
                {"batches": BATCHES, "states_after_reading": 1, "states_after_the_step": 1},
                FIXES[name],
            )  # fmt: skip
            return


def _read(session: Session, step: Callable[[Any], Any] | None) -> tuple[list[dict], list[dict]]:
    """States of the generators after some batches are read, each from another state, and after the
    step on each.

    Raises:
        NotChecked: There are fewer batches, or the loader or the step raises.
    """
    before, after = [], []
    with session.observe():
        try:
            iterator = iter(session.setup.train_loader)
            for seed in range(FIRST_SEED, FIRST_SEED + BATCHES):
                torch.manual_seed(seed)
                np.random.seed(seed)
                random.seed(seed)
                batch = next(iterator)
                before.append({name: state() for name, state in STATES.items()})
                if step is not None:
                    step(batch)
                    after.append({name: state() for name, state in STATES.items()})
        except StopIteration:
            raise NotChecked(f"an epoch has fewer than {BATCHES} batches") from None
        except NotChecked:
            raise
        except Exception as error:
            raise NotChecked(f"the step raises {type(error).__name__} here") from error
    return before, after
