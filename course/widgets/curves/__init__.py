"""S15: six recorded runs whose curves are read epoch by epoch, alone or side by side."""
