"""The README's variables, commands and offline example are correct."""

import os
import re
import subprocess
import sys
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from apps.news_publisher.tests.kit import PATIENCE
from news_publisher import config
from news_publisher.cli import main

APP = Path(__file__).parents[1]
README = (APP / "README.md").read_text(encoding="utf-8")


def test_the_readme_names_every_command_and_every_variable() -> None:
    assert {f"news {name}" for name in main.commands} <= set(re.findall(r"news \w+", README))
    read = set(re.findall(r'said\("(\w+)"', Path(config.__file__).read_text(encoding="utf-8")))
    assert {f"NEWS_{name}" for name in read} == set(re.findall(r"NEWS_[A-Z_]+", README))


@pytest.mark.slow
def test_the_offline_story_runs_to_its_end(mongo_url: str) -> None:
    server = urlsplit(mongo_url)._replace(path="/").geturl()
    done = subprocess.run(
        [sys.executable, "-m", "apps.news_publisher.demo"],
        cwd=APP.parents[1],
        env={**os.environ, "NEWS_MONGO_URL": server},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4_000:]
    assert "1 held, 5 published" in done.stdout
    assert "completed        8" in done.stdout
    assert done.stdout.count("달 탐사선") == 1
