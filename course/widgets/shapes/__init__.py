"""S24, S26: ranks and what their dimensions mean; a classifier from images to the loss."""
