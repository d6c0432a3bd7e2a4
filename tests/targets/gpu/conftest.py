"""Without a GPU the kernels run in Triton's interpreter; with one, ``tests/gpu`` runs them.

The interpreter is chosen when a kernel is defined, for the whole process: on a machine with a GPU
that would keep the tests in ``tests/gpu`` from using it.
"""

import os

import torch

if torch.cuda.is_available():
    collect_ignore_glob = ["test_interpreted_*.py"]
else:
    os.environ["TRITON_INTERPRET"] = "1"
