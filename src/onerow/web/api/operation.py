"""Operations of the API: decode the request to declared types, call the function, encode its answer."""

import inspect
from collections.abc import Callable, Mapping
from typing import Any, Literal

import msgspec
from starlette.responses import Response

from onerow.web.problems import Problem, Refused
from onerow.web.routing import MAX_BODY, Call, Documented, Endpoint
from onerow.web.security.roles import Role

PREFIX = "/api/v1"
JSON = "application/json"


class Answer(msgspec.Struct, frozen=True):
    """An answer with another status than the first that the operation declares, or with headers."""

    status: int
    value: Any = None
    headers: Mapping[str, str] = {}


class NoQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """No query parameters."""


def operation(
    method: Literal["GET", "POST", "PUT", "DELETE"],
    path: str,
    role: Role,
    tag: str,
    summary: str,
    *,
    answers: Mapping[int, Any],
    request: Any = None,
    query: Any = NoQuery,
    headers: Mapping[str, str] | None = None,
    all_users: bool = False,
    max_body: int = MAX_BODY,
    content_type: str = JSON,
) -> Callable[[Callable[..., Any]], Endpoint]:
    """Make an Endpoint of a function of (call, body, query).

    The first of `answers` is the status of what the function returns; `Answer` and `Response` say their own.
    """
    decode = None if request is None else msgspec.json.Decoder(request).decode
    status = next(iter(answers))

    def arguments(call: Call) -> tuple[Any, Any]:
        return None if decode is None else _body(call, decode), _query(call, query)

    def decorate(function: Callable[..., Any]) -> Endpoint:
        if inspect.iscoroutinefunction(function):

            async def handle_async(call: Call) -> Response:
                return _response(await function(call, *arguments(call)), status)

            handle: Any = handle_async
        else:

            def handle_in_thread(call: Call) -> Response:
                return _response(function(call, *arguments(call)), status)

            handle = handle_in_thread
        return Endpoint(
            method=method,
            path=PREFIX + path,
            role=role,
            handle=handle,
            kind="api",
            all_users=all_users,
            max_body=max_body,
            documented=Documented(
                tag=tag,
                summary=summary,
                request=request,
                query=query,
                answers=answers,
                headers=headers or {},
                content_type=content_type,
            ),
        )

    return decorate


def _body(call: Call, decode: Callable[[bytes], Any]) -> Any:
    given = call.request.headers.get("content-type", "")
    if given.partition(";")[0].strip().lower() != JSON:
        raise Refused(Problem(415, "wrong content type", f"the body must be JSON, not {given!r}", fix=f"send the header Content-Type: {JSON}"))  # fmt: skip
    try:
        return decode(call.body)
    except msgspec.ValidationError as error:
        raise Refused(Problem(422, "invalid body", str(error), fix="see /api/v1/openapi.json")) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Refused(Problem(400, "not JSON", f"the body is not JSON: {error}")) from None


def _query(call: Call, kind: Any) -> Any:
    items = call.request.query_params.multi_items()
    if len({name for name, _ in items}) < len(items):
        raise Refused(Problem(422, "invalid query", "a query parameter is given twice"))
    try:
        return msgspec.convert(dict(items), kind, strict=False)
    except msgspec.ValidationError as error:
        raise Refused(Problem(422, "invalid query", str(error), fix="see /api/v1/openapi.json")) from None


def _response(found: Any, status: int) -> Response:
    if isinstance(found, Response):
        return found
    if isinstance(found, Answer):
        return Response(msgspec.json.encode(found.value), found.status, dict(found.headers), JSON)
    return Response(msgspec.json.encode(found), status, media_type=JSON)
