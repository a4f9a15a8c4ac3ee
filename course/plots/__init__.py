"""Static figures: pure functions, data in, Figure out; matplotlib is imported when one is drawn."""
