"""Two optimizers race down the same surface."""
