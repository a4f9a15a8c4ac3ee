"""Eve: hands in the notebook as it was."""
