"""A fourth set: bugs of thirty kinds, by another author who had read neither the doctor nor the
other sets. How the first look went, bench/diagnose says."""

from tests.debug.faulty.fourth import data, loops, losses, models, runs

PARTS = (data, models, losses, loops, runs)
