"""Sound set-ups that merely look unusual; no alarm may sound on any of them."""

from tests.debug.sound import (  # noqa: F401
    dress,
    eighth,
    eighth_loops,
    eleventh,
    eleventh_loops,
    fifteenth,
    fifteenth_loops,
    fifth,
    fifth_loops,
    fourteenth,
    fourteenth_loops,
    fourth,
    fourth_loops,
    fresh,
    kinds,
    ninth,
    ninth_loops,
    scripts,
    seventeenth,
    seventeenth_loops,
    seventh,
    seventh_loops,
    sixteenth,
    sixteenth_loops,
    sixth,
    thirteenth,
    thirteenth_loops,
    twelfth,
    twelfth_loops,
    unseen,
    unusual,
)
from tests.debug.sound.programs import SOUND

__all__ = ["SOUND"]
