"""Which exceptions are bad input or a known state of things, and what they say."""

from outlast.core.errors import Refusal
from outlast.sdk.errors import OutlastError
from outlast.store.base import StoreError


def told(error: Exception) -> tuple[str, str, str] | None:
    """Return code, fact and remedy of ``error``; None for a fault of ours, which deserves its traceback."""
    if isinstance(error, Refusal | StoreError):
        return error.code, error.fact, error.remedy
    if isinstance(error, OutlastError):
        return error.code, str(error).splitlines()[0], error.remedy
    return None
