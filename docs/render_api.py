"""Render docs/reference/http-api.md: python docs/render_api.py"""

from pathlib import Path

from onerow.web.api.reference_page import reference_page

if __name__ == "__main__":
    (Path(__file__).parent / "reference" / "http-api.md").write_text(reference_page(), encoding="utf-8")
