"""Shared parts of the benchmarks: the store, the measured worker process and the result."""

import json
import subprocess
import sys
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from onerow.pipelines.pipeline import Pipeline
from onerow.wiring import Queue, open_store


@dataclass
class Figure:
    """One measured figure."""

    figure: str
    store: str
    value: float
    unit: str
    reference: float | None = None  # the same figure of what it is compared with, measured in the same run
    compared_with: str | None = None
    ratio: float | None = None
    profile: str = "durable"
    runs: int = 1
    spread: float = 0.0

    def __post_init__(self) -> None:
        if self.reference:
            self.compared_with = self.compared_with or "baseline"
            self.ratio = round(self.value / self.reference, 3)
            self.reference = round(self.reference, 3)
        self.value = round(self.value, 3)

    def as_dict(self) -> dict[str, Any]:
        return {key: value for key, value in asdict(self).items() if value is not None}


@dataclass
class Setting:
    """The store and sizes of one run."""

    folder: Path
    given: str | None
    tasks: int
    scale: int
    _names: int = field(default=0)

    @property
    def url(self) -> str:
        return self.given or f"sqlite:///{self.folder / 'bench.db'}"

    @property
    def store(self) -> str:
        return self.url.partition(":")[0]

    def queue(self) -> Queue:
        return Queue(open_store(self.url))

    def pipeline(self) -> Pipeline:
        """Return a pipeline with a new name, so that an existing database can be measured too."""
        self._names += 1
        return Pipeline(f"bench-{time.time_ns()}-{self._names}")

    def worker(self, pipeline: str, **terms: Any) -> dict[str, Any]:
        """Run a worker process until it is done; return its measurements."""
        return finish(start(self.url, pipeline, **terms))


def start(url: str, pipeline: str, **terms: Any) -> subprocess.Popen[str]:
    request = json.dumps({"url": url, "pipeline": pipeline} | terms)
    return subprocess.Popen(
        [sys.executable, "-m", "bench.worker_process", request],
        stdout=subprocess.PIPE,
        stdin=subprocess.PIPE,
        text=True,
    )


def finish(process: subprocess.Popen[str]) -> dict[str, Any]:
    out, _ = process.communicate()
    if process.returncode:
        raise RuntimeError(f"a measured worker ended with {process.returncode}")
    return json.loads(out.splitlines()[-1])  # type: ignore[no-any-return]
