"""S14: bits, range and precision of FP32, FP16 and BF16, and what a loss scale saves."""
