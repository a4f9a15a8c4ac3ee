"""S03, S02: from numbered examples to padded batches: order, grouping, and the cost of padding."""
