"""What an error says to whoever has to mend it: the fact, the line of code, and what helps."""

from pathlib import Path

import pytest

from outlast.cli.failing import error_lines
from outlast.cli.why import helps, lines_of_task, lines_of_workflow, why_out
from outlast.cli.workflow import run_told
from outlast.core.failure import Failure, FailureKind
from outlast.core.replies import PendingTimer, RunStatus, TaskInfo, TaskState, WorkflowInfo
from outlast.core.units import SECOND
from outlast.protocol.traces import frames_of
from outlast.sdk.failures import failure_of
from outlast.sdk.misuse import Misuse
from tests.cli.conftest import Command
from tests.cli.test_why import NOW, a_run

HERE = Path(__file__)


def raised(error: Exception) -> Failure:
    """Return ``error`` as it is stored when it is raised from here."""
    try:
        _raise(error)
    except Exception as caught:  # noqa: BLE001 - whatever a test gives
        return failure_of(caught)
    raise AssertionError("nothing was raised")


def _raise(error: Exception) -> None:
    raise error


def test_an_error_is_told_with_the_line_that_raised_it_and_who_called_that() -> None:
    told = error_lines("ended by", raised(ValueError("no 5")))

    assert told[0] == "  ended by   ValueError: no 5"
    assert told[1].startswith(f"  raised at  {HERE}:")
    assert told[1].endswith("   raise error")
    assert told[2].startswith(f"  called at  {HERE}:")
    assert told[2].endswith("   _raise(error)")


def test_a_place_that_the_message_names_is_not_told_again() -> None:
    trace = '  File "/srv/app.py", line 14, in order\n    check()\n'
    differs = Failure(kind=FailureKind.APPLICATION, type="E", message="A timer  /srv/app.py:14", trace=trace)

    assert error_lines("last error", differs) == ["  last error E: A timer  /srv/app.py:14"]


def test_a_cause_that_says_the_same_is_told_by_its_place_alone() -> None:
    inner = raised(ValueError("no 5"))
    outer = Failure(kind=FailureKind.ACTIVITY, type="ValueError", message="no 5", cause=inner)
    other = Failure(kind=FailureKind.APPLICATION, type="Lost", message="gone", cause=inner)

    assert [line.split()[0] for line in error_lines("failure", outer)] == ["failure", "raised", "called"]
    assert [line.split()[0] for line in error_lines("failure", other)] == ["failure", "cause", "raised", "called"]


def test_the_trace_of_another_language_has_no_lines_to_show() -> None:
    foreign = Failure(kind=FailureKind.APPLICATION, type="E", message="m", trace="at Order.charge (order.ts:12:5)")

    assert frames_of(foreign) == ()
    assert error_lines("failure", foreign) == ["  failure    E: m"]


def a_held_run(error: Exception) -> WorkflowInfo:
    why = "another try of its code after 3 that failed, the last with Misuse: It reads the clock."
    return a_run(
        task_state="backoff", task_failure=raised(error), polled=True, why=why, why_at=NOW + 30 * SECOND, task_attempt=4
    )


def test_a_run_that_is_held_is_told_what_to_write_instead_and_how_to_end_it() -> None:
    info = a_held_run(Misuse("x", "It reads the clock.", remedy="Write workflow.now()."))

    told = lines_of_workflow(info, [], now=NOW)

    assert told[1].startswith("  waits for  another try of its code after 3 that failed, due ")
    assert told[2] == "  last error Misuse: It reads the clock."
    assert "  helps      Write workflow.now()." in told
    assert told[-1] == "             outlast workflow terminate order-7   (ends it)"
    assert why_out(info, [], now=NOW).helps[0] == "Write workflow.now()."


def test_a_run_whose_code_raises_is_told_that_it_goes_on_when_that_is_corrected() -> None:
    assert helps(a_held_run(TypeError("two() takes 1 argument")))[0].startswith("correct the code; ")


def test_a_task_that_failed_is_told_where_and_what_helps() -> None:
    failure = raised(Misuse("x", "The result is a lock.", remedy="Return what has a JSON form."))
    info = TaskInfo(
        namespace="default", task_id="t-1", type="resize", queue="images", state=TaskState.FAILED, attempt=1,
        attempts_max=5, enqueued_at=NOW - SECOND, closed_at=NOW, failure=failure,
    )  # fmt: skip

    told = "\n".join(lines_of_task(info, now=NOW))

    assert f"  raised at  {HERE}:" in told
    assert "  helps      Return what has a JSON form." in told


def test_a_run_that_failed_shows_the_line() -> None:
    info = a_run(status=RunStatus.FAILED, closed_at=NOW, failure=raised(ValueError("no 5")))

    assert f"  raised at  {HERE}:" in run_told(info, [], [], raw=False, now=NOW)


def test_a_timer_is_told_its_instant_once_also_without_an_engine() -> None:
    timer = PendingTimer(timer_id="1", started_event_id=5, fire_at=NOW + 14 * SECOND)

    told = lines_of_workflow(a_run(timers=(timer,), why_at=timer.fire_at), [], now=NOW)[1]

    assert told.count(", due ") == 1
    assert told.endswith("(in 14 s)")


def test_a_type_that_no_worker_has_is_told_those_that_there_are() -> None:
    info = a_run(type="ordr", task_state="ready", polled=False)

    told = helps(info, ("order", "refund"))

    assert told[0] == 'the workers of queue "default" have no workflow "ordr", but order, refund. Did you mean "order"?'
    assert told[1] == "outlast worker start APP --queue default"
    assert helps(info, ()) == told[1:]


def test_a_server_that_is_not_there_is_told_within_moments_and_where_to_get_one(
    outlast: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("outlast.cli.reach.REACH_WITHIN", 0.2)

    code, _, refused = outlast("workflow", "list", "--server", "http://127.0.0.1:9")

    assert code == 5
    assert "http://127.0.0.1:9 does not answer: Connection refused." in refused
    assert "outlast serve, or outlast dev app.py" in refused


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        (("run", "app.py"), "Did you mean: outlast dev, outlast worker start?"),
        (("status",), "Did you mean: outlast doctor, outlast workflow list?"),
        (("init", "shop"), "--folder shop"),
        (("dev", "nothere.py"), "Did you mean there.py?"),
        (("dev", "broken.py"), "broken.py:1   def ("),
    ],
    ids=" ".join,
)
def test_what_newcomers_type_is_told_what_they_mean_and_makes_nothing(
    folder: Path, outlast: Command, typed: tuple[str, ...], said: str
) -> None:
    (folder / "there.py").write_text("from outlast import App\napp = App()\n")
    (folder / "broken.py").write_text("def (\n")

    code, out, refused = outlast(*typed)

    assert code != 0
    assert said in refused
    assert out == ""
    assert sorted(path.name for path in folder.iterdir()) == ["broken.py", "there.py"]


def test_help_of_a_command_is_also_had_with_the_word_in_front(outlast: Command) -> None:
    assert outlast("help", "dev") == outlast("dev", "--help")
    assert outlast("help", "workflow", "list")[1].startswith("usage: outlast workflow list")
    assert outlast("help", "task")[1] == outlast("task", "--help")[1]
