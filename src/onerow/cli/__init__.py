"""The command line `onerow`."""

from onerow.cli.main import main

__all__ = ["main"]
