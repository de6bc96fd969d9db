"""Errors: the message says what is wrong, `fix` says what to do."""

import ast
import re
import traceback
from collections.abc import Iterator
from pathlib import Path

import pytest

import onerow
from onerow.core import errors
from onerow.core.errors import BadInput, KeyTaken, OnerowError, SchemaMissing, with_fix
from onerow.core.suggest import did_you_mean

CLASSES = {
    name: kind for name, kind in vars(errors).items() if isinstance(kind, type) and issubclass(kind, OnerowError)
}
SOURCE = Path(onerow.__file__).parent
ADVICE = re.compile(
    r"; (write|use|run|call|give|name|pass|install|set|leave|choose|add|try|check|make|put|wait|retry|stop|remove|start) "
    r"|: (use|write|pass|give|run|call) |did you mean|write it like|\b(run|use|try): |pip install|onerow migrate|try again"
)


def messages() -> Iterator[tuple[str, str]]:
    """Yield the place and the literal text of the message of each error that the package creates."""
    for path in SOURCE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") in {*CLASSES, "AppError"} and node.args:
                parts = [part.value for part in ast.walk(node.args[0]) if isinstance(part, ast.Constant)]
                yield f"{path.relative_to(SOURCE)}:{node.lineno}", "".join(map(str, parts))


def test_no_message_contains_advice() -> None:
    found = list(messages())
    assert len(found) > 200
    assert [(where, text) for where, text in found if ADVICE.search(text)] == []


def test_the_fix_is_a_field_and_a_traceback_shows_it() -> None:
    error = BadInput("no store is named", fix="pass --store", field="store")
    assert (str(error), error.fix, error.field) == ("no store is named", "pass --store", "store")
    assert traceback.format_exception_only(error)[-1] == "pass --store\n"
    assert with_fix(error) == "no store is named; pass --store"
    assert with_fix(ValueError("no")) == "no"


def test_an_error_class_may_have_a_fix_of_its_own() -> None:
    assert SchemaMissing("no tables").fix == "run: onerow migrate"
    assert SchemaMissing("no tables", fix="ask ann").fix == "ask ann"
    assert KeyTaken("t1", "t2", "k").fix == "cancel that task or wait until it ends"


@pytest.mark.parametrize("kind", CLASSES.values(), ids=CLASSES)
def test_every_error_has_a_fix_field(kind: type[OnerowError]) -> None:
    error = kind.__new__(kind)
    assert isinstance(error.fix, str)


def test_a_suggestion_names_the_nearest_name_or_all() -> None:
    assert did_you_mean("vidoes", ["videos", "posts"]) == "did you mean 'videos'?"
    assert did_you_mean("VIDEOS", ["videos"]) == "did you mean 'videos'?"
    assert did_you_mean("x", ["videos", "posts"]) == "choose one of posts, videos"
    assert did_you_mean("x", ["videos"], "see the manual") == "see the manual"
    assert did_you_mean("x", []) == ""
