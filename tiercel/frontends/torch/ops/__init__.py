"""Products as operators of ``torch.library``, for what traces, compiles, maps or distributes."""
