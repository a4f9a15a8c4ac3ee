"""Sound set-ups that merely look unusual; no alarm may sound on any of them."""

from tests.debug.sound import dress, fresh, kinds, scripts, unseen, unusual  # noqa: F401
from tests.debug.sound.programs import SOUND

__all__ = ["SOUND"]
