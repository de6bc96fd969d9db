"""Render the table of keys in docs/how-to/monitor.md from the bindings: python docs/render_keys.py"""

import re
from pathlib import Path

from onerow.tui.keys import markdown_table

GUIDE = Path(__file__).parent / "how-to" / "monitor.md"


def main() -> None:
    text = GUIDE.read_text(encoding="utf-8")
    GUIDE.write_text(
        re.sub(r"\| key \|.*?\n(?=\n)", lambda _: markdown_table(), text, flags=re.DOTALL), encoding="utf-8"
    )


if __name__ == "__main__":
    main()
