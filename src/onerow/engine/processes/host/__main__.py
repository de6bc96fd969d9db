"""Runs the keeper process by file path, knowing nothing of the package around it."""

import importlib
import os
import sys

# Appended, not prepended: nothing beside this folder may shadow the standard library.
sys.path.append(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
importlib.import_module("host.main").main(*map(int, sys.argv[1:]))
