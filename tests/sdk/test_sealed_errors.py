"""Texts of exceptions are encrypted where values are: code writes into them what it was given."""

import base64
import hashlib
from pathlib import Path
from typing import Any, Never

import msgspec
import pytest

from outlast import App, Encrypt, KeyRing, Retry, TaskContext, Zstd, workflow
from outlast.core.cut import cut_failure
from outlast.core.failure import SEALED, Failure, FailureKind
from outlast.core.limits import FAILURE_TEXT_BYTES_MAX
from outlast.core.payload import Payload
from outlast.protocol.codecs import Chain
from outlast.protocol.opening import Opener
from outlast.protocol.seals import sealed, with_opened
from outlast.sdk.errors import QueryFailed, TaskError, WorkflowFailed

RING = KeyRing({"new": bytes(range(32, 64))}, current="new")
CHAIN = Chain([Zstd(), Encrypt(RING)])

SECRET = "visa-4242-4242"


class Broken:
    """A codec of a user's that has a fault, from some moment on."""

    name = "broken"

    def __init__(self, *, after: int = 0) -> None:
        self._left = after

    def encode(self, data: bytes, about: bytes) -> bytes:
        del about
        self._left -= 1
        if self._left < 0:
            raise RuntimeError(f"cannot code {data.decode()}")
        return data[::-1]

    def decode(self, data: bytes, about: bytes) -> Never:
        raise LookupError(f"cannot read {data[::-1].decode()}, {about.decode()}")


class Wide:
    """A codec of a user's that takes more room than what it codes."""

    name = "wide"

    def __init__(self, times: int, *, beside: int = 0) -> None:
        self._times = times
        self._beside = beside

    def encode(self, data: bytes, about: bytes) -> bytes:
        del about
        return b"".join(data for _ in range(self._times)) + bytes(self._beside)

    def decode(self, data: bytes, about: bytes) -> bytes:
        del about
        return data[: (len(data) - self._beside) // self._times]


def failing_shop(store: str, **options: Any) -> tuple[App, Any, Any, Any]:
    """Return an app and its task and workflows, whose code puts what it was given into everything that can fail."""
    app = App(store, **options)

    @app.task(max_attempts=1)
    def charge(card: str) -> str:
        try:
            raise LookupError(f"no account of {card}")
        except LookupError as error:
            raise ValueError(f"bad card {card}") from error

    @app.workflow
    async def order(card: str) -> str:
        return await charge.execute(card)

    @app.workflow
    class Cart:
        def __init__(self) -> None:
            self.card = ""

        @workflow.run
        async def run(self, card: str) -> str:
            self.card = card
            await workflow.sleep("1h")
            return ""

        @workflow.query
        def price(self) -> str:
            raise KeyError(self.card)

    return app, charge, order, Cart


def test_what_code_puts_into_exceptions_is_encrypted_as_its_values_are(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store = f"sqlite:///{tmp_path}/o.db"
    app, charge, order, cart = failing_shop(store, codecs=[Zstd(), Encrypt(RING)])
    with app:
        failed = charge.enqueue(SECRET)
        with pytest.raises(TaskError, match=f"bad card {SECRET}") as seen:
            failed.result(timeout=30)
        assert isinstance(seen.value.__cause__, LookupError)
        assert SECRET in failed.attempts()[0].error_message
        run = order.start(SECRET)
        with pytest.raises(WorkflowFailed, match=f"bad card {SECRET}") as ended:
            run.result(timeout=30)
        assert ended.value.failure is not None
        assert "test_sealed_errors.py" in ended.value.failure.trace
        info = run.describe()
        assert info.failure is not None
        assert SECRET in info.failure.message
        assert any(SECRET in str(event.event) for event in run.history())
        with pytest.raises(QueryFailed, match=SECRET):
            cart.run.start(SECRET).query("price")
        assert any(SECRET in str(event) for event in app.feed(follow=False))
    assert "attempt_failed" in caplog.text
    assert SECRET not in caplog.text
    assert SECRET.encode() not in b"".join(path.read_bytes() for path in tmp_path.glob("o.db*"))


def test_texts_of_errors_name_the_key_that_is_missing() -> None:
    closed = with_opened(sealed(Failure(kind=FailureKind.APPLICATION, type="E", message=SECRET), CHAIN), Chain([]))

    assert closed.message == '(The text was encrypted (aes-256-gcm) with key "new", and no keys are given here)'


@pytest.mark.parametrize("text", ["", "card", "€" * 20_000, "\ud800", SEALED + "in the clear", "\n"])
def test_any_text_of_an_error_fits_when_it_is_encrypted_and_comes_back(text: str) -> None:
    failure = Failure(kind=FailureKind.APPLICATION, type="E", message=text, trace=text)
    kept = sealed(failure, Chain([Encrypt(RING)]))

    assert len(kept.message.encode()) <= FAILURE_TEXT_BYTES_MAX
    assert not text or text not in kept.message
    opened = with_opened(kept, Chain([Encrypt(RING)])).message
    mark = f"… [cut, {len(text)} characters in all]"
    assert opened == text.encode("utf-8", "backslashreplace").decode() or opened.endswith(mark)


@pytest.mark.parametrize("rest", ["", "!", "AAAA", "gA==", "kA=="])
def test_a_text_that_was_never_sealed_is_shown_as_damaged_and_is_no_fault(rest: str) -> None:
    forged = Failure(kind=FailureKind.APPLICATION, type="E", message=SEALED + rest, trace=SEALED + rest)

    assert with_opened(forged, CHAIN).message.startswith("(")


def test_a_value_cannot_be_passed_off_as_the_text_of_an_error() -> None:
    value = SEALED + base64.b64encode(msgspec.msgpack.encode(CHAIN.encode(Payload("json/plain", b'"tea"')))).decode()
    forged = Failure(kind=FailureKind.APPLICATION, type="E", message=value)

    assert with_opened(forged, CHAIN).message == "(The text is none)"


def test_texts_of_errors_stay_readable_where_values_are_only_compressed() -> None:
    app, charge, _, _ = failing_shop("memory:", codecs=[Zstd()])
    with app:
        failed = charge.enqueue(SECRET)
        with pytest.raises(TaskError, match=SECRET):
            failed.result(timeout=30)
        assert failed.attempts()[0].error_message == f"bad card {SECRET}"


def test_a_codec_that_breaks_costs_the_text_and_neither_the_failure_nor_the_secret() -> None:
    failure = Failure(kind=FailureKind.APPLICATION, type="E", message=SECRET, trace=SECRET)

    kept = sealed(failure, Chain([Broken()]))

    assert kept.message == kept.trace == "(not kept: it was to be encrypted, which ended with RuntimeError)"
    assert with_opened(sealed(failure, Chain([Broken(after=9)])), Chain([Broken()])).message == (
        "(The text cannot be read: LookupError)"
    )


def test_a_task_ends_at_once_when_the_codec_breaks_over_the_text_of_its_failure() -> None:
    app, charge, _, _ = failing_shop("memory:", codecs=[Broken(after=1)])
    with app:
        failed = charge.enqueue(SECRET)
        with pytest.raises(TaskError, match="not kept: it was to be encrypted"):
            failed.result(timeout=30)


@pytest.mark.parametrize("codec", [Wide(2), Wide(1, beside=1_500)], ids=["in proportion", "beside it"])
def test_a_text_is_cut_before_it_is_coded_so_that_what_is_kept_can_be_read(codec: Wide) -> None:
    text = "".join(hashlib.sha256(str(n).encode()).hexdigest() for n in range(1000))
    failure = Failure(kind=FailureKind.APPLICATION, type="E", message=text, trace=text)

    kept = sealed(failure, Chain([codec]))

    assert cut_failure(kept) == kept
    opened = with_opened(kept, Chain([codec])).message
    assert text.startswith(opened.partition("…")[0])
    assert len(opened) > FAILURE_TEXT_BYTES_MAX // 4
    assert opened.endswith("… [cut, 64000 characters in all]")


def test_a_text_that_its_codec_makes_too_long_at_any_length_is_not_kept() -> None:
    failure = Failure(kind=FailureKind.APPLICATION, type="E", message=SECRET)

    kept = sealed(failure, Chain([Wide(1, beside=FAILURE_TEXT_BYTES_MAX)]))

    assert kept.message == "(not kept: it was to be encrypted, and is too long when it is)"


def test_a_handler_can_read_what_the_attempt_before_it_ended_with() -> None:
    app = App("memory:", codecs=[Encrypt(RING)])

    @app.task(retry=Retry(max_attempts=2, first="1ms"))
    def charge(ctx: TaskContext, card: str) -> str:
        if ctx.last_failure is None:
            raise ValueError(f"bad card {card}")
        return ctx.last_failure.message

    with app:
        assert charge.enqueue(SECRET).result(timeout=30) == f"bad card {SECRET}"


def test_a_value_that_its_codec_breaks_over_is_left_closed_and_says_why() -> None:
    chain = Chain([Broken(after=1)])
    coded = chain.encode(Payload("json/plain", b'"tea"'))

    (left,) = Opener(chain).open((coded,))

    assert left.data == coded.data
    assert "LookupError" in str(left.metadata)
    assert "cannot read" not in str(left.metadata)
