"""S21: two runs of one recipe, and which unrecorded layer makes them diverge."""
