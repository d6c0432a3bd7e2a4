"""The vendor's own routine (NumPy and the BLAS under it): always available, never faster."""

from tiercel.targets.vendor.epilogue import EPILOGUES, apply_epilogue
from tiercel.targets.vendor.product import matmul

__all__ = ["EPILOGUES", "apply_epilogue", "matmul"]
