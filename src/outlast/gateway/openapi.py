"""The OpenAPI 3.1 document, made from the table of routes: what is served is what is described."""

from collections.abc import Iterable
from typing import Any, Final

import msgspec

from outlast.core.errors import CODES
from outlast.gateway.exchange import KEY_HEADER
from outlast.gateway.problems import PROBLEM, Problem, status_of, table
from outlast.gateway.route import BODY_CODES, DOOR_CODES, Gives, Route

ROOT: Final = "/api/v1/"
SCOPE: Final = ROOT + "namespaces/{namespace}/"
REFERENCE: Final = "#/components/schemas/{name}"

INTRODUCTION: Final = (
    "Durable tasks and workflows. An answer is given once what it tells of is committed; a refused request has left no "
    "trace.\n\nAddresses below `/api/v1/namespaces/default/` are served below `/api/v1/` as well. Fields and values of "
    "enums may be added to answers; requests with unknown fields are refused."
)

_HEADERS: Final[dict[str, dict[str, Any]]] = {
    "Retry-After": {"description": "Seconds to wait before the same request is sent again."},
    "Idempotent-Replayed": {"description": "`true` when an earlier request with this key did it."},
    "ETag": {"description": "The tag of this state."},
    "Link": {"description": 'The next page, as `<…>; rel="next"`.'},
    "Allow": {"description": "The methods that are served."},
    "X-Request-Id": {
        "description": "The caller's id of the request if it sent one, else one of ours; it is in the log."
    },
}


def document(routes: Iterable[Route]) -> dict[str, Any]:
    """Return the document of all routes that are not of the worker protocol."""
    shown = [route for route in routes if not route.wire]
    schemas = _schemas(shown)
    paths: dict[str, dict[str, Any]] = {}
    for route in shown:
        root = ROOT if route.global_ else SCOPE
        paths.setdefault(root + route.path, {})[route.method.lower()] = _operation(route, schemas)
    return {
        "openapi": "3.1.0",
        "info": {"title": "Outlast", "version": "1", "description": INTRODUCTION, "license": {"name": "Apache-2.0"}},
        "servers": [{"url": "/"}],
        "security": [{}, {"bearer": []}],
        "paths": paths,
        "components": {
            "schemas": dict(sorted(schemas.items())),
            "headers": {name: {**header, "schema": {"type": "string"}} for name, header in _HEADERS.items()},
            "securitySchemes": {"bearer": {"type": "http", "scheme": "bearer"}},
        },
        "x-codes": table(),
    }


def text(routes: Iterable[Route]) -> str:
    """Return the document as it is checked in and served."""
    return msgspec.json.format(msgspec.json.encode(document(routes)), indent=2).decode() + "\n"


def _schemas(routes: list[Route]) -> dict[str, Any]:
    shapes: list[type[msgspec.Struct]] = [Problem]
    for route in routes:
        shapes.append(route.query)
        if route.body is not None:
            shapes.append(route.body)
        shapes += [gives.shape for gives in route.gives.values() if gives.shape is not None]
        shapes += route.inner
    _, schemas = msgspec.json.schema_components(dict.fromkeys(shapes), ref_template=REFERENCE)
    for schema in schemas.values():
        schema.pop("title", None)
        if not schema.get("required"):
            schema.pop("required", None)
    return schemas


def _operation(route: Route, schemas: dict[str, Any]) -> dict[str, Any]:
    queries = schemas[route.query.__name__]["properties"]
    example = route.example
    operation: dict[str, Any] = {
        "operationId": route.operation,
        "summary": route.summary,
        "tags": [route.act.partition(".")[0]],
        "x-act": route.act,
        "x-right": str(route.needs),
        "parameters": [
            *(_path_parameter(name, example) for name in _named(route)),
            *(_query_parameter(name, schema, example) for name, schema in queries.items()),
            *_header_parameters(route),
        ],
    }
    if route.body is not None:
        content: dict[str, Any] = {"schema": {"$ref": REFERENCE.format(name=route.body.__name__)}}
        if "body" in example:
            content["example"] = example["body"]
        operation["requestBody"] = {"required": route.body_needed, "content": {"application/json": content}}
    operation["responses"] = _responses(route)
    return operation


def _named(route: Route) -> list[str]:
    scope = [] if route.global_ else ["namespace"]
    return scope + [part[1:-1] for part in route.path.split("/") if part.startswith("{")]


def _path_parameter(name: str, example: Any) -> dict[str, Any]:
    shown = "default" if name == "namespace" else example.get(name)
    return {
        "name": name,
        "in": "path",
        "required": True,
        "schema": {"type": "string", "minLength": 1},
        **({"example": shown} if shown else {}),
    }


def _query_parameter(name: str, schema: dict[str, Any], example: Any) -> dict[str, Any]:
    schema = dict(schema)
    says = schema.pop("description", "")
    if schema.get("default", 0) in ("", None):
        schema.pop("default")
    if kinds := [kind for kind in schema.get("anyOf", []) if kind.get("type") != "null"]:
        schema = {**{key: value for key, value in schema.items() if key != "anyOf"}, **kinds[0]}
    parameter: dict[str, Any] = {"name": name, "in": "query", "required": False, "schema": schema}
    if says:
        parameter["description"] = says
    if name in example.get("query", {}):
        parameter["example"] = example["query"][name]
    return parameter


def _header_parameters(route: Route) -> list[dict[str, Any]]:
    headers: list[tuple[str, str]] = []
    if route.keyed:
        headers.append((KEY_HEADER.title(), "The caller's name for this request: sent again with it, it happens once."))
    if route.etag:
        headers.append(("If-None-Match", "The tag that the caller has: 304 when it is still that."))
    if route.matched:
        headers.append(("If-Match", "The tag of what is to be changed: 412 when it is no longer that."))
    if route.stream or route.resumed:
        headers.append(("Last-Event-ID", "The id of the last event that was seen: the stream goes on after it."))
    return [
        {"name": name, "in": "header", "required": False, "schema": {"type": "string"}, "description": says}
        for name, says in headers
    ]


def _responses(route: Route) -> dict[str, Any]:
    responses = {str(status): _given(route, gives) for status, gives in sorted(route.gives.items())}
    by_status: dict[int, list[str]] = {}
    for code in (*DOOR_CODES, *(BODY_CODES if route.body is not None else ()), *route.refusals):
        if code == "namespace_not_found" and route.global_ and code not in route.refusals:
            continue
        codes = by_status.setdefault(status_of(code), [])
        if code not in codes:
            codes.append(code)
    for status, codes in sorted(by_status.items()):
        response: dict[str, Any] = {
            "description": "\n".join(f"`{code}`: {CODES[code]}" for code in codes),
            "content": {PROBLEM: {"schema": {"$ref": REFERENCE.format(name="Problem")}}},
        }
        if status in {429, 503}:
            response["headers"] = _header_references("Retry-After")
        responses[str(status)] = response
    return responses


def _given(route: Route, gives: Gives) -> dict[str, Any]:
    names = ["X-Request-Id"]
    if route.keyed:
        names.append("Idempotent-Replayed")
    if route.etag:
        names.append("ETag")
    if "cursor" in route.query.__struct_fields__ or "after" in route.query.__struct_fields__:
        names.append("Link")
    response: dict[str, Any] = {"description": gives.says, "headers": _header_references(*names)}
    if gives.shape is not None:
        response["content"] = {gives.content_type: {"schema": {"$ref": REFERENCE.format(name=gives.shape.__name__)}}}
    elif gives.content_type != "application/json":
        response["content"] = {gives.content_type: {"schema": {"type": "string"}}}
    if gives.also:
        response["content"][gives.also] = {"schema": {"type": "string"}}
    return response


def _header_references(*names: str) -> dict[str, Any]:
    return {name: {"$ref": f"#/components/headers/{name}"} for name in names}
