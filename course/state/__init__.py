"""State that must be restored: whatever we run on a user's objects leaves them as they were.

    with kept(model, optimizer, loader): ...    everything reachable, bit for bit
    with left_as_found(loader): ...             a loader's place and generators, and the global ones
    with undisturbed(): ...                     only the global generators
    with evaluation_mode(model): ...            eval mode and no graph
    with fresh_settings(): ...                  torch as in a new process
    with on_the_cpu(): ...                      new tensors on the CPU

The engine, the learning-rate finder, the doctor, claims, worked numbers and the referee use the
same ones.
"""

from course.state.found import left_as_found
from course.state.fresh import fresh_settings, on_the_cpu
from course.state.generators import own_generators
from course.state.modes import evaluation_mode, modes_kept, train_mode_
from course.state.nested import cloned, mapped, moved, num_examples, tensors_in
from course.state.seeding import rng_state, seed_everything, set_rng_state, undisturbed
from course.state.snapshot import Snapshot, kept

__all__ = [
    "Snapshot",
    "cloned",
    "evaluation_mode",
    "fresh_settings",
    "kept",
    "left_as_found",
    "mapped",
    "modes_kept",
    "moved",
    "num_examples",
    "on_the_cpu",
    "own_generators",
    "rng_state",
    "seed_everything",
    "set_rng_state",
    "tensors_in",
    "train_mode_",
    "undisturbed",
]
