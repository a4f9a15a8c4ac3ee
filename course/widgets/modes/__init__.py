"""S05: the same network in train and in eval mode, and the memory that only no_grad saves."""
