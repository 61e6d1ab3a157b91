"""What would break a client: a comparison of two OpenAPI documents.

A request may take more than before, never less; an answer may give more, never less. Values of enums may be added to
answers and to requests, and are never taken away.
"""

from collections.abc import Iterator
from typing import Any

Document = dict[str, Any]


def broken(before: Document, now: Document) -> list[str]:
    """Return one line for each thing that a client of ``before`` may miss in ``now``."""
    found: list[str] = []
    for path, methods in before["paths"].items():
        for method, operation in methods.items():
            where = f"{method.upper()} {path}"
            later = now["paths"].get(path, {}).get(method)
            if later is None:
                found.append(f"{where} is gone")
            else:
                found += _operation(where, operation, later)
    found += _schemas(before, now)
    later_codes = {row["code"]: row for row in now["x-codes"]}
    for row in before["x-codes"]:
        kept = later_codes.get(row["code"])
        if kept is None or kept["status"] != row["status"]:
            found.append(f"code {row['code']} is gone or has another status")
    return found


def _operation(where: str, before: Document, now: Document) -> Iterator[str]:
    if before["operationId"] != now["operationId"]:
        yield f"{where} is called {now['operationId']}, no longer {before['operationId']}"
    yield from _parameters(where, before["parameters"], now["parameters"])
    if now.get("requestBody", {}).get("required") and not before.get("requestBody", {}).get("required"):
        yield f"{where} needs a body"
    if _body(before) and _body(before) != _body(now):
        yield f"{where} takes another body"
    for status, response in before["responses"].items():
        later = now["responses"].get(status)
        if later is None:
            if int(status) < 400:
                yield f"{where} does not answer {status} any more"
            continue
        for kind, content in response.get("content", {}).items():
            if later.get("content", {}).get(kind, {}).get("schema") != content["schema"]:
                yield f"{where} answers {status} with another shape"


def _parameters(where: str, before: list[Document], now: list[Document]) -> Iterator[str]:
    later = {(parameter["in"], parameter["name"].lower()): parameter for parameter in now}
    known = set[tuple[str, str]]()
    for parameter in before:
        key = (parameter["in"], parameter["name"].lower())
        known.add(key)
        kept = later.get(key)
        if kept is None:
            yield f"{where} does not take {parameter['name']} any more"
        elif kept["required"] and not parameter["required"]:
            yield f"{where} needs {parameter['name']}"
        else:
            yield from _shape(f"{where} {parameter['name']}", parameter["schema"], kept["schema"])
    for key, parameter in later.items():
        if key not in known and parameter["required"]:
            yield f"{where} needs {parameter['name']}"


def _body(operation: Document) -> Any:
    content = operation.get("requestBody", {}).get("content", {})
    return content.get("application/json", {}).get("schema")


def _schemas(before: Document, now: Document) -> Iterator[str]:
    later = now["components"]["schemas"]
    for name, schema in before["components"]["schemas"].items():
        if name not in later:
            yield f"{name} is gone"
            continue
        yield from _shape(name, schema, later[name])


def _shape(where: str, before: Document, now: Document) -> Iterator[str]:
    """Compare two schemas. What is taken is closed (additionalProperties false), what is given is open."""
    is_taken = before.get("additionalProperties") is False
    for value in before.get("enum", []):
        if value not in now.get("enum", []):
            yield f"{where} has no {value} any more"
    for word in ("type", "$ref", "format", "anyOf"):
        if before.get(word) != now.get(word):
            yield f"{where} is another {word}"
    for word, narrower in (("minimum", 1), ("minLength", 1), ("maximum", -1), ("maxLength", -1), ("maxItems", -1)):
        if word in now and (now[word] - before.get(word, now[word] - narrower)) * narrower > 0:
            yield f"{where} has a narrower {word}"
    needed_before, needed_now = set(before.get("required", [])), set(now.get("required", []))
    for name in sorted(needed_now - needed_before) if is_taken else sorted(needed_before - needed_now):
        yield f"{where} {'needs' if is_taken else 'may lack'} {name}"
    for name, schema in before.get("properties", {}).items():
        kept = now.get("properties", {}).get(name)
        if kept is None:
            yield f"{where} has no {name} any more"
        else:
            yield from _shape(f"{where}.{name}", schema, kept)
    if "items" in before:
        yield from _shape(f"{where}[]", before["items"], now.get("items", {}))
