"""S22: gradient clipping in the plane, and what an accumulation window adds up before it."""
