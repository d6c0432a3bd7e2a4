"""The engine for CUDA tensors: a plan, its launches, the weights and planes that they read."""
