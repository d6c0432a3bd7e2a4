"""Products with a traced epilogue inside the kernel: its text, its plan, the arrays it fills."""
