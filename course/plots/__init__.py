"""Static figures: pure functions that take data and return a matplotlib Figure."""
