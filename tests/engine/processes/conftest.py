from collections.abc import Iterator
from pathlib import Path

import pytest

from onerow.engine.processes import ProcessHost
from tests.engine.processes.handlers import HANDLERS, Handlers
from tests.engine.processes.kit import Runs


@pytest.fixture
def runs(tmp_path: Path) -> Iterator[Runs]:
    (folder := tmp_path / "notes").mkdir()
    with ProcessHost() as process_host:
        yield (runs := Runs(process_host, folder))
    assert not runs.alive(), "processes survived the process host"


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Handlers]:
    (tmp_path / "handlers.py").write_text(HANDLERS, encoding="utf-8")
    with ProcessHost() as process_host:
        yield (handlers := Handlers(process_host, tmp_path))
    for handler in handlers.started:
        handler.close()
