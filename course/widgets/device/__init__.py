"""S28: three questions that lead to a CPU, a GPU, or a change of the loader."""
