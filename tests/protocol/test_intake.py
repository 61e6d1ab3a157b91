"""How rows of callers' transactions are handed over: each answer settles its row, and no row holds the others up."""

import asyncio
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

import msgspec
import pytest

from outlast.core import limits
from outlast.core.errors import Invalid, Refusal, TooLarge
from outlast.core.inputs import (
    DescribeTask,
    DescribeWorkflow,
    EnqueueTask,
    EnqueueTasks,
    IfOpen,
    Request,
    StartWorkflow,
    StartWorkflows,
)
from outlast.core.payload import Payload
from outlast.core.replies import (
    Refused,
    Reply,
    TaskEnqueuedReply,
    TaskInfo,
    TasksEnqueued,
    TaskState,
    WorkflowsStarted,
    WorkflowStarted,
)
from outlast.core.retry import RetryPolicy
from outlast.core.units import SECOND
from outlast.protocol.intake import (
    DOUBT_AFTER,
    READ_MAX,
    REQUEST,
    SAID,
    HandedOver,
    IntakeRow,
    body_of,
    check,
    hand_over,
    item_of,
)


def a_task(name: str = "a") -> EnqueueTask:
    return EnqueueTask(task_id=name, key=name, type="mail", queue="default", input=(Payload("json/plain", b"1"),))


def a_start(name: str = "r") -> StartWorkflow:
    return StartWorkflow(type="order", queue="default", run_id=name, request_id=name, workflow_id=f"w-{name}")


def a_row(
    place: int, item: EnqueueTask | StartWorkflow, *, namespace: str = "default", waited: float = 0.0
) -> IntakeRow:
    return IntakeRow(place=place, namespace=namespace, form=REQUEST, body=body_of(item), waited=waited)


@dataclass
class Kept:
    """Rows in memory."""

    rows: dict[int, IntakeRow]
    troubles: dict[int, str] = field(default_factory=dict[int, str])

    async def offer(self, rows_max: int, *, without: Collection[str]) -> Sequence[IntakeRow]:
        there = [self.rows[place] for place in sorted(self.rows) if place not in self.troubles]
        return [row for row in there if row.namespace not in without][:rows_max]

    async def settle(self, taken: Sequence[int], troubles: Mapping[int, str]) -> None:
        for place in taken:
            del self.rows[place]
        self.troubles.update(troubles)


@dataclass
class Asked:
    """An engine that takes everything but what ``refusals`` has, by the id of an item or the namespace."""

    refusals: dict[str, Refused] = field(default_factory=dict[str, Refused])
    known: frozenset[str] = frozenset()
    types: dict[str, str] = field(default_factory=dict[str, str])
    of_runs: dict[str, str] = field(default_factory=dict[str, str])
    requests: list[tuple[str, Request]] = field(default_factory=list[tuple[str, Request]])

    async def __call__(self, request: Request, namespace: str) -> Reply:
        self.requests.append((namespace, request))
        if namespace in self.refusals:
            return self.refusals[namespace]
        match request:
            case EnqueueTasks():
                for item in request.items:
                    if f"all of {item.task_id}" in self.refusals:
                        return self.refusals[f"all of {item.task_id}"]
                return TasksEnqueued(
                    items=tuple(
                        self.refusals.get(item.task_id) or TaskEnqueuedReply(task_id=item.task_id)
                        for item in request.items
                    )
                )
            case StartWorkflows():
                return WorkflowsStarted(
                    items=tuple(
                        self.refusals.get(item.workflow_id)
                        or WorkflowStarted(workflow_id=item.workflow_id, run_id=item.run_id)
                        for item in request.items
                    )
                )
            case DescribeTask():
                return (
                    Refused(code="task_not_found", fact="No.")
                    if request.task_id not in self.known
                    else TaskInfo(
                        namespace=namespace,
                        task_id=request.task_id,
                        queue="default",
                        state=TaskState.SUCCEEDED,
                        type=self.types.get(request.task_id, "mail"),
                        workflow_id=self.of_runs.get(request.task_id, ""),
                    )
                )
            case DescribeWorkflow():
                return Refused(code="workflow_not_found", fact="No.")
            case _:
                raise AssertionError(request)


def handed_over(kept: Kept, asked: Asked, *, without: Collection[str] = ()) -> HandedOver:
    return asyncio.run(hand_over(kept, asked, without=without))


def kept_of(*rows: IntakeRow) -> Kept:
    return Kept({row.place: row for row in rows})


def test_an_empty_intake_asks_nobody_anything() -> None:
    asked = Asked()

    done = handed_over(kept_of(), asked)

    assert (done.more, asked.requests) == (False, [])


def test_tasks_and_runs_go_in_one_request_each_and_are_dropped_once_taken() -> None:
    kept = kept_of(a_row(1, a_task("a")), a_row(2, a_start("r")), a_row(3, a_task("b")))
    asked = Asked()

    done = handed_over(kept, asked)

    assert asked.requests == [
        ("default", EnqueueTasks(items=(a_task("a"), a_task("b")))),
        ("default", StartWorkflows(items=(a_start("r"),))),
    ]
    assert (kept.rows, done.more) == ({}, True)


def test_a_row_that_is_refused_is_set_aside_and_the_others_are_taken() -> None:
    kept = kept_of(a_row(1, a_task("a")), a_row(2, a_task("b")))

    handed_over(kept, Asked({"a": Refused(code="task_already_exists", fact="It is there.", remedy="Use another.")}))

    assert (list(kept.rows), kept.troubles) == ([1], {1: "task_already_exists: It is there. Use another."})


def test_rows_stay_as_they_are_while_the_engine_cannot_take_them() -> None:
    kept = kept_of(a_row(1, a_task("a")), a_row(2, a_start("r")))
    asked = Asked({"a": Refused(code="unavailable", fact="The shard is being loaded.", retryable=True)})

    done = handed_over(kept, asked)

    assert (list(kept.rows), kept.troubles, done.more) == ([1, 2], {}, False)
    assert "being loaded" in done.later
    assert len(asked.requests) == 1


def test_a_namespace_that_is_held_back_holds_no_other_one_back() -> None:
    kept = kept_of(
        a_row(1, a_task("a"), namespace="slow"), a_row(2, a_task("b")), a_row(3, a_start(), namespace="slow")
    )
    asked = Asked({"slow": Refused(code="rate_limited", fact="Too fast.", retryable=True)})

    done = handed_over(kept, asked)

    assert (list(kept.rows), done.more) == ([1, 3], True)
    assert not handed_over(kept, asked, without=done.busy).more


def test_what_refuses_a_request_as_a_whole_is_found_and_set_aside_alone() -> None:
    kept = kept_of(*(a_row(n, a_task(name)) for n, name in enumerate("abc")))

    handed_over(kept, Asked({"all of b": Refused(code="payload_too_large", fact="It is large.")}))

    assert kept.troubles == {1: "payload_too_large: It is large."}
    assert list(kept.rows) == [1]


def test_rows_of_a_namespace_that_there_is_not_are_set_aside() -> None:
    kept = kept_of(a_row(1, a_task("a"), namespace="gone"), a_row(2, a_task("b"), namespace="gone"))

    handed_over(kept, Asked({"gone": Refused(code="namespace_not_found", fact="No such namespace.")}))

    assert sorted(kept.troubles) == [1, 2]


def test_an_asker_who_may_not_ask_leaves_the_rows_and_hears_of_it() -> None:
    kept = kept_of(a_row(1, a_task("a")))

    with pytest.raises(Refusal, match="may not"):
        handed_over(kept, Asked({"default": Refused(code="denied", fact="You may not.")}))

    assert (list(kept.rows), kept.troubles) == ([1], {})


def test_a_row_of_long_ago_is_asked_about_before_it_is_handed_over_again() -> None:
    kept = kept_of(
        a_row(1, a_task("there"), waited=DOUBT_AFTER + 1),
        a_row(2, a_task("forgotten"), waited=DOUBT_AFTER + 1),
        a_row(3, a_start("r"), waited=DOUBT_AFTER + 1),
        a_row(4, a_task("young"), waited=DOUBT_AFTER - 1),
    )
    asked = Asked(known=frozenset({"there"}))

    handed_over(kept, asked)

    assert list(kept.rows) == sorted(kept.troubles) == [2, 3]
    assert "its answer was lost" in kept.troubles[2]
    assert [type(request) for _, request in asked.requests] == [
        DescribeTask,
        DescribeTask,
        DescribeWorkflow,
        EnqueueTasks,
    ]


def test_a_row_in_doubt_is_not_taken_for_another_task_under_its_id() -> None:
    kept = kept_of(
        a_row(1, a_task("bill"), waited=DOUBT_AFTER + 1),
        a_row(2, a_task("step"), waited=DOUBT_AFTER + 1),
        a_row(3, a_task("mine"), waited=DOUBT_AFTER + 1),
    )

    handed_over(
        kept,
        Asked(known=frozenset({"bill", "step", "mine"}), types={"bill": "invoice"}, of_runs={"step": "order-7"}),
    )

    assert list(kept.rows) == list(kept.troubles) == [1, 2]
    assert "another" in kept.troubles[1]


def test_a_row_in_doubt_stays_in_doubt_while_the_engine_is_at_its_rate() -> None:
    kept = kept_of(a_row(1, a_task("a"), waited=DOUBT_AFTER + 1))

    done = handed_over(kept, Asked({"default": Refused(code="rate_limited", fact="Too fast.", retryable=True)}))

    assert (list(kept.rows), kept.troubles, list(done.busy)) == ([1], {}, ["default"])


def test_a_row_is_in_doubt_while_the_engine_surely_remembers() -> None:
    assert 2 * DOUBT_AFTER * SECOND <= limits.IDEMPOTENCY_WINDOW


@pytest.mark.parametrize(
    ("form", "body"),
    [
        (REQUEST, b"\xc1"),
        (REQUEST, msgspec.msgpack.encode(["poll"])),
        (REQUEST, b"\x91" * 50_000),
        (SAID, b"{"),
        (SAID, b"{}"),
        (SAID, b'{"kind":"task","id":"a","type":"t","input":' + b"[" * 50_000 + b"]" * 50_000 + b"}"),
        (SAID, b'{"kind":"task","id":"a","type":"t","tags":{"a":"\\ud800"}}'),
        (SAID, b'{"kind":"task","id":"a","type":"t","input":[1]],"delay":1e999}'),
        ("later", b""),
    ],
)
def test_a_row_that_cannot_be_read_is_set_aside(form: str, body: bytes) -> None:
    kept = kept_of(IntakeRow(place=1, namespace="default", form=form, body=body), a_row(2, a_task()))

    handed_over(kept, Asked())

    assert list(kept.rows) == list(kept.troubles) == [1]
    assert kept.troubles[1].startswith("invalid_request: ")


def test_what_the_engine_would_refuse_is_refused_when_it_is_written() -> None:
    with pytest.raises(Invalid, match="priority"):
        body_of(msgspec.structs.replace(a_task(), priority=9))
    with pytest.raises(TooLarge, match="payload"):
        body_of(msgspec.structs.replace(a_task(), input=(Payload("json/plain", b" " * 2_100_000),)))
    with pytest.raises(TooLarge, match="in a transaction"):
        body_of(msgspec.structs.replace(a_task(), input=(Payload("json/plain", b" " * 2_080_000),) * 2))


def test_a_hand_over_is_bounded_in_rows_of_one_request() -> None:
    assert READ_MAX <= limits.BATCH_ITEMS_MAX


# --- what SQL says ----------------------------------------------------------------------------------------------------


def said(**fields: object) -> EnqueueTask | StartWorkflow:
    body = msgspec.json.encode({"kind": "task", "id": "t", "type": "mail", **fields})
    return item_of(IntakeRow(place=1, namespace="default", form=SAID, body=body))


def test_an_array_is_the_arguments_and_anything_else_the_only_one() -> None:
    assert [payload.data for payload in said(input=[1, {"b": 2}]).input] == [b"1", b'{"b":2}']
    assert [payload.data for payload in said(input={"url": "x"}).input] == [b'{"url":"x"}']
    assert said().input == ()


def test_what_sql_says_of_a_task_is_what_the_engine_is_asked() -> None:
    item = said(queue="q", delay=1.5, timeout=60, max_attempts=2, priority=1, tags={"plan": "pro"}, identity="me@shop")

    assert item == EnqueueTask(
        task_id="t", key="t", type="mail", queue="q", delay=SECOND * 3 // 2, start_to_close=60 * SECOND, priority=1,
        retry=RetryPolicy(attempts_max=2), tags={"plan": "pro"}, identity="me@shop",
    )  # fmt: skip


def test_what_sql_says_of_a_workflow_is_what_the_engine_is_asked() -> None:
    item = said(kind="workflow", run_id="r", request_id="q", if_open="return_existing")

    assert isinstance(item, StartWorkflow)
    assert (item.workflow_id, item.run_id, item.request_id, item.if_open) == ("t", "r", "q", IfOpen.RETURN_EXISTING)


@pytest.mark.parametrize(
    "fields", [{"kind": "query"}, {"delay": -1}, {"delay": 1e300}, {"timeout": 1e300}, {"priority": 0}]
)
def test_what_sql_cannot_mean_is_refused(fields: dict[str, object]) -> None:
    with pytest.raises(Invalid):
        check(said(**fields))
