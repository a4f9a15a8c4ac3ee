"""S01: how many forward passes, updates and examples a run has, counted."""
