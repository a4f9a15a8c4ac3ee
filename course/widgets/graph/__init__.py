"""S25: backward through one of torch's graphs, node by node."""
