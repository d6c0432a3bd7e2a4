"""Products on a GPU: what it is good at, what each variant costs there, and the choice.

Pure Python, from sizes to a plan: nothing here needs a GPU or PyTorch. ``machine.py`` has what is
known of a GPU, ``variants.py`` the ways to run a product, ``cost.py`` their time, ``memory.py``
their workspace, ``accuracy.py`` their error. ``candidates.py`` puts these together, ``choose.py``
decides.
"""

from tiercel.planner.gpu.choose import make_plan
from tiercel.planner.gpu.machine import GpuMachine, GpuRates, known_names, required, shipped
from tiercel.planner.gpu.plan import GpuCandidate, GpuPlan

__all__ = [
    "GpuCandidate",
    "GpuMachine",
    "GpuPlan",
    "GpuRates",
    "known_names",
    "make_plan",
    "required",
    "shipped",
]
