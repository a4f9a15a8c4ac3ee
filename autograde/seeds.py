"""Seeds of the cases that a student is asked."""

import hashlib
import secrets


def new_seed() -> int:
    """A seed nobody could know beforehand; JSON holds its 48 bits exactly."""
    return secrets.randbits(48)


def another_seed(seed: int) -> int:
    """For cases that are asked once more of who may have kept the first ones; always the same."""
    return int.from_bytes(hashlib.sha256(f"again {seed}".encode()).digest()[:6])
