"""S20: a pipeline that reads codes, with its stages replaced by the truth, alone or together."""
