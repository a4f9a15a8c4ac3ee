"""S13, S30: a batch's road from data set to model, and who waits for whom on it."""
