"""Products without a scheme: tile, schedule and split of K are chosen, then one launch."""
