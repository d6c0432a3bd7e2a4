"""Whose a product is, ours or torch's, and what is known from earlier ones."""
