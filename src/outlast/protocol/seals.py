"""Texts of errors, encrypted as values are: user code writes into them what it was given.

A sealed text is text itself, so it is kept, listed and moved as any other; who has no keys sees by which key it was sealed.
"""

import base64
import binascii
from typing import Final, TypeVar

import msgspec

from outlast.core.carriers import with_parts
from outlast.core.cut import cut
from outlast.core.errors import Refusal
from outlast.core.failure import SEALED, Failure
from outlast.core.limits import FAILURE_TEXT_BYTES_MAX
from outlast.core.payload import Payload
from outlast.core.replies import WorkflowInfo
from outlast.protocol.codecs import Chain, Unreadable
from outlast.protocol.transport import Attempt

TEXT: Final = "text/failure"  # bound to the text, so that no value can be passed off as one
SEALED_BYTES: Final = FAILURE_TEXT_BYTES_MAX - 1024  # what a sealed text is to take, with room for what is said of it
TEXT_BYTES_MAX: Final = SEALED_BYTES * 3 // 4  # what still fits when it is encrypted
HIDDEN: Final = "(not shown)"
LAST: Final = ", the last with "  # before the error that a held run's code has failed with
NOT_KEPT: Final = "(not kept: it was to be encrypted"

Value = TypeVar("Value")


def sealed(failure: Failure, chain: Chain) -> Failure:
    """Return ``failure`` and its causes with message and trace coded by ``chain``. Never raises: else the failure is lost."""
    return msgspec.structs.replace(
        failure,
        message=_sealed(failure.message, chain),
        trace=_sealed(failure.trace, chain),
        cause=failure.cause and sealed(failure.cause, chain),
    )


def with_opened(value: Value, chain: Chain) -> Value:
    """Return ``value`` with the texts of every failure and attempt in it opened; one that cannot be says why."""

    def opened(part: Failure | Attempt) -> Failure | Attempt:
        if isinstance(part, Attempt):
            if not part.error_message.startswith(SEALED):
                return part
            return msgspec.structs.replace(part, error_message=_opened(part.error_message, chain))
        cause = opened(part.cause) if part.cause is not None else None
        if cause is part.cause and not part.message.startswith(SEALED) and not part.trace.startswith(SEALED):
            return part
        trace = _opened(part.trace, chain, closed="")
        return msgspec.structs.replace(part, message=_opened(part.message, chain), trace=trace, cause=cause)

    return with_parts(value, (Failure, Attempt), opened)


def with_hidden(value: Value) -> Value:
    """Return ``value`` without the texts of the failures and attempts in it: for who may not see what code was given."""

    def hidden(part: Failure | Attempt) -> Failure | Attempt:
        if isinstance(part, Attempt):
            return msgspec.structs.replace(part, error_message=HIDDEN if part.error_message else "")
        cause = hidden(part.cause) if part.cause is not None else None
        return msgspec.structs.replace(part, message=HIDDEN if part.message else "", trace="", cause=cause)

    def unsaid(info: WorkflowInfo) -> WorkflowInfo:
        return msgspec.structs.replace(info, why=info.why.partition(LAST)[0])

    return with_parts(with_parts(value, (Failure, Attempt), hidden), (WorkflowInfo,), unsaid)


def _sealed(text: str, chain: Chain) -> str:
    if not text:
        return text
    text = text.encode("utf-8", "backslashreplace").decode()
    clear = cut(text, TEXT_BYTES_MAX)
    try:
        kept = _coded(clear, chain)
        if len(kept) > FAILURE_TEXT_BYTES_MAX:  # the engine would cut what is sealed, and nothing could open the rest
            kept = _coded(cut(text, len(clear.encode()) * SEALED_BYTES // len(kept)), chain)
    except Refusal as error:
        return f"{NOT_KEPT}. {error.fact})"
    except Exception as error:  # noqa: BLE001 - a codec is anybody's code; what it says may be what it was given
        return f"{NOT_KEPT}, which ended with {type(error).__name__})"
    return kept if len(kept) <= FAILURE_TEXT_BYTES_MAX else f"{NOT_KEPT}, and is too long when it is)"


def _coded(text: str, chain: Chain) -> str:
    coded = chain.encode(Payload(TEXT, text.encode()))
    return SEALED + base64.b64encode(msgspec.msgpack.encode(coded)).decode()


def _opened(text: str, chain: Chain, *, closed: str | None = None) -> str:
    if not text.startswith(SEALED):
        return text
    try:
        payload = chain.decode(msgspec.msgpack.decode(base64.b64decode(text[len(SEALED) :]), type=Payload))
        if payload.encoding != TEXT:
            raise Unreadable("The text is none.", remedy="It is damaged or forged.")
        return payload.data.decode()[:FAILURE_TEXT_BYTES_MAX]
    except Unreadable as error:
        return f"({error.fact.replace('The value', 'The text').rstrip('.')})" if closed is None else closed
    except (binascii.Error, msgspec.MsgspecError, ValueError):
        return "(The text is damaged)" if closed is None else closed
    except Exception as error:  # noqa: BLE001 - a codec is anybody's code
        return f"(The text cannot be read: {type(error).__name__})" if closed is None else closed
