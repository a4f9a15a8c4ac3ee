"""S08: the production loop put together from its parts, in their legal order, and run."""
