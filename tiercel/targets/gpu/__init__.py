"""Portable GPU target: Triton kernels that add, around the vendor's own products.

Runs wherever PyTorch and Triton do (NVIDIA from compute capability 8.0 on, AMD), for every floating
and complex dtype. ``docs/portable-gpu.md`` explains the data flow and the choices.

``execute`` is the entry: it checks (``check``), takes a ``recipe`` and has ``steps`` write the work
down as launches (``launch``) of ``planes``: ``combine``, ``multiply``, ``update``, and, where the
``guard`` refuses, ``classical``. ``ready`` finds a call like an earlier one. ``freivalds`` probes
results, ``redo`` replaces them.
"""

from typing import TYPE_CHECKING, Any

from tiercel.targets.gpu.recipe import Recipe, recipe_for, workspace_bytes

if TYPE_CHECKING:
    from tiercel.targets.gpu.execute import pack, product
    from tiercel.targets.gpu.packed import Packed

__all__ = ["Packed", "Recipe", "pack", "product", "recipe_for", "workspace_bytes"]


def __getattr__(name: str) -> Any:
    # the recipes above are pure Python: whoever only plans needs neither PyTorch nor Triton
    if name in ("pack", "product"):
        from tiercel.targets.gpu import execute as home
    elif name == "Packed":
        from tiercel.targets.gpu import packed as home
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return globals().setdefault(name, getattr(home, name))
