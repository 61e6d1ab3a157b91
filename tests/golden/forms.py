"""Every stored form with a sample value, and the files that keep how it was written.

A sample has something in each field, made from the field's name and type alone: appending a field changes nothing about
the others. A file ``<group>/<Name>.<n>.txt`` holds the MessagePack bytes in hexadecimal, and the same value as JSON.
"""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache
from pathlib import Path
from typing import Any, get_args

import msgspec
from msgspec import inspect

from outlast.core import commands, events, writes
from outlast.core.admin import NamespaceInfo
from outlast.core.failure import Failure
from outlast.core.feed import Changes
from outlast.core.inputs import EnqueueTask, StartWorkflow, TaskToken, WorkflowToken
from outlast.core.payload import Payload
from outlast.core.replies import WorkflowOutcome
from outlast.core.retry import RetryPolicy

FOLDER = Path(__file__).parent
DEPTH_MAX = 3  # of a struct in itself: a failure with causes

ROWS = (
    writes.RunRow, writes.HistoryRow, writes.ParkedRow, writes.TaskRow, writes.AttemptRow, writes.TimerRow,
    writes.DedupRow, writes.MessageRow, writes.LabelsRow, writes.FeedRow,
)  # fmt: skip
BLOBS = (
    writes.RunFixed, writes.RunState, writes.TaskSpec, writes.TaskStatus, WorkflowOutcome, Failure, Payload, RetryPolicy,
    TaskToken, WorkflowToken, NamespaceInfo, Changes, EnqueueTask, StartWorkflow,
)  # fmt: skip
GROUPS: dict[str, tuple[Any, ...]] = {
    "events": get_args(events.Event),
    "commands": get_args(commands.Command),
    "rows": ROWS,
    "blobs": BLOBS,
}


@dataclass(slots=True, frozen=True)
class Form:
    """A struct that is stored or sent, in its group."""

    group: str
    type: Any

    @property
    def name(self) -> str:
        """Where its files are, without number."""
        return f"{self.group}/{self.type.__name__}"

    def sample(self) -> Any:
        """Return a value with something in each field."""
        return sample_of(inspect.type_info(self.type), self.type.__name__)

    def decoded_as(self) -> Any:
        """Return the type that the store decodes it as: the union, for what is one of several."""
        return {"events": events.Event, "commands": commands.Command}.get(self.group, self.type)

    def files(self) -> list[Path]:
        """Return its files, oldest first."""
        found = (FOLDER / self.group).glob(f"{self.type.__name__}.*.txt")
        return sorted(found, key=lambda path: int(path.suffixes[-2][1:]))


def forms() -> list[Form]:
    """Return every form."""
    return [Form(group, type) for group, types in GROUPS.items() for type in types]


def read(path: Path) -> tuple[bytes, bytes]:
    """Return the bytes and the JSON of a file."""
    text = path.read_text(encoding="utf-8")
    packed, _, shown = text.partition("\n\n")
    return bytes.fromhex("".join(packed.split())), shown.strip().encode()


def written(value: Any) -> str:
    """Return the content of the file of ``value``."""
    packed = msgspec.msgpack.encode(value).hex()
    lines = [packed[at : at + 100] for at in range(0, len(packed), 100)]
    return "\n".join(lines) + "\n\n" + msgspec.json.encode(value).decode() + "\n"


def number_from(name: str) -> int:
    """Return a number that depends on ``name`` alone, of any of the sizes that MessagePack tells apart."""
    digest = hashlib.blake2b(name.encode(), digest_size=9).digest()
    return int.from_bytes(digest[:8], "big") >> (1 + (digest[8] % 8) * 8)


def sample_of(type: inspect.Type, name: str, depth: int = 0) -> Any:
    """Return a value of ``type`` for the field ``name``."""
    match type:
        case inspect.StructType(cls=cls, fields=fields):
            values = {field.name: sample_of(field.type, field.name, depth + 1) for field in fields}
            return cls(**values)
        case inspect.UnionType(types=types):
            # Recursion ends with nothing, where nothing is allowed.
            filled = [one for one in types if not isinstance(one, inspect.NoneType)]
            return None if depth > DEPTH_MAX else sample_of(filled[0], name, depth)
        case inspect.DictType(key_type=key, value_type=value):
            return {sample_of(key, f"{name} key"): sample_of(value, f"{name} value", depth + 1)}
        case inspect.VarTupleType(item_type=item) | inspect.ListType(item_type=item):
            return () if depth > DEPTH_MAX else (sample_of(item, f"{name} item", depth + 1),)
        case inspect.TupleType(item_types=items):
            return tuple(sample_of(item, f"{name} {n}", depth + 1) for n, item in enumerate(items))
        case _:
            return plain_sample_of(type, name)


def plain_sample_of(type: inspect.Type, name: str) -> Any:
    """Return a value of a type without parts."""
    match type:
        case inspect.StrType():
            return f"{name} ü"
        case inspect.BytesType():
            return name.encode() + b"\x00\xff"
        case inspect.BoolType():
            return True
        case inspect.IntType():
            return number_from(name)
        case inspect.FloatType():
            return 2.5
        case inspect.EnumType(cls=cls):
            return last_of(cls)
        case _:
            raise NotImplementedError(f"{name} has a type that is not stored so far: {type}")


@lru_cache
def last_of(kinds: type[Enum]) -> Enum:
    """Return the member that comes last in the alphabet: a new member seldom changes it."""
    return max(kinds, key=lambda member: str(member.value))


def all_files() -> Iterator[tuple[Form, Path]]:
    """Yield every file with its form."""
    for form in forms():
        for path in form.files():
            yield form, path
