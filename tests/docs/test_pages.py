"""Check links, names of commands and versions in the pages, and that the reference is current."""

import re
import subprocess
from pathlib import Path

import click
import pytest

import onerow
from onerow import environment, settings
from onerow.cli.main import COMMANDS, main
from onerow.cli.reference_page import reference_page
from onerow.core import errors
from onerow.core.errors import OnerowError
from onerow.stores.postgres.maintenance import OLDEST_VERSION
from onerow.stores.sqlite.connections import FLOOR

ROOT = Path(__file__).parents[2]


def test_the_readme_names_the_oldest_servers_that_are_supported() -> None:
    page = (ROOT / "README.md").read_text(encoding="utf-8")
    sqlite = ".".join(map(str, FLOOR[:2]))
    assert f"SQLite {sqlite} and newer, PostgreSQL {OLDEST_VERSION // 10_000} and newer, MongoDB 7.0 and newer" in page


def test_the_test_command_of_the_readme_exists() -> None:
    assert "```sh\nmake test\n```" in (ROOT / "README.md").read_text(encoding="utf-8")
    subprocess.run(["make", "-n", "test"], cwd=ROOT, check=True, capture_output=True, timeout=900)


def test_the_readme_begins_with_the_installation_and_an_example() -> None:
    titles = re.findall(r"^## (.+)$", (ROOT / "README.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert titles[:5] == ["Install", "Example", "Quick start", "Why", "Compared with others"]


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


def test_no_page_imports_the_engine() -> None:
    pages = {ROOT / "README.md", *ROOT.glob("docs/**/*.md"), *ROOT.glob("apps/*/README.md")}
    pages -= set(ROOT.glob("docs/adr/*"))
    assert [str(page) for page in sorted(pages) if "onerow.engine" in page.read_text(encoding="utf-8")] == []


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


def words_of_pages() -> set[str]:
    pages = [ROOT / "README.md", *(path for path in ROOT.glob("docs/**/*.md") if "adr" not in path.parts)]
    return {word for page in pages for word in re.findall(r"[A-Za-z_][\w-]*", page.read_text(encoding="utf-8"))}


def test_every_public_name_error_and_setting_stands_in_a_page() -> None:
    names = {name for name in onerow.__all__ if not name.startswith("_")}
    names |= {name for name, kind in vars(errors).items() if isinstance(kind, type) and issubclass(kind, OnerowError)}
    names |= set(settings.KEYS) | {environment.VARIABLE}
    assert names - words_of_pages() == set()


def test_every_command_and_option_stands_in_a_page() -> None:
    page = (ROOT / "docs/reference.md").read_text(encoding="utf-8")
    for name in COMMANDS:
        command = main.get_command(click.Context(main), name)
        assert command is not None
        section = page.partition(f"### `onerow {name} ")[2].partition("\n### ")[0]
        for option in command.params:
            if isinstance(option, click.Option) and not option.is_eager and not option.hidden:
                assert option.opts[0] in section, f"onerow {name} {option.opts[0]}"
