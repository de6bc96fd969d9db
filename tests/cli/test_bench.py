"""`onerow bench` measures a store that is in use, and leaves it as it was."""

import json
import os
import subprocess
import sys
from pathlib import Path

from onerow.core.filters import Filter
from onerow.engine.control import definitions
from onerow.stores.sqlite import SqliteStore
from tests.cli.conftest import VIDEOS
from tests.samples import a_task


def test_bench_deletes_its_tasks_and_does_not_change_other_tasks(tmp_path: Path) -> None:
    path = tmp_path / "used.db"
    store = SqliteStore(path)
    store.prepare()
    definitions.publish(store, [VIDEOS])
    store.insert([a_task("waits", run_at=store.now())])
    (before,) = store.fetch(["waits"])
    environment = {name: value for name, value in os.environ.items() if not name.startswith("ONEROW_")}
    result = subprocess.run(
        [sys.executable, "-m", "onerow", "bench", "--store", f"sqlite:///{path}", "--tasks", "1000", "--json"],
        env=environment, capture_output=True, text=True, timeout=900, check=False,
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    figures = json.loads(result.stdout)
    assert [figure["unit"] for figure in figures] == ["tasks/s"] * 3 + ["ms"] * 2
    assert all(figure["value"] > 0 for figure in figures)
    assert store.fetch(["waits"]) == [before]
    assert sum(count.count for count in store.count(Filter())) == 1
    assert [note.name for note in store.notes(definitions.PLAN)] == ["videos"]
    store.close()
