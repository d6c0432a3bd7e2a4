"""Products by a scheme inside the kernel: its tables, planes, guard and launch."""
