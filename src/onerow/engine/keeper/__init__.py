"""Child processes that leave nothing behind, and what it takes to run a handler in one."""

from .child import Child
from .exits import CannotStart, Exit
from .frames import BadFrame, Channel
from .keeper import Keeper
from .names import importable_name, resolve

__all__ = ["BadFrame", "CannotStart", "Channel", "Child", "Exit", "Keeper", "importable_name", "resolve"]
