"""S22: gradient clipping in the plane, after an accumulation window has summed its gradients."""
