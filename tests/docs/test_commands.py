"""Run the commands of README and tutorial; check links, and that the reference is current."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from onerow.cli.main import COMMANDS
from onerow.cli.reference_page import reference_page
from onerow.stores.postgres.maintenance import OLDEST_VERSION
from onerow.stores.sqlite.connections import FLOOR

ROOT = Path(__file__).parents[2]
_BLOCK = re.compile(r"^```sh\n(.*?)^```", re.DOTALL | re.MULTILINE)


def script_of(page: str) -> str:
    """Join all shell blocks of a page."""
    blocks = _BLOCK.findall((ROOT / page).read_text(encoding="utf-8"))
    return "\n".join(block for block in blocks if not block.startswith("make "))


def run(script: str, folder: Path) -> str:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("ONEROW_")}
    environment["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{environment['PATH']}"
    result = subprocess.run(
        ["bash", "-euxo", "pipefail", "-c", script], cwd=folder, env=environment, text=True, timeout=110,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False,
    )  # fmt: skip
    assert result.returncode == 0, result.stdout[-4_000:]
    return result.stdout


def test_the_readme_runs(tmp_path: Path) -> None:
    said = run(script_of("README.md"), tmp_path)
    assert "completed  greetings.deliver" in said
    assert "It is not due until" in said
    assert "completed in deliver" in said


def test_the_readme_s_example_prints_what_the_readme_shows(tmp_path: Path) -> None:
    page = (ROOT / "README.md").read_text(encoding="utf-8")
    said = run(script_of("README.md").partition("onerow init")[0], tmp_path)
    shown = re.search(r"^```\n(task .*?)^```", page, re.DOTALL | re.MULTILINE)
    assert shown is not None
    head, row = shown[1].splitlines()
    assert head in said
    assert re.sub(r"\S+ *$", "", re.sub(r"^\S+", "", row)).rstrip() in said


def test_the_readme_names_the_oldest_servers_that_are_supported() -> None:
    page = (ROOT / "README.md").read_text(encoding="utf-8")
    sqlite = ".".join(map(str, FLOOR[:2]))
    assert f"SQLite {sqlite} and newer, PostgreSQL {OLDEST_VERSION // 10_000} and newer, MongoDB 7.0 and newer" in page


def test_the_tutorial_runs(tmp_path: Path) -> None:
    said = run(script_of("docs/tutorial.md"), tmp_path)
    assert "It is parked for the signal packed until" in said
    assert "there are no unicorns" in said
    assert "cup by bike" in said
    assert "The phase charge was paused by" in said
    assert "because: the bank is down" in said


def test_the_tutorial_s_python_runs(tmp_path: Path) -> None:
    page = (ROOT / "docs/tutorial.md").read_text(encoding="utf-8")
    app = re.search(r"cat > app.py <<'END'\n(.*?)^END", page, re.DOTALL | re.MULTILINE)
    python = re.search(r"^```python\n(.*?)^```", page, re.DOTALL | re.MULTILINE)
    assert app is not None
    assert python is not None
    (tmp_path / "app.py").write_text(app[1], encoding="utf-8")
    (tmp_path / "onerow.toml").write_text("", encoding="utf-8")
    (tmp_path / "use.py").write_text(python[1], encoding="utf-8")
    assert run("python use.py", tmp_path).endswith("waiting\n")


def test_the_make_targets_of_the_readme_exist() -> None:
    page = (ROOT / "README.md").read_text(encoding="utf-8")
    for target in ("demo", "test"):
        assert f"```sh\nmake {target}\n```" in page
        subprocess.run(["make", "-n", target], cwd=ROOT, check=True, capture_output=True, timeout=60)


def test_the_reference_is_current() -> None:
    page = (ROOT / "docs/reference.md").read_text(encoding="utf-8")
    assert page == reference_page(), "run: python docs/render_reference.py"
    for name in COMMANDS:
        assert f"### `onerow {name} " in page


@pytest.mark.parametrize("page", ["README.md", *sorted(str(p.relative_to(ROOT)) for p in ROOT.glob("docs/**/*.md"))])
def test_links_have_targets(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", text):
        if "://" not in target:
            assert ((ROOT / page).parent / target).exists(), target


def test_commands_in_the_docs_exist() -> None:
    for page in ("README.md", "docs/operations.md", "docs/tutorial.md", "docs/how-to/find-out-what-is-wrong.md"):
        text = (ROOT / page).read_text(encoding="utf-8")
        named = set(re.findall(r"(?:`|^|\| )onerow ([a-z][a-z-]*)", text, re.MULTILINE))
        assert named <= set(COMMANDS), page


def test_decision_records_are_numbered_without_gaps_and_listed_in_the_index() -> None:
    records = sorted((ROOT / "docs/adr").glob("0*.md"))
    index = (ROOT / "docs/adr/README.md").read_text(encoding="utf-8")
    assert [int(record.name[:4]) for record in records] == list(range(1, len(records) + 1))
    for number, record in enumerate(records, start=1):
        title = record.read_text(encoding="utf-8").splitlines()[0].removeprefix(f"# {number}. ")
        assert f"| [{number}]({record.name}) | {title} |" in index
