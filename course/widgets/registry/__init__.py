"""S11: what a module registers, and what the optimizer, `.to()` and a checkpoint then reach."""
