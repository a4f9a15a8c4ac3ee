"""Thresholds that many probes share: steps that make a habit, shares that make a rule, rounding."""

LEAST_STEPS = 8
"""Steps, backwards or forwards from which something that always or never happens is a habit: a
third of those that `diagnose` watches, and as many as `watch` looks at first."""
ENOUGH_STEPS = 12
"""The same of what must add up over steps, e.g. graphs kept or a loss that falls: half of those
that `diagnose` watches."""

OFTEN = 0.5
"""Share of the events from which what was seen is the rule, not an exception."""
MOST = 0.8
"""The same where the events at the ends may differ, e.g. the first step or a cut-off window."""
NEARLY_ALL = 0.9
"""Share that is as good as all: of 24 steps, two may differ."""
KEPT = 0.6
"""Share of the graphs made that are still alive, from which they are collected: a loop that holds
only its last loss keeps one of them."""

YES = 0.5
"""Halfway between the targets 0 and 1: a probability above it answers 1."""
PADDED_ROWS = 0.3
"""Share of the rows that end in the same value, from which it may be padding."""
CHANGED = 0.01
"""Change of the outputs over their size or spread, from which they depend on what was changed:
rounding of float32 stays a thousand times below."""

ROUNDED = 1e-3
"""Distance from 0 or 1 of a sum of shares in half precision."""
ZERO = 1e-9
"""A loss, a norm or a difference below it is 0 but for rounding."""
TINY = 1e-12
"""Least scale of a relative difference, so that two zeros can be compared."""

UNLABELLED = -1
"""Label of an example without one, in many data sets' own files; `ignore_index` may be told so."""
LEFT_OUT = -100
"""Label that torch's losses leave out where they are told no other `ignore_index`."""
