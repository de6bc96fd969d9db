"""Regenerate apps/CONTRACT.md: python apps/render_contract.py

It lists every line of each application's contract.toml beside the tests that carry the line as a pytest mark.
"""

import ast
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path

APPS = Path(__file__).parent
PAGE = APPS / "CONTRACT.md"

_SECTIONS = {"must": "It must", "holes": "Holes it closes"}


class ContractError(Exception):
    """A line without a test, or a test whose line is not in contract.toml."""


def contract_page(folder: Path = APPS) -> str:
    """Return the page; raise ContractError that names every line without a test and every mark without a line."""
    apps = sorted(path.parent for path in folder.glob("*/contract.toml"))
    parts = [
        "# What the applications promise, and the test of each line\n",
        "Rendered by `python apps/render_contract.py` from each application's `contract.toml` and the "
        "`contract` marks of its tests.\n",
    ]
    for app in apps:
        parts.append(_part(app))
    return "\n".join(parts)


def _part(app: Path) -> str:
    contract = tomllib.loads((app / "contract.toml").read_text(encoding="utf-8"))
    tests: dict[str, list[str]] = {}
    for line, test in _marks(app / "tests"):
        tests.setdefault(line, []).append(test)
    _check(app, contract, tests)
    rows = [f"## {contract['title']}\n"]
    for section, heading in _SECTIONS.items():
        rows += [f"### {heading}\n", "| line | tests |", "| --- | --- |"]
        rows += [f"| {_cell(line)} | {'<br>'.join(tests[line])} |" for line in contract[section]]
        rows.append("")
    return "\n".join(rows)


def _check(app: Path, contract: Mapping[str, list[str]], tests: Mapping[str, list[str]]) -> None:
    lines = [line for section in _SECTIONS for line in contract[section]]
    wrong = [f"no test bears the line: {line}" for line in lines if line not in tests]
    wrong += [
        f"{', '.join(tests[line])} bears a line that isn't in the contract: {line}"
        for line in tests.keys() - set(lines)
    ]
    wrong += [
        f"the line stands there twice: {line}" for line in sorted({line for line in lines if lines.count(line) > 1})
    ]
    if wrong:
        raise ContractError(f"{app.name}/contract.toml and {app.name}/tests differ:\n  " + "\n  ".join(wrong))


def _marks(folder: Path) -> Iterator[tuple[str, str]]:
    """Return (line, link to the test) for every `@pytest.mark.contract("line", …)`."""
    for path in sorted(folder.rglob("test_*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                continue
            for mark in node.decorator_list:
                if isinstance(mark, ast.Call) and ast.unparse(mark.func) == "pytest.mark.contract":
                    for argument in mark.args:
                        yield (
                            str(ast.literal_eval(argument)),
                            f"[{node.name}]({path.relative_to(folder.parent.parent)})",
                        )


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


if __name__ == "__main__":
    PAGE.write_text(contract_page(), encoding="utf-8")
