"""What is refused at the door, before the core sees it: the shape and range of requests."""

import pytest

from outlast.core import inputs as i
from outlast.core import limits
from outlast.core.errors import Invalid, Refusal, TooLarge
from outlast.core.glance import is_plain_wait
from outlast.core.payload import Payload
from outlast.core.retry import RetryPolicy
from outlast.core.validation import SHORT, faults_of, measure, validate
from tests.core.world import enqueue_of


def start_of(**options: object) -> i.StartWorkflow:
    known = {"type": "order", "queue": "default", "run_id": "run-1", "request_id": "r1"}
    return i.StartWorkflow(**{**known, **options})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "options",
    [
        {"type": ""}, {"queue": ""}, {"delay": -1}, {"delay": limits.SPAN_MAX + 1}, {"priority": 0}, {"priority": 6},
        {"start_to_close": -1}, {"schedule_to_start": -1}, {"schedule_to_close": -1}, {"heartbeat": -1},
        {"key": "k" * (limits.KEY_BYTES_MAX + 1)}, {"type": "t" * (limits.NAME_BYTES_MAX + 1)},
        {"retry": RetryPolicy(attempts_max=-1)}, {"retry": RetryPolicy(factor=0.5)},
    ],
    ids=str,
)  # fmt: skip
def test_an_enqueue_out_of_range_is_refused_with_a_way_out(options: dict[str, object]) -> None:
    with pytest.raises(Refusal) as refused:
        validate(enqueue_of("t", **options))

    assert refused.value.fact
    assert refused.value.remedy


def test_a_task_id_of_an_activitys_form_is_refused() -> None:
    with pytest.raises(Invalid, match="activities"):
        validate(enqueue_of("0191d5a0-0000-7000-8000-000000000000:5"))


@pytest.mark.parametrize(
    "options",
    [
        {"type": ""}, {"queue": ""}, {"run_id": ""}, {"request_id": ""}, {"run_timeout": -1}, {"delay": -1},
        {"workflow_id": "w" * (limits.WORKFLOW_ID_BYTES_MAX + 1)},
    ],
    ids=str,
)  # fmt: skip
def test_a_start_out_of_range_is_refused_with_a_way_out(options: dict[str, object]) -> None:
    with pytest.raises(Refusal) as refused:
        validate(start_of(**options))

    assert refused.value.fact
    assert refused.value.remedy


@pytest.mark.parametrize("id_", ["a\nb", "\x00", "\u202e", "\x1b[2J", " a", "a ", "\u2028", ".", ".."], ids=ascii)
def test_an_id_that_reads_as_another_in_a_list_is_refused_when_it_is_made(id_: str) -> None:
    """Ids are piped one a line: with a line break in it, one would be taken for two others."""
    requests = [start_of(workflow_id=id_), start_of(run_id=id_), enqueue_of(id_), turns_done(new_run_id=id_)]

    assert [field_refused(request) for request in requests] == ["workflow_id", "run_id", "task_id", "new_run_ids"]


@pytest.mark.parametrize("run_id", ["a:5", "r" * (limits.KEY_BYTES_MAX + 1)], ids=["colon", "long"])
def test_a_run_id_that_is_an_activitys_or_too_long_is_refused_wherever_it_is_made(run_id: str) -> None:
    requests = [start_of(run_id=run_id), turns_done(new_run_id=run_id)]

    assert [field_refused(request) for request in requests] == ["run_id", "new_run_ids"]


def turns_done(*, new_run_id: str) -> i.CompleteWorkflowTasks:
    done = i.WorkflowTaskDone(token=i.WorkflowToken("run-1", 1, 1, 1))
    return i.CompleteWorkflowTasks(worker="w1", done=(done,), new_run_ids=(new_run_id,))


def field_refused(request: i.Request) -> str:
    with pytest.raises((Invalid, TooLarge)) as refused:
        validate(request)
    return refused.value.fact.partition(" ")[0]


def test_a_payload_over_the_limit_is_refused() -> None:
    large = Payload(encoding="binary/plain", data=bytes(limits.PAYLOAD_BYTES_MAX + 1))

    with pytest.raises(TooLarge):
        validate(start_of(input=(large,)))


def test_a_bad_item_of_a_batch_is_named_by_its_place() -> None:
    faults = faults_of((enqueue_of("a"), enqueue_of("b", priority=9), enqueue_of("c")))

    assert list(faults) == [1]


@pytest.mark.parametrize(
    ("request_", "field"),
    [
        (enqueue_of("t", priority=True), "priority"),
        (enqueue_of("t", priority=2.0), "priority"),
        (enqueue_of("t", delay=1.5), "delay"),
        (enqueue_of("t", type=b"resize"), "type"),
        (enqueue_of("t", retry=RetryPolicy(attempts_max=1.5)), "retry.attempts_max"),  # type: ignore[arg-type]
        (enqueue_of("t", tags={1: "a"}), "tags"),
        (start_of(memo={1: Payload(encoding="json/plain", data=b"1")}), "memo"),
        (i.EnqueueTasks(items=(enqueue_of("a"), enqueue_of("b", priority="3"))), "items[1].priority"),
        (i.CancelWorkflow(workflow_id=5, request_id="r"), "workflow_id"),  # type: ignore[arg-type]
        (i.CancelWorkflow(workflow_id="w", request_id="r", reason=["x"]), "reason"),  # type: ignore[arg-type]
    ],
    ids=["a bool", "a float", "a delay", "bytes", "in a struct", "a tag", "a memo", "in a batch", "an id", "a list"],
)
def test_a_value_that_could_not_be_read_again_is_refused_by_its_name(request_: i.Request, field: str) -> None:
    with pytest.raises(Invalid) as refused:
        measure(request_)

    assert refused.value.fact.startswith(f"{field} cannot be taken: Expected ")
    assert refused.value.remedy


def test_a_well_typed_request_is_measured_as_it_is_written() -> None:
    assert measure(enqueue_of("t", tags={"plan": "pro"})) > measure(enqueue_of("t"))


ODD: list[object] = ["", ".", "..", "a", "w" * SHORT, "w" * (SHORT + 1), "\ud800", "é", 5, b"a", None, ["a"]]
WAITS: list[i.AwaitTask | i.AwaitWorkflow] = [
    *(i.AwaitTask(task_id=value) for value in ODD),  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    *(
        i.AwaitWorkflow(workflow_id=first, run_id=second, follow=follow)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
        for first in ODD
        for second in ODD
        for follow in (True, False, 1, None)
    ),
]


def test_no_wait_is_taken_at_a_glance_that_a_closer_look_would_refuse() -> None:
    plain = [wait for wait in WAITS if is_plain_wait(wait)]

    for wait in plain:
        measure(wait)
        validate(wait)
    assert i.AwaitTask(task_id="a") in plain
    assert i.AwaitWorkflow(workflow_id="a", run_id="a") in plain
    assert not any(isinstance(wait, i.AwaitWorkflow) and wait.workflow_id in {"", ".", ".."} for wait in plain)
