"""Render docs/reference.md: python docs/render_reference.py"""

from pathlib import Path

from onerow.cli.reference_page import reference_page

if __name__ == "__main__":
    Path(__file__).with_name("reference.md").write_text(reference_page(), encoding="utf-8")
