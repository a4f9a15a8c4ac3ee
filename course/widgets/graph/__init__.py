"""S25: backward through a graph of torch, node by node."""
