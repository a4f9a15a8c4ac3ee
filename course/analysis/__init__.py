"""After the loop runs: read the curves, look at the errors, change one thing at a time."""
