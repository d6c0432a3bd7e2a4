"""``TIERCEL_DUMP=folder``: generated code as files that can be read."""

import os
import warnings
from pathlib import Path


def dump(name: str, made: str | bytes) -> None:
    """Write what was generated into the folder that ``TIERCEL_DUMP`` names, if it names one.

    A folder that cannot be written to costs a warning, not the product.
    """
    folder = os.environ.get("TIERCEL_DUMP")
    if not folder:
        return
    data = made.encode() if isinstance(made, str) else made
    try:
        Path(folder).mkdir(parents=True, exist_ok=True)
        Path(folder, name).write_bytes(data)
    except (OSError, ValueError) as error:
        warnings.warn(
            f"TIERCEL_DUMP={folder!r} cannot hold {name}: {error}; set it to a folder that may be "
            "written to, or to nothing",
            RuntimeWarning,
            stacklevel=2,
        )
