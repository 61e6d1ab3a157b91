"""Stored blobs: compressed when that pays, and with a checksum, so that damage is seen when they are read.

A stored blob is one byte that says its form, four bytes of CRC-32 over what follows, and the data.
"""

import threading
import zlib
from typing import Final

import zstandard

from outlast.store.base import StoreError

COMPRESS_FROM: Final = 1024  # bytes; below it the gain is smaller than the cost of a call
LEVEL: Final = 1  # of zstd; higher levels save a few per cent and cost the writer its time
BLOB_BYTES_MAX: Final = 256 * 1024 * 1024  # what a damaged header may make us allocate

PLAIN: Final = 0x01
ZSTD: Final = 0x02

_HEAD: Final = 5


class _Codecs(threading.local):
    """One pair of (de)compressors a thread: they are dear to make and must not be used by two threads at once."""

    def __init__(self) -> None:
        self.compressor = zstandard.ZstdCompressor(level=LEVEL, write_checksum=False)
        self.decompressor = zstandard.ZstdDecompressor()


_codecs: Final = _Codecs()


def pack(blob: bytes) -> bytes:
    """Return ``blob`` as it is stored."""
    form = PLAIN
    if len(blob) >= COMPRESS_FROM:
        smaller = _codecs.compressor.compress(blob)
        if len(smaller) < len(blob):
            form, blob = ZSTD, smaller
    return bytes((form,)) + zlib.crc32(blob).to_bytes(4, "little") + blob


def unpack(stored: bytes) -> bytes:
    """Return what ``pack`` was given. Raises StoreError (code "store_damaged") when it is not that."""
    data = stored[_HEAD:]
    if len(stored) < _HEAD or zlib.crc32(data) != int.from_bytes(stored[1:_HEAD], "little"):
        raise _damaged("its checksum does not match")
    if stored[0] == PLAIN:
        return data
    if stored[0] != ZSTD:
        raise _damaged(f"its form {stored[0]} is not known")
    try:
        return _codecs.decompressor.decompress(data, max_output_size=BLOB_BYTES_MAX)
    except zstandard.ZstdError as error:
        raise _damaged(f"it does not decompress ({error})") from error


def unpacked(blob: bytes) -> bytes:
    """Return what is in a column that may be packed or plain, as it was written."""
    try:
        return unpack(blob)
    except StoreError:
        return blob  # its checksum says that it was not packed


def _damaged(why: str) -> StoreError:
    return StoreError(
        "store_damaged",
        f"A stored blob is damaged: {why}.",
        remedy="Stop the engine, keep the files as they are, and restore the last backup.",
    )
