"""Child processes whose whole tree is ended, and the channel and names to run a handler in one."""

from .child import Child
from .exits import CannotStart, Exit
from .frames import BadFrame, Channel
from .function_names import importable_name, resolve
from .process_host import ProcessHost

__all__ = ["BadFrame", "CannotStart", "Channel", "Child", "Exit", "ProcessHost", "importable_name", "resolve"]
