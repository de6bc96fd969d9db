"""The command line, in this process and without settings of the environment."""

import os
from collections.abc import Callable

import pytest
from click.testing import CliRunner, Result

from onerow.cli.main import main

Run = Callable[..., Result]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run `onerow` with arguments."""
    for name in [name for name in os.environ if name.startswith("ONEROW_")]:
        monkeypatch.delenv(name)
    return lambda *arguments: CliRunner().invoke(main, [str(each) for each in arguments])
