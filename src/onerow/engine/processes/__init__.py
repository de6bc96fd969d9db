"""Child processes whose whole tree is ended, even if the worker was killed or is frozen."""

from .child import Child, Exit, signal_name
from .host.frames import BadFrame
from .process_host import ProcessHost
from .program import CannotStart, Program

__all__ = ["BadFrame", "CannotStart", "Child", "Exit", "ProcessHost", "Program", "signal_name"]
