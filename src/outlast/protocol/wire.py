"""Requests and replies as bytes: MessagePack for machines, JSON for whoever looks."""

from collections.abc import Sequence
from typing import Final

import msgspec

from outlast.core.admin import NamespaceInfo
from outlast.core.inputs import Request
from outlast.core.replies import Reply
from outlast.protocol.transport import Attempt, Count, FeedPage, HistoryPage, Listing, Queues

MSGPACK: Final = "application/msgpack"
JSON: Final = "application/json"
CALL_PATH: Final = "worker/call"  # one request, one reply
CALLS_PATH: Final = "worker/calls"  # several requests, their replies in order
WAITS_PATH: Final = "worker/waits"  # several waits; frames of their replies, each as it comes
CALLS_MAX: Final = 1000
FRAME_HEAD: Final = 4  # bytes before a frame that say how long it is, the highest first

Requests = tuple[Request, ...]
Replies = tuple[Reply, ...]
Frame = tuple[tuple[int, Reply], ...]  # places of requests and their replies; none: the server is still there
Attempts = tuple[Attempt, ...]

_encoder: Final = msgspec.msgpack.Encoder()
_json_encoder: Final = msgspec.json.Encoder()
_request: Final[msgspec.msgpack.Decoder[Request]] = msgspec.msgpack.Decoder(Request)
_requests: Final[msgspec.msgpack.Decoder[Requests]] = msgspec.msgpack.Decoder(Requests)
_reply: Final[msgspec.msgpack.Decoder[Reply]] = msgspec.msgpack.Decoder(Reply)
_replies: Final[msgspec.msgpack.Decoder[Replies]] = msgspec.msgpack.Decoder(Replies)
_frame: Final[msgspec.msgpack.Decoder[Frame]] = msgspec.msgpack.Decoder(Frame)
_history: Final = msgspec.msgpack.Decoder(HistoryPage)
_attempts: Final = msgspec.msgpack.Decoder(Attempts)
_listing: Final = msgspec.msgpack.Decoder(Listing)
_queues: Final = msgspec.msgpack.Decoder(Queues)
_namespaces: Final = msgspec.msgpack.Decoder(tuple[NamespaceInfo, ...])
_feed: Final = msgspec.msgpack.Decoder(FeedPage)
_count: Final = msgspec.msgpack.Decoder(Count)
_json_request: Final[msgspec.json.Decoder[Request]] = msgspec.json.Decoder(Request)
_json_requests: Final[msgspec.json.Decoder[Requests]] = msgspec.json.Decoder(Requests)


def encode(value: object, *, json: bool = False) -> bytes:
    """Return ``value`` as MessagePack, or as JSON."""
    return _json_encoder.encode(value) if json else _encoder.encode(value)


def decode_request(body: bytes, *, json: bool = False) -> Request:
    """Return the request in ``body``. Raises msgspec.MsgspecError, which says where, for what is none."""
    return _json_request.decode(body) if json else _request.decode(body)


def decode_requests(body: bytes, *, json: bool = False) -> Requests:
    """Return the requests in ``body``. Raises msgspec.MsgspecError."""
    return _json_requests.decode(body) if json else _requests.decode(body)


def decode_reply(body: bytes) -> Reply:
    """Return the reply in ``body``. Raises msgspec.MsgspecError."""
    return _reply.decode(body)


def decode_replies(body: bytes) -> Replies:
    """Return the replies in ``body``. Raises msgspec.MsgspecError."""
    return _replies.decode(body)


def frame_of(replies: Sequence[tuple[int, Reply]]) -> bytes:
    """Return ``replies`` with their places as one part of a stream."""
    body = _encoder.encode(replies)
    return len(body).to_bytes(FRAME_HEAD, "big") + body


def frames_in(buffer: bytearray) -> list[Frame]:
    """Take the whole frames off the beginning of ``buffer`` and return them. Raises msgspec.MsgspecError."""
    frames: list[Frame] = []
    place = 0
    while len(buffer) >= place + FRAME_HEAD:
        ends = place + FRAME_HEAD + int.from_bytes(buffer[place : place + FRAME_HEAD], "big")
        if len(buffer) < ends:
            break
        frames.append(_frame.decode(buffer[place + FRAME_HEAD : ends]))
        place = ends
    del buffer[:place]
    return frames


def decode_history(body: bytes) -> HistoryPage:
    """Return the page in ``body``. Raises msgspec.MsgspecError."""
    return _history.decode(body)


def decode_attempts(body: bytes) -> Attempts:
    """Return the attempts in ``body``. Raises msgspec.MsgspecError."""
    return _attempts.decode(body)


def decode_listing(body: bytes) -> Listing:
    """Return the listing in ``body``. Raises msgspec.MsgspecError."""
    return _listing.decode(body)


def decode_feed(body: bytes) -> FeedPage:
    """Return the page in ``body``. Raises msgspec.MsgspecError."""
    return _feed.decode(body)


def decode_count(body: bytes) -> Count:
    """Return the count in ``body``. Raises msgspec.MsgspecError."""
    return _count.decode(body)


def decode_queues(body: bytes) -> Queues:
    """Return the queues in ``body``. Raises msgspec.MsgspecError."""
    return _queues.decode(body)


def decode_namespaces(body: bytes) -> tuple[NamespaceInfo, ...]:
    """Return the namespaces in ``body``. Raises msgspec.MsgspecError."""
    return _namespaces.decode(body)
