"""The README's variables, commands and offline example are correct."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from ai_tagger import settings
from ai_tagger.cli import main
from apps.ai_tagger.tests.kit import PATIENCE, ROOT
from tests.servers.postgres import Databases

APP = Path(__file__).parents[1]
README = (APP / "README.md").read_text(encoding="utf-8")


def test_the_readme_names_every_command_and_every_variable() -> None:
    assert {f"tagger {name}" for name in main.commands} <= set(re.findall(r"tagger \w+", README))
    read = set(re.findall(r'said\("(\w+)"', Path(settings.__file__).read_text(encoding="utf-8")))
    assert {f"TAGGER_{name}" for name in read} == set(re.findall(r"TAGGER_[A-Z_]+", README))
    assert (APP / "report.svg").read_text(encoding="utf-8").startswith("<svg")
    assert "report.svg" in README


@pytest.mark.slow
def test_the_offline_story_runs_to_its_end(postgres_server: Databases) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "apps.ai_tagger.demo"],
        cwd=ROOT,
        env={
            **{name: value for name, value in os.environ.items() if not name.startswith("TAGGER_")},
            "TAGGER_DATABASE_URL": postgres_server.url,
        },
        capture_output=True, text=True, timeout=PATIENCE * 3, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-3_000:] + done.stderr[-3_000:]
    assert "120 new, 0 changed, 0 unchanged; 120 to tag" in done.stdout
    assert "backlog: none" in done.stdout
    assert "거리의 카페" in done.stdout
