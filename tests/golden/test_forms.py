"""Stored forms: what was ever written is read, and what is written today is what was written before."""

from itertools import pairwise
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest

from outlast.core import codec
from outlast.core.payload import Payload
from outlast.core.writes import RunState
from tests.golden.forms import FOLDER, Form, all_files, forms, read

FILES = list(all_files())


@pytest.mark.parametrize(("form", "path"), FILES, ids=[str(path.relative_to(FOLDER)) for _, path in FILES])
def test_every_file_is_read_and_means_what_it_meant(form: Form, path: Path) -> None:
    packed, shown = read(path)

    value = msgspec.msgpack.decode(packed, type=form.decoded_as())

    assert type(value) is form.type
    assert value == msgspec.json.decode(shown, type=form.decoded_as())


@pytest.mark.parametrize("form", forms(), ids=lambda form: form.name)
def test_the_newest_file_is_what_is_written_today(form: Form) -> None:
    files = form.files()
    assert files, "a new form: run python -m tests.golden.add"

    packed, _ = read(files[-1])

    assert msgspec.msgpack.encode(form.sample()) == packed, (
        "a form has changed: append fields only, then run the script"
    )
    assert msgspec.msgpack.encode(msgspec.msgpack.decode(packed, type=form.decoded_as())) == packed


def goes_on_from(earlier: Any, later: Any) -> bool:
    """Say whether ``later`` has all of ``earlier`` at the same places, and perhaps more at the ends."""
    if isinstance(earlier, list) and isinstance(later, list):
        pairs = zip(cast("list[Any]", earlier), cast("list[Any]", later), strict=False)
        return len(cast("list[Any]", earlier)) <= len(cast("list[Any]", later)) and all(
            goes_on_from(one, other) for one, other in pairs
        )
    return bool(earlier == later)


@pytest.mark.parametrize("form", forms(), ids=lambda form: form.name)
def test_a_later_form_only_appends_to_the_earlier(form: Form) -> None:
    lists = [msgspec.msgpack.decode(read(path)[0]) for path in form.files()]

    assert all(goes_on_from(earlier, later) for earlier, later in pairwise(lists))


@pytest.mark.parametrize(
    ("earlier", "later", "answer"),
    [
        ([1, "a"], [1, "a", 5], True),
        ([1, ["a"]], [1, ["a", "b"]], True),
        ([1, "a"], ["a", 1], False),
        ([1, 2], [1], False),
    ],
)
def test_a_form_that_moves_or_drops_a_field_does_not_go_on(earlier: Any, later: Any, answer: bool) -> None:
    assert goes_on_from(earlier, later) is answer


@pytest.mark.parametrize("form", [form for form in forms() if form.group == "events"], ids=lambda form: form.name)
def test_an_event_travels_through_a_history_page(form: Form) -> None:
    page = ((5, form.sample()), (2**62, form.sample()))

    assert codec.decode_events(codec.encode_events(page)) == page
    assert codec.decode_timed(codec.encode_timed(page[0])) == page[0]


def test_no_file_belongs_to_a_form_that_is_gone() -> None:
    known = {path for _, path in FILES}

    assert [path for path in FOLDER.glob("*/*.txt") if path not in known] == []


def test_bytes_of_an_older_form_get_the_defaults_of_later_fields() -> None:
    older = msgspec.msgpack.encode(["json/plain", b"data"])

    assert msgspec.msgpack.decode(older, type=Payload) == Payload("json/plain", b"data")


def test_bytes_of_a_newer_form_are_read_without_what_is_not_known() -> None:
    newer = msgspec.msgpack.encode(["json/plain", b"data", None, "", 0, "a field of tomorrow"])

    assert msgspec.msgpack.decode(newer, type=Payload) == Payload("json/plain", b"data")


@pytest.mark.parametrize("damaged", [b"", b"\xc1", b"\x93\x01", b"\xa3abc", b"\xff" * 40])
def test_bytes_that_hold_something_else_are_refused(damaged: bytes) -> None:
    for decode in (
        codec.decode_events,
        codec.decode_timed,
        codec.decode_state,
        codec.decode_spec,
        codec.decode_outcome,
    ):
        with pytest.raises(msgspec.MsgspecError):
            decode(damaged)


def test_two_decoded_states_share_nothing() -> None:
    one, other = (codec.decode_state(codec.encode_state(RunState())) for _ in range(2))

    one.timers["t"] = codec.decode_state(codec.encode_state(RunState())).timers.get("t")  # type: ignore[assignment]  # pyright: ignore[reportArgumentType]

    assert other.timers == {}
    assert RunState().timers == {}
