"""S13, S30: the way of a batch from data set to model, and which side waits for the other."""
