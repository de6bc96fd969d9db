"""Run the host process by file path, independent of the package around it."""

import importlib
import os
import sys

# Appended, not prepended: modules beside this folder must not shadow the standard library.
sys.path.append(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
importlib.import_module("host.main").main(*map(int, sys.argv[1:]))
