"""Faulty set-ups, each beside its repaired twin; `PAIRS` holds them all."""

from tests.debug.faulty import checkpoints, loops, losses, modes, sources, structures, subtle  # noqa: F401
from tests.debug.faulty.kit import PAIRS, Pair

__all__ = ["PAIRS", "Pair"]
