"""Render docs/states.md: python docs/render_states.py"""

from pathlib import Path

from onerow.core.moves import states_page

if __name__ == "__main__":
    Path(__file__).with_name("states.md").write_text(states_page(), encoding="utf-8")
