"""The number of the worker protocol: a server serves its own and the one before."""

from typing import Final

PROTOCOL: Final = 1
HEADER: Final = "outlast-protocol"
