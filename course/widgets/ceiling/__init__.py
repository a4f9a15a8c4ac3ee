"""S20: a pipeline that reads codes, its stages replaced by the truth one by one or together."""
