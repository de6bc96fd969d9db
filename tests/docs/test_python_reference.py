"""The Python reference is current and complete: every public name, method, parameter, field and attribute is explained."""

import msgspec
import pytest

import onerow
from docs.python_pages import PAGES, Listed, Page
from docs.render_python import FOLDER, read_doc, render
from onerow import inboxes, testing
from onerow.core import errors as core_errors


@pytest.mark.parametrize("name", PAGES)
def test_a_page_is_current_and_explains_everything(name: str) -> None:
    missing: list[str] = []
    assert render(PAGES[name], missing) == (FOLDER / f"{name}.md").read_text(encoding="utf-8"), (
        "run: python -m docs.render_python"
    )
    assert missing == []


def test_there_are_no_other_pages() -> None:
    assert {path.stem for path in FOLDER.iterdir()} == set(PAGES)


def test_every_public_name_is_on_a_page() -> None:
    listed = {each.name for page in PAGES.values() for each in page.listed}
    names = {name for module in (onerow, inboxes, testing) for name in module.__all__ if not name.startswith("_")}
    errors = {
        name for name, kind in vars(core_errors).items() if isinstance(kind, type)
    }  # in python.md, says test_pages.py
    assert names - listed - errors == {"Request", "rehearsal"}  # in the introductions of their pages


def test_the_index_names_every_page() -> None:
    index = (FOLDER.parent / "python.md").read_text(encoding="utf-8")
    assert [name for name in PAGES if f"(python/{name}.md)" not in index] == []


class Example(msgspec.Struct):
    """An example."""

    explained: int  # by this comment
    unknown: int

    @property
    def attribute(self) -> int:
        return 1

    def method(self, given: int, other: int) -> None:
        """Do something. given: explained here."""


def test_what_is_not_explained_is_reported() -> None:
    missing: list[str] = []
    text = render(Page("Title", "", [Listed("Example", __name__)]), missing)
    assert missing == ["Example, field unknown", "Example, attribute attribute", "Example.method, parameter other"]
    assert "| `explained` | `int` | By this comment. |" in text
    assert "| `given` | `int` | Explained here. |" in text


def test_sentences_about_parameters_are_separated_from_the_prose() -> None:
    doc = read_doc(
        "Do it: now. one: first; also this. two, three: both of them.\n\n    More prose.", ["one", "two", "three"]
    )
    assert doc.prose == ["Do it: now.", "More prose."]
    assert doc.parameters == {"one": "First; also this.", "two": "Both of them.", "three": "Both of them."}
