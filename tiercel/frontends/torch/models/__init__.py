"""``patch`` of a model: its linear layers, their forward, frozen weights, the report."""
