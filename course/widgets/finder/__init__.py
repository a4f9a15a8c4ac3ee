"""S18: the learning-rate finder, next to the loss after training with each rate."""
