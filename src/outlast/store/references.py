"""Which blobs encoded rows name: found by the shape of their names, so that no row need be opened up."""

import re
from collections.abc import Iterable
from typing import Final

_NAMES: Final = re.compile(rb"(?=([0-9a-f]{64}))")  # overlapping: hex digits may stand before a name


def digests_in(blobs: Iterable[bytes]) -> set[str]:
    """Return everything in ``blobs`` that has the shape of a blob's name, and so every name of a blob."""
    return {name.decode() for blob in blobs for name in _NAMES.findall(blob)}
