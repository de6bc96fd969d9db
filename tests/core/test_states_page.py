"""docs/states.md matches the table of moves."""

from pathlib import Path

from onerow.core.moves import states_page

PAGE = Path(__file__).parents[2] / "docs" / "states.md"


def test_docs_states_md_is_current() -> None:
    assert PAGE.read_text(encoding="utf-8") == states_page(), "run: python docs/render_states.py"
