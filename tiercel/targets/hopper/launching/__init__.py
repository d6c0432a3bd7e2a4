"""From CUDA text to a launch: compiler, driver, launches that are kept and moved."""
