"""S21: two runs of one recipe, and which unrecorded layer lets them part."""
