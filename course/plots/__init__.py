"""Static figures: pure functions, data in, Figure out; matplotlib comes when one is drawn."""
