"""S04, S23, S27: the six operations of one step, with every tensor before and after each."""
