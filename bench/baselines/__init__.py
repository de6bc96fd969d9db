"""Minimal queues that the benchmarks compare with: each does only what any queue on that store must do."""

import importlib
from pathlib import Path
from typing import Any


def open_baseline(url: str, folder: Path) -> Any:
    """Return a new minimal queue on this store; the one on SQLite is a file in the folder."""
    scheme = url.partition("://")[0].replace("postgresql", "postgres").replace("mongodb", "mongo")
    baseline = importlib.import_module(f"bench.baselines.{scheme}").Baseline
    return baseline(folder) if scheme == "sqlite" else baseline(url)
