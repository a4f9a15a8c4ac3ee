"""Submissions that cheat, or do harm; and what the same do under stock nbgrader."""
