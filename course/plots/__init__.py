"""Static figures: pure functions, data in, matplotlib Figure out. Nothing is drawn on a screen."""
