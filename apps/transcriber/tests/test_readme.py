"""README and operations guide: Python runs, links and commands exist, variables are the ones that the code reads."""

import configparser
import re
import shlex
from pathlib import Path

import pytest

from onerow import Queue
from onerow.cli.main import main as onerow_cli
from transcriber import settings
from transcriber.cli import main

FOLDER = Path(__file__).parents[1]
README, GUIDE = (FOLDER / name for name in ("README.md", "OPERATIONS.md"))


def test_the_readme_s_python_runs(queue: Queue) -> None:
    (block,) = re.findall(r"^```python\n(.*?)^```", README.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    exec(block, {})
    assert [task.status for task in queue.select()] == ["waiting"]


def test_their_links_lead_somewhere() -> None:
    for page in (README, GUIDE):
        for target in re.findall(r"\]\(([^)#]+)\)", page.read_text(encoding="utf-8")):
            assert (page.parent / target).exists(), target


def test_every_variable_they_name_is_read_and_every_one_is_described() -> None:
    source = Path(settings.__file__).read_text(encoding="utf-8")
    read = set(re.findall(r'"(TRANSCRIBER_[A-Z_]+)"', source))
    for page in (README, GUIDE):
        assert set(re.findall(r"TRANSCRIBER_[A-Z_]+", page.read_text(encoding="utf-8"))) <= read
    assert read <= set(re.findall(r"TRANSCRIBER_[A-Z_]+", README.read_text(encoding="utf-8")))


@pytest.mark.contract("An operations guide.")
def test_the_operations_guide_covers_the_service_disk_logs_and_upgrade_with_commands_that_exist() -> None:
    text = GUIDE.read_text(encoding="utf-8")
    assert {"As a service", "Disk", "Watch it", "Upgrade"} <= set(re.findall(r"^## (.+)$", text, re.MULTILINE))
    unit = configparser.ConfigParser(strict=False, interpolation=None)
    unit.optionxform = str  # type: ignore[assignment,method-assign]
    (block,) = re.findall(r"^```ini\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    unit.read_string(block)
    assert unit["Service"]["UMask"] == "0027"
    for line in re.findall(r"\btranscriber ((?:worker|monitor|add|list|view|queue)\b[^`\n#]*)", text):
        words = shlex.split(line.partition("…")[0])
        command = main.commands[words[0]]
        options = {option for each in command.params for option in each.opts}
        if words[0] == "queue":
            found = onerow_cli.get_command(None, words[1])  # type: ignore[arg-type]
            assert found is not None, line
            options = {option for each in found.params for option in each.opts} | {"--help", "--yes"}
        if words[0] != "worker":
            assert {word for word in words if word.startswith("--")} <= options, line
