"""The commands over a store that nobody runs: what they print, what they change, and that they say so."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from outlast.cli import shapes
from outlast.cli.printing import json_line
from outlast.cli.shapes import schema_of
from outlast.cli.verbs import VERBS
from outlast.core.payload import Payload
from outlast.gateway import given
from outlast.gateway.given import AnsweredOut
from outlast.gateway.values import JSON_PLAIN, values_of
from tests.cli.conftest import Command, rows

READS: list[tuple[list[str], str]] = [
    (["workflow", "list"], "WorkflowOut"),
    (["workflow", "count"], "CountOut"),
    (["workflow", "show", "order-1"], "WorkflowShown"),
    (["workflow", "show", "order-1", "--raw"], "WorkflowShown"),
    (["workflow", "history", "order-1"], "EventOut"),
    (["task", "list"], "TaskOut"),
    (["task", "count"], "CountOut"),
    (["task", "show", "t-failed"], "TaskShown"),
    (["task", "attempts", "t-failed"], "AttemptOut"),
    (["task", "result", "t-done"], "TaskOutcomeOut"),
    (["task", "result", "t-failed"], "TaskOutcomeOut"),
    (["why", "order-2"], "WhyShown"),
    (["why", "t-waits"], "WhyShown"),
    (["config", "show"], "SettingOut"),
    (["config", "check"], "SettingOut"),
    (["version"], "VersionOut"),
]
CHANGES: list[tuple[list[str], str]] = [
    (["workflow", "start", "order", "7", "--id", "order-9"], "StartOut"),
    (["workflow", "signal", "order-1", "approve", "true"], "ChangeOut"),
    (["workflow", "cancel", "order-1"], "ChangeOut"),
    (["task", "retry", "t-failed"], "ChangeOut"),
    (["workflow", "terminate", "order-2"], "ChangeOut"),
    (["task", "enqueue", "resize", '"cat.png"'], "EnqueueOut"),
    (["task", "cancel", "t-waits"], "ChangeOut"),
]


def fits(value: Any, schema: dict[str, Any], whole: dict[str, Any]) -> bool:
    """Say whether ``value`` is what a JSON Schema of ours says: references, objects, arrays, unions and types."""
    if "$ref" in schema:
        return fits(value, whole["$defs"][schema["$ref"].rpartition("/")[2]], whole)
    if "anyOf" in schema:
        return any(fits(value, one, whole) for one in schema["anyOf"])
    kinds: dict[str, type] = {
        "object": dict,
        "array": list,
        "string": str,
        "integer": int,
        "boolean": bool,
        "null": type(None),
    }
    kind = kinds.get(schema.get("type", ""))
    if kind is not None and (not isinstance(value, kind) or (kind is int and isinstance(value, bool))):
        return False
    if kind is dict and "properties" in schema:
        known = schema["properties"]
        inner: dict[str, Any] = value
        return set(schema.get("required", ())) <= set(inner) <= set(known) and all(
            fits(part, known[name], whole) for name, part in inner.items()
        )
    if kind is list and isinstance(schema.get("items"), dict):
        parts: list[Any] = value
        return all(fits(part, schema["items"], whole) for part in parts)
    return True


@pytest.mark.parametrize("argv_and_shape", READS + CHANGES, ids=lambda case: " ".join(case[0]))
def test_json_is_what_its_schema_says(kept: Path, outlast: Command, argv_and_shape: tuple[list[str], str]) -> None:
    argv, shape = argv_and_shape
    schema = msgspec.json.decode(schema_of(shape))

    _, out, err = outlast(*argv, "--json")

    found = rows(out)
    assert found, err
    assert [row for row in found if not fits(row, schema, schema)] == []


def test_the_schema_checker_can_say_no() -> None:
    schema = msgspec.json.decode(schema_of("CountOut"))

    assert fits({"count": 1, "approximate": False}, schema, schema)
    assert not fits({"count": "1", "approximate": False}, schema, schema)
    assert not fits({"count": 1, "more": 2}, schema, schema)


def test_what_rest_gives_too_has_one_shape() -> None:
    own = {name for name, shape in vars(shapes).items() if getattr(shape, "__module__", "") == shapes.__name__}

    assert own & set(vars(given)) == set()


def test_a_value_that_was_stored_over_several_lines_is_printed_on_one() -> None:
    stored = Payload(JSON_PLAIN, b'{\r\n "a":\n "x\\ny"}')

    line = json_line(AnsweredOut(id="order-1", result=values_of((stored,))))

    assert line.count("\n") == 1
    assert "\r" not in line
    assert msgspec.json.decode(line)["result"] == [{"a": "x\ny"}]


NO_JSON = {("serve",), ("worker", "start"), ("dev",), ("tour",), ("completion",)}


@pytest.mark.parametrize("verb", VERBS, ids=lambda verb: " ".join(verb.words))
def test_every_verb_that_answers_has_json_and_its_schema(outlast: Command, verb: Any) -> None:
    if verb.words in NO_JSON:
        assert verb.shape == ""
        return

    code, out, _ = outlast(*verb.words, "--json-schema")

    assert code == 0
    assert "$schema" in msgspec.json.decode(out)


@pytest.mark.parametrize("verb", VERBS, ids=lambda verb: " ".join(verb.words))
def test_every_verb_has_help_with_its_options(outlast: Command, verb: Any) -> None:
    code, out, _ = outlast(*verb.words, "--help")

    assert code == 0
    assert verb.help in out
    assert all(example in out for example in verb.examples)


@pytest.mark.parametrize("argv", [argv for argv, _ in CHANGES], ids=" ".join)
def test_a_dry_run_says_what_it_would_do_and_does_nothing(kept: Path, outlast: Command, argv: list[str]) -> None:
    before = (kept / "outlast.db").read_bytes()

    code, out, err = outlast(*argv, "--dry-run")

    assert code == 0, err
    assert out.startswith("would ")
    assert (kept / "outlast.db").read_bytes() == before


def test_a_change_without_a_server_starts_an_engine_and_says_so(kept: Path, outlast: Command) -> None:
    code, out, err = outlast("workflow", "terminate", "order-2", "--reason", "not wanted")

    assert code == 0
    assert out == "terminated order-2\n"
    assert "No engine was running on outlast.db: one runs here for this change." in err
    _, shown, _ = outlast("workflow", "history", "order-2", "--json")
    assert rows(shown)[-1]["fields"]["reason"] == "not wanted"


def test_a_change_needs_a_store_that_is_there(folder: Path, outlast: Command) -> None:
    code, _, err = outlast("workflow", "start", "order")

    assert code == 3
    assert "store_not_found" in err
    assert list(folder.iterdir()) == []


def test_ids_come_from_a_pipe_as_ids_or_as_json(kept: Path, outlast: Command) -> None:
    _, ids, _ = outlast("workflow", "list", "-o", "id")
    _, lines, _ = outlast("workflow", "list", "--json")
    assert sorted(ids.split()) == ["order-1", "order-2", "order-3"]

    code, out, err = outlast("workflow", "cancel", "-", "--yes", stdin=ids)
    again, out_again, _ = outlast("workflow", "cancel", "-", "--yes", stdin=lines)

    assert (code, again) == (0, 0)
    assert out.count("asked to cancel order-") == 3
    assert "asked to cancel 3 workflows in" in err
    assert out_again.count(" before\n") == 3


def test_a_workflow_that_has_ended_is_not_said_to_be_asked_to_cancel(kept: Path, outlast: Command) -> None:
    outlast("workflow", "terminate", "order-1")

    code, out, _ = outlast("workflow", "cancel", "order-1")
    _, line, _ = outlast("workflow", "cancel", "order-1", "--json")

    assert (code, out) == (0, "nothing to do: order-1 (order, terminated)\n")
    assert rows(line)[0]["changed"] is False


def test_an_id_that_looks_like_a_line_of_another_is_piped_as_itself(kept: Path, outlast: Command) -> None:
    strange = '{"id":"order-1"}'
    outlast("workflow", "start", "order", "--id", strange)
    _, ids, _ = outlast("workflow", "list", "-o", "id")

    _, out, _ = outlast("workflow", "cancel", "-", "--yes", stdin=ids)

    assert out.count("asked to cancel") == 4
    assert out.count(strange) == 1


def test_one_that_is_missing_does_not_stop_the_others(kept: Path, outlast: Command) -> None:
    code, out, err = outlast("workflow", "terminate", "order-1", "nope", "order-3", "--yes")

    assert code == 3
    assert out == "terminated order-1\nterminated order-3\n"
    assert "workflow_not_found" in err
    assert "terminated 2 workflows in" in err
    assert "1 refused" in err


def test_a_file_of_tasks_is_enqueued_line_by_line(kept: Path, outlast: Command) -> None:
    (kept / "tasks.jsonl").write_text(
        '{"type": "resize", "args": ["a.png", 2], "key": "a", "tags": {"plan": "pro"}}\n\n'
        '{"type": "resize", "args": ["b.png"], "queue": "images", "delay": "10m"}\n'
    )

    code, out, err = outlast("task", "enqueue", "--file", "tasks.jsonl", "--json")
    _, again, _ = outlast(
        "task",
        "enqueue",
        "--file",
        "-",
        "--json",
        stdin='{"type": "resize", "args": ["a.png", 2], "key": "a", "tags": {"plan": "pro"}}\n',
    )

    first, second = rows(out)
    assert code == 0
    assert "enqueued 2 tasks in" in err
    assert rows(again) == [{**first, "replayed": True}]
    _, shown, _ = outlast("task", "show", second["id"], "--json")
    assert rows(shown)[0]["task"]["queue"] == "images"


def test_a_line_that_is_no_task_is_named_by_its_number(kept: Path, outlast: Command) -> None:
    code, _, err = outlast("task", "enqueue", "--file", "-", stdin='{"type": "resize"}\n{"typ": "resize"}\n')

    assert code == 2
    assert "Line 2" in err
    assert "typ" in err


@pytest.mark.parametrize(
    ("argv", "code", "said"),
    [
        pytest.param(["task", "result", "t-done"], 0, '{"paid":7}\n', id="a value"),
        pytest.param(["task", "result", "t-failed"], 1, "CardDeclined: no money", id="a failure"),
        pytest.param(["task", "count", "--state", "succeeded"], 0, "1\n", id="a count"),
        pytest.param(["workflow", "count", "--status", "running"], 0, "3\n", id="a count of runs"),
        pytest.param(["task", "list", "--state", "failed", "-o", "id"], 0, "t-failed\n", id="ids of a list"),
        pytest.param(["start", "order", "--id", "o-1", "--dry-run"], 0, "would start o-1", id="a short verb"),
    ],
)
def test_answers_and_exit_codes_are_for_scripts(
    kept: Path, outlast: Command, argv: list[str], code: int, said: str
) -> None:
    found, out, err = outlast(*argv)

    assert found == code
    assert said in out + err


def test_quiet_says_nothing_but_the_answer(kept: Path, outlast: Command) -> None:
    _, out, err = outlast("workflow", "cancel", "order-1", "-q")

    assert (out, err) == ("asked to cancel order-1\n", "")


@pytest.mark.parametrize(
    ("argv", "ids"),
    [
        pytest.param(
            ["task", "list", "--query", "state = failed or queue = images"], ["t-waits", "t-failed"], id="query"
        ),
        pytest.param(
            ["task", "list", "--since", "1h", "--type", "resize"], ["t-waits", "t-failed", "t-done"], id="since"
        ),
        pytest.param(["task", "list", "--since", "2999-01-01T00:00:00Z"], [], id="since an instant"),
        pytest.param(["task", "list", "--tag", "plan=p ro", "--query", "attempt < 9"], [], id="tag"),
    ],
)
def test_lists_take_the_filter_language(kept: Path, outlast: Command, argv: list[str], ids: list[str]) -> None:
    code, out, err = outlast(*argv, "-o", "id")

    assert code == 0, err
    assert sorted(out.split()) == sorted(ids)


def test_a_filter_that_is_none_is_pointed_at(kept: Path, outlast: Command) -> None:
    code, _, err = outlast("workflow", "list", "--query", "staet = failed")

    assert code == 2
    assert "state" in err


def test_what_will_go_wrong_with_a_run_is_shown(kept: Path, outlast: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    quiet = outlast("workflow", "show", "order-1")[1]
    monkeypatch.setattr("outlast.core.limits.HISTORY_EVENTS_WARN", 1)

    table = outlast("workflow", "show", "order-1")[1]
    json = rows(outlast("workflow", "show", "order-1", "--json")[1])[0]
    why = outlast("why", "order-1")[1]

    assert "warning" not in quiet
    assert "  warning   Its history has " in table
    assert json["workflow"]["warning"].startswith("Its history has ")
    assert "  warning    Its history has " in why


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("list", "outlast workflow list, outlast task list, outlast queue list"),
        ("signal", "outlast workflow signal"),
    ],
)
def test_a_verb_without_its_noun_is_told_the_nouns_that_have_it(outlast: Command, typed: str, meant: str) -> None:
    code, _, refused = outlast(typed)

    assert code == 2
    assert f"Did you mean: {meant}?" in refused


@pytest.mark.parametrize(
    ("typed", "told"),
    [
        ("workflow list --state open", "Did you mean --status?"),
        ("task list --status failed", "Did you mean --state?"),
        ("workflow list --where x", "Did you mean --query?"),
        ("workflow list --stats open", "Did you mean --status?"),
        ("workflow start order --input 3", "See outlast workflow start --help"),
    ],
)
def test_an_unknown_option_is_told_the_one_that_is_meant(outlast: Command, typed: str, told: str) -> None:
    code, _, refused = outlast(*typed.split())

    assert code == 2
    assert f"→ {told}\n" in refused


def test_arguments_of_a_workflow_may_be_left_out_and_are_not_said_to_be_needed(outlast: Command) -> None:
    code, _, refused = outlast("workflow", "start")

    assert code == 2
    assert "required: TYPE." in refused


@pytest.mark.parametrize(
    ("argv", "fact", "way"),
    [
        (["task", "show", "order-1"], "order-1 is a workflow, not a task.", "outlast workflow show order-1"),
        (["task", "attempts", "order-1"], "order-1 is a workflow, not a task.", "outlast workflow show order-1"),
        (["task", "result", "order-1"], "order-1 is a workflow, not a task.", "outlast workflow show order-1"),
        (["task", "cancel", "order-1"], "order-1 is a workflow, not a task.", "outlast workflow show order-1"),
        (["workflow", "show", "t-done"], "t-done is a task, not a workflow.", "outlast task show t-done"),
        (["workflow", "history", "t-done"], "t-done is a task, not a workflow.", "outlast task show t-done"),
        (["workflow", "result", "t-done"], "t-done is a task, not a workflow.", "outlast task show t-done"),
        (["workflow", "signal", "t-done", "go"], "t-done is a task, not a workflow.", "outlast task show t-done"),
        (["workflow", "cancel", "t-done", "--dry-run"], "t-done is a task, not a workflow.", "outlast task show t-done"),
    ],
)  # fmt: skip
def test_an_id_of_the_other_kind_is_told_apart_from_none(
    kept: Path, outlast: Command, argv: list[str], fact: str, way: str
) -> None:
    code, _, err = outlast(*argv)

    assert code == 3
    assert fact in err
    assert way in err


def test_a_refused_start_speaks_of_the_options_of_the_command(kept: Path, outlast: Command) -> None:
    code, _, err = outlast("workflow", "start", "order", "--id", "order-1", "--queue", "orders")

    assert code == 4
    assert "--if-open return_existing" in err
    assert "if_open" not in err


@pytest.mark.parametrize("port", ["99999", "http", "-1", "9" * 5_000])
def test_a_port_that_is_none_is_refused_as_it_was_typed(folder: Path, outlast: Command, port: str) -> None:
    code, _, err = outlast("serve", f"--port={port}")

    assert code == 2
    assert f'--port is "{port}"' in err
    assert "--listen" not in err
