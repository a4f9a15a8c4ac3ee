"""S03, S02: from numbered examples to padded batches: order, grouping, and what collation costs."""
