"""Seeds of the cases that a student is asked."""

import secrets


def new_seed() -> int:
    """A seed nobody could know beforehand; JSON holds its 48 bits exactly."""
    return secrets.randbits(48)
