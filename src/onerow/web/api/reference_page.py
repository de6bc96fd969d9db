"""The reference page of the HTTP API, rendered from its OpenAPI document."""

from typing import Any

from onerow.web.api import api_routes
from onerow.web.api.openapi import document
from onerow.web.api.operation import PREFIX

_HEAD = """# HTTP API reference

Rendered from the API's OpenAPI 3.1 document by docs/render_api.py; do not edit. A server has the document at `/api/v1/openapi.json`.
How to use it: [HTTP API](../how-to/http-api.md). All paths begin with `/api/v1`. Bodies and answers are JSON; an error is
`application/problem+json` with `title`, `detail` and, where something helps, `fix`.
"""


def reference_page() -> str:
    """Return the page as Markdown."""
    doc = document(api_routes())
    schemas = doc["components"]["schemas"]
    parts = [_HEAD]
    for tag in doc["tags"]:
        parts.append(f"## {tag['name'].title()}\n\n{tag['description']}\n")
        for path, operations in doc["paths"].items():
            for method, operation in operations.items():
                if operation["tags"] == [tag["name"]]:
                    parts.append(_operation(path, method, operation, schemas))
    return "\n".join(parts)


def _operation(path: str, method: str, operation: dict[str, Any], schemas: dict[str, Any]) -> str:
    text = f"### `{method.upper()} {PREFIX}{path}`\n\n{operation['summary']} {operation['description']}\n"
    rows = [
        (each["name"], each["in"], _kind(each["schema"]), each.get("description") or _about(each["schema"]))
        for each in operation["parameters"]
        if each["in"] != "path"
    ]
    body = operation.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema", {})
    for name, schema in _properties(body, schemas):
        rows.append((name, "body", _kind(schema), schema["description"]))
    if rows:
        text += "\n| field | in | type | |\n| --- | --- | --- | --- |\n"
        text += "".join(f"| `{name}` | {place} | {kind} | {about} |\n" for name, place, kind, about in rows)
    answers = ", ".join(
        _answer(status, found) for status, found in operation["responses"].items() if status != "default"
    )
    return f"{text}\nAnswers: {answers}.\n"


def _properties(schema: dict[str, Any], schemas: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    found = schemas.get(str(schema.get("$ref", "")).rpartition("/")[2], schema)
    required = set(found.get("required", ()))
    return [
        (name, {**each, "description": (_about(each) + (" Required." if name in required else "")).strip()})
        for name, each in found.get("properties", {}).items()
    ]


def _kind(schema: dict[str, Any]) -> str:
    if "$ref" in schema:
        return str(schema["$ref"]).rpartition("/")[2]
    if "anyOf" in schema:
        return " or ".join(_kind(each) for each in schema["anyOf"])
    if "enum" in schema:
        return " or ".join(f"`{each}`" for each in schema["enum"])
    kind = str(schema.get("type", "any"))
    if kind == "array":
        return f"list of {_kind(schema.get('items', {}))}"
    bounds = [str(schema[key]) for key in ("minimum", "maximum") if key in schema]
    return f"{kind} {'…'.join(bounds)}" if len(bounds) == 2 else kind


def _about(schema: dict[str, Any]) -> str:
    """Return the description of a field, which an optional one has inside."""
    inner = [each.get("description", "") for each in schema.get("anyOf", ())]
    return str(schema.get("description") or next(filter(None, inner), ""))


def _answer(status: str, found: dict[str, Any]) -> str:
    for content in found.get("content", {}).values():
        return f"{status} {_kind(content['schema'])}"
    return status
