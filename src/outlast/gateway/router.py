"""From an address to its route: ids may hold any text, so parts are decoded one by one after the path is cut."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Final
from urllib.parse import unquote_to_bytes

from outlast.core.errors import Invalid, NotFound
from outlast.gateway.route import Route

ROOT: Final = b"/api/v1/"
DEFAULT_NAMESPACE: Final = "default"
SCOPED: Final = 3  # parts of an address that names a namespace and something in it


@dataclass(slots=True, frozen=True)
class RouteMatch:
    """``namespace`` is empty for what is in none."""

    route: Route
    namespace: str
    params: dict[str, str]


class Router:
    """Finds routes of one table."""

    def __init__(self, routes: Iterable[Route]) -> None:
        self._routes = tuple(routes)
        self._plain = {
            (route.method, route.path): route for route in self._routes if "{" not in route.path and not route.global_
        }

    def find(self, method: str, raw_path: bytes) -> RouteMatch:
        """Return the route. Raises NotFound, or Invalid with the methods that are served."""
        namespace, path, is_scoped = _split(raw_path)
        plain = self._plain.get((method, "/".join(path))) if len(path) <= SCOPED else None
        if plain is not None and all("/" not in part for part in path):
            return RouteMatch(plain, namespace, {})
        for route, params in self._at(path, is_scoped=is_scoped):
            if route.method == method or (method == "HEAD" and route.method == "GET"):
                return RouteMatch(route, "" if route.global_ else namespace, params)
        allow = self.allow(raw_path)
        raise Invalid(
            "method_not_allowed", f"{method[:20]} is not served here.", remedy=f"Use one of {allow}.", allow=allow
        )

    def allow(self, raw_path: bytes) -> str:
        """Return the methods that the address takes, as the header Allow has them. Raises NotFound."""
        _, path, is_scoped = _split(raw_path)
        methods = {route.method for route, _ in self._at(path, is_scoped=is_scoped)}
        if not methods:
            raise self._nothing_at(path)
        if "GET" in methods:
            methods.add("HEAD")
        return ", ".join(sorted(methods | {"OPTIONS"}))

    def _at(self, path: tuple[str, ...], *, is_scoped: bool) -> Iterator[tuple[Route, dict[str, str]]]:
        for route in self._routes:
            if route.global_ and is_scoped:
                continue
            params = _match(route.path, path)
            if params is not None:
                yield route, params

    def _nothing_at(self, path: tuple[str, ...]) -> NotFound:
        shown = "/".join(path)[:200]
        remedy = "Look at the address: /api/openapi.json lists all of them."
        if len(path) > 1 and not path[-1]:
            remedy = "Leave out the slash at the end; if an id was meant to stand there, it is empty."
        elif near := get_close_matches(
            shown.partition("/")[0], {route.path.partition("/")[0] for route in self._routes}, n=1
        ):
            remedy = f'Did you mean "{near[0]}"? /api/openapi.json lists all addresses.'
        return NotFound("route_not_found", f'There is nothing at "{shown}".', remedy=remedy)


def _split(raw_path: bytes) -> tuple[str, tuple[str, ...], bool]:
    """Return the namespace, the parts of the path below it, and whether the address names the namespace."""
    raw = raw_path.partition(b"?")[0]
    if not raw.startswith(ROOT):
        raise NotFound(
            "route_not_found", "There is nothing at this address.", remedy=f"Addresses begin with {ROOT.decode()}."
        )
    try:
        parts = tuple(unquote_to_bytes(part).decode() for part in raw[len(ROOT) :].split(b"/"))
    except UnicodeDecodeError:
        raise Invalid("invalid_request", "The address is not UTF-8.", remedy="Encode it as UTF-8.") from None
    if parts[0] == "namespaces" and len(parts) >= SCOPED:
        return parts[1], parts[2:], True
    return DEFAULT_NAMESPACE, parts, False


def _match(pattern: str, path: tuple[str, ...]) -> dict[str, str] | None:
    parts = pattern.split("/")
    if len(parts) != len(path):
        return None
    params: dict[str, str] = {}
    for wanted, part in zip(parts, path, strict=True):
        if wanted.startswith("{"):
            if not part:
                return None
            params[wanted[1:-1]] = part
        elif wanted != part:
            return None
    return params
