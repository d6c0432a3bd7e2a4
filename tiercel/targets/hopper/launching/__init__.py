"""From CUDA text to a launch.

``compile`` has NVRTC and its cache, ``driver`` the calls of the CUDA driver, ``kernel`` and
``tensor_map`` what it is given, ``launch`` all that a repeated call needs. Calls find their launch
again by ``keys``, ``movable`` gives it other addresses, ``again`` does so in the fewest steps.
``occupancy`` and ``available`` say how much of the device there is, ``lasting`` has memory
that stays.
"""
