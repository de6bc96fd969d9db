"""OpenAPI 3.1, written from the table of operations."""

import re
from collections.abc import Iterable
from http import HTTPStatus
from typing import Any

import msgspec
from msgspec import Struct
from starlette.responses import Response

import onerow
from onerow.web.api.operation import PREFIX, NoQuery, operation
from onerow.web.problems import CONTENT_TYPE
from onerow.web.routing import Call, Documented, Endpoint
from onerow.web.security.roles import Role

_REF = "#/components/schemas/{name}"
_TAGS = {
    "tasks": "Add, read and wait for tasks.",
    "acts": "Change tasks, one or many.",
    "pull": "Workers in other languages.",
    "phases": "Pause phases and set limits.",
    "figures": "What the store and its workers do.",
}


class ProblemBody(Struct, frozen=True, kw_only=True, rename={"kind": "type"}):
    """An error (RFC 9457). fix: what to do about it. field: the wrong field. column: of a mistake in a query."""

    kind: str
    title: str
    status: int
    detail: str
    fix: str = ""
    field: str = ""
    column: int | None = None


def document(endpoints: Iterable[Endpoint]) -> dict[str, Any]:
    """Return the OpenAPI document of the documented endpoints."""
    listed = [(each, each.documented) for each in endpoints if each.documented is not None]
    types: list[Any] = [ProblemBody]
    for _, doc in listed:
        types += [doc.request] if doc.request is not None else []
        types += [kind for kind in doc.answers.values() if kind is not None]
    schemas, components = msgspec.json.schema_components(types, ref_template=_REF)
    schema_of = dict(zip(map(id, types), schemas, strict=True))
    paths: dict[str, dict[str, Any]] = {}
    for endpoint, doc in listed:
        entry = _operation(endpoint, doc, schema_of)
        paths.setdefault(endpoint.path.removeprefix(PREFIX), {})[endpoint.method.lower()] = entry
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "onerow",
            "version": onerow.__version__,
            "description": "Durable multi-phase work in the database you already have: one task, one row.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": "."}],
        "security": [{"token": []}],
        "tags": [{"name": name, "description": text} for name, text in _TAGS.items()],
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }


def _operation(endpoint: Endpoint, doc: Documented, schema_of: dict[int, Any]) -> dict[str, Any]:
    path = endpoint.path.removeprefix(PREFIX)
    entry: dict[str, Any] = {
        "operationId": _operation_id(endpoint.method, path),
        "tags": [doc.tag],
        "summary": doc.summary,
        "description": f"Needs the role {endpoint.role.label}."
        + (" Refused to callers that see one user only." if endpoint.all_users else ""),
        "parameters": [*_path_parameters(path), *_query_parameters(doc.query), *_headers(doc)],
        "responses": {str(status): _answer(doc, status, kind, schema_of) for status, kind in doc.answers.items()},
    }
    entry["responses"]["default"] = {
        "description": "An error, with what to do about it.",
        "content": {CONTENT_TYPE: {"schema": schema_of[next(iter(schema_of))]}},
    }
    if doc.request is not None:
        entry["requestBody"] = {
            "required": True,
            "content": {"application/json": {"schema": schema_of[id(doc.request)]}},
        }
    return entry


def _answer(doc: Documented, status: int, kind: Any, schema_of: dict[int, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {"description": HTTPStatus(status).phrase}
    if kind is not None:
        found["content"] = {doc.content_type: {"schema": schema_of[id(kind)]}}
    return found


def _path_parameters(path: str) -> list[dict[str, Any]]:
    return [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string", "minLength": 1, "maxLength": 200}}
        for name in re.findall(r"{(\w+)}", path)
    ]


def _query_parameters(kind: Any) -> list[dict[str, Any]]:
    if kind is None or kind is NoQuery:
        return []
    schema = msgspec.json.schema(kind)
    properties = next(iter(schema["$defs"].values()))["properties"]
    return [
        {
            "name": name,
            "in": "query",
            "required": False,
            "description": found.get("description", ""),
            "schema": _without_null(found),
        }
        for name, found in properties.items()
    ]


def _without_null(schema: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of an optional parameter: left out, not null."""
    kinds = [each for each in schema.get("anyOf", ()) if each != {"type": "null"}]
    rest = {name: value for name, value in schema.items() if name not in ("anyOf", "default", "description")}
    return kinds[0] | rest if kinds else {**rest, **({"default": schema["default"]} if schema.get("default") else {})}


def _headers(doc: Documented) -> list[dict[str, Any]]:
    return [
        {
            "name": name,
            "in": "header",
            "required": False,
            "description": text,
            "schema": {"type": "string", "minLength": 1, "maxLength": 200},
        }
        for name, text in doc.headers.items()
    ]


def _operation_id(method: str, path: str) -> str:
    words = re.sub(r"[{}]", "", path).replace("-", "_").strip("/").split("/")
    return "_".join([method.lower(), *words])


def openapi_routes(endpoints: list[Endpoint]) -> list[Endpoint]:
    encoded: list[bytes] = []

    @operation(
        "GET", "/openapi.json", Role.VIEWER, "figures", "Return this description of the API.",
        answers={200: dict[str, Any]},
    )  # fmt: skip
    def show(call: Call, body: None, query: Any) -> Response:
        if not encoded:
            encoded.append(msgspec.json.encode(document([*endpoints, show])))
        return Response(encoded[0], media_type="application/json")

    return [show]
