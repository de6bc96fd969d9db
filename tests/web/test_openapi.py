"""The API keeps what its OpenAPI document says, whatever is sent to it."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis.checks import CHECKS
from schemathesis.generation import GenerationMode

from onerow import Queue
from onerow.web import Dashboard, dashboard
from onerow.web.api import api_routes
from onerow.web.api.operation import PREFIX
from onerow.web.api.reference_page import reference_page
from tests.web.kit import TOKENS, access, clips

# The schema can't say all that is refused: a query has its own language, and an act depends on the task's status.
_NOT_APPLICABLE = {"positive_data_acceptance"}
_HEADERS = {"Authorization": f"Bearer {TOKENS['admin']}"}


@pytest.fixture(scope="module")
def filled_site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Dashboard]:
    queue = Queue(f"sqlite:///{tmp_path_factory.mktemp('openapi') / 'onerow.db'}")
    queue.publish(clips())
    for number in range(5):
        queue.add("clips", {"topic": f"조류 {number}"}, task_id=f"t{number}")
    app = dashboard(queue, access=access())
    yield app
    app.close()
    queue.close()


@pytest.fixture(scope="module")
def schema(filled_site: Dashboard) -> Any:
    return schemathesis.openapi.from_asgi("/api/v1/openapi.json", filled_site, headers=_HEADERS)


_KNOWN = {"pipeline": "clips", "task_id": "t1", "phase": "script"}
"""Names that exist, so that valid requests reach the handlers."""
_checks = [check for check in CHECKS.get_all() if check.__name__ not in _NOT_APPLICABLE]
_operations = [(each.path.removeprefix(PREFIX), each.method) for each in api_routes()]


def call_many_times(schema: Any, path: str, method: str, examples: int) -> None:
    """Call an operation with valid and invalid requests, and check each answer against the document."""
    operation = schema[path][method]

    def check(case: Any) -> None:
        if case.meta is None or case.meta.generation.mode is GenerationMode.POSITIVE:
            case.path_parameters |= {name: value for name, value in _KNOWN.items() if name in case.path_parameters}
        case.call_and_validate(base_url=f"http://testserver{PREFIX}", headers=_HEADERS, checks=_checks)

    for mode in GenerationMode:
        strategy: Any = given(operation.as_strategy(generation_mode=mode))
        generated: Any = strategy(check)
        settings(
            max_examples=examples, phases=[Phase.explicit, Phase.generate], suppress_health_check=list(HealthCheck),
            deadline=None, database=None,
        )(generated)()  # fmt: skip


@pytest.mark.parametrize("path, method", _operations)
def test_every_operation_answers_as_documented(schema: Any, path: str, method: str) -> None:
    call_many_times(schema, path, method, examples=2)


@pytest.mark.slow
@pytest.mark.parametrize("path, method", _operations)
def test_every_operation_answers_as_documented_to_many_requests(schema: Any, path: str, method: str) -> None:
    call_many_times(schema, path, method, examples=40)


def test_the_reference_page_is_current() -> None:
    page = Path(__file__).parents[2] / "docs" / "reference" / "http-api.md"
    assert page.read_text(encoding="utf-8") == reference_page(), "run: python docs/render_api.py"
