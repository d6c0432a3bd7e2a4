"""A kernel's timestamps: one traced product, and what it recorded."""
