"""What runs a plan: compiled kernels for this machine, or NumPy."""
