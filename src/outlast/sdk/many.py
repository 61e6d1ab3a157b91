"""Many tasks or runs by one call: what may be given, and how it is parted into requests."""

from collections.abc import Iterable, Iterator
from typing import Any, Final

from outlast.core.limits import BATCH_ITEMS_MAX, PAYLOAD_INLINE_BYTES_MAX, REQUEST_BYTES_MAX
from outlast.core.payload import Payloads, size_of
from outlast.sdk.misuse import BadDeclaration

REQUEST_BYTES: Final = REQUEST_BYTES_MAX // 2  # of one request of many: room for ids, names and framing


def calls_of(calls: Iterable[tuple[Any, ...]], *, verb: str, each: str, named: bool) -> Iterator[tuple[Any, ...]]:
    """Give the arguments of each call, checked. ``each`` is what a call makes; ``named``: an id or key was given for all.

    Raises:
        BadDeclaration: one id for many, or a call that is no tuple.
    """
    if named:
        raise BadDeclaration(
            "one_id_for_many",
            f"{verb}(…) was given one id or key for many {each}s.",
            remedy=f"Leave id and key out of .using(…); each {each} gets its own.",
        )
    for place, arguments in enumerate(calls):
        if not isinstance(arguments, tuple):  # pyright: ignore[reportUnnecessaryIsInstance] - users may not check types
            raise BadDeclaration(
                "not_a_tuple",
                f"Item {place} of {verb}(…) is {arguments!r}.",
                remedy=f"Give a tuple of arguments for each {each}, also for a single one: [(1,), (2,)].",
            )
        yield arguments


def parted(written: Iterable[Payloads]) -> list[list[Payloads]]:
    """Return the arguments of all calls by request, each of a bounded number and size."""
    parts: list[list[Payloads]] = []
    room = 0
    for payloads in written:
        size = min(size_of(payloads), PAYLOAD_INLINE_BYTES_MAX * len(payloads) + 1) + 200
        if not parts or len(parts[-1]) >= BATCH_ITEMS_MAX or size > room:
            parts.append([])
            room = REQUEST_BYTES
        parts[-1].append(payloads)
        room -= size
    return parts
