"""Products with an epilogue: named or traced, for the first time or again, packed or not."""
