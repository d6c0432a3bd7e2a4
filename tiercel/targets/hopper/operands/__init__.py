"""Matrices in device memory as TMA sees them, and their scales."""
