"""S01: counts the forward passes, updates and examples of a run."""
