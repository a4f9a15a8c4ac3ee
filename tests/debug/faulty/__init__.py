"""Faulty set-ups, each beside its repaired twin; `PAIRS` holds them all."""

from tests.debug.faulty import (  # noqa: F401
    checkpoints,
    dress,
    eighteenth,
    eighth,
    eleventh,
    fifteenth,
    fifth,
    formulas,
    fourteenth,
    fourth,
    fresh,
    kinds,
    loops,
    losses,
    modes,
    nineteenth,
    ninth,
    reported,
    seventeenth,
    seventh,
    sixteenth,
    sixth,
    sources,
    structures,
    subtle,
    tenth,
    thirteenth,
    twelfth,
    twentieth,
    twenty_first,
    twenty_second,
    unseen,
)
from tests.debug.faulty.kit import PAIRS, Pair

__all__ = ["PAIRS", "Pair"]
