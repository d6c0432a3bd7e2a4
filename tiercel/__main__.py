"""``python -m tiercel``."""

from tiercel.cli import main

main()
