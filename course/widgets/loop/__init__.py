"""S08: the production loop, assembled from its parts in their legal order, and run."""
