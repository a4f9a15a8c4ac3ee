"""S19: real mistakes in buckets that can be merged, with the most that each could gain."""
