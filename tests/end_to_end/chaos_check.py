"""Compares what clients, workers and the destination have seen with the rows that are left in the store."""

from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from outlast.core import codec
from outlast.core import events as e
from outlast.core.units import MILLISECOND, SECOND
from outlast.sdk.converter import Converter
from outlast.store.compression import unpack
from tests.end_to_end.chaos_ledger import read
from tests.end_to_end.chaos_rows import Rows

CLOSINGS = (e.WorkflowExecutionCompleted, e.WorkflowExecutionFailed, e.WorkflowExecutionCanceled)
ENDS = (e.ActivityTaskCompleted, e.ActivityTaskFailed, e.ActivityTaskTimedOut, e.ActivityTaskCanceled)
CLOCKS_APART = MILLISECOND  # two processes of one machine read the same clock, but not at the same instant


@dataclass(slots=True)
class Findings:
    """What is not as it must be, and the counts that are printed."""

    lost: list[str] = field(default_factory=list[str])
    doubled: list[str] = field(default_factory=list[str])
    early: list[str] = field(default_factory=list[str])
    repeated_attempts: int = 0
    timers: int = 0
    applied: int = 0
    repeated_effects: int = 0
    given_up: int = 0  # tasks that failed since their workers kept dying


@dataclass(slots=True)
class Piece:
    """What the driver's ledger says of one piece of work."""

    name: str
    kind: str
    delay: float = 0.0
    pauses: list[float] = field(default_factory=list[float])
    acked: bool = False
    invoked_at: int = 0
    ends: list[tuple[str, Any]] = field(default_factory=list[tuple[str, Any]])
    words: list[str] = field(default_factory=list[str])


@dataclass(slots=True)
class Handled:
    """What the workers' ledgers say, by name of the work."""

    started: dict[str, list[dict[str, Any]]]
    finished: dict[str, list[dict[str, Any]]]


def check(folder: Path, stored: Rows) -> Findings:
    """Return what is wrong with the rows that are left. Engine and workers have been stopped."""
    findings = Findings()
    pieces = read_pieces(folder)
    handled = read_handled(folder)
    check_tasks(findings, stored, pieces, handled)
    check_runs(findings, stored, pieces, handled)
    check_handled(findings, stored, handled)
    check_destination(findings, folder, handled)
    return findings


def read_pieces(folder: Path) -> dict[str, Piece]:
    """Return the pieces of work in the driver's ledger."""
    pieces: dict[str, Piece] = {}
    for line in read(folder, "driver"):
        match line["what"]:
            case "piece":
                pieces[line["name"]] = Piece(line["name"], line["kind"], line.get("delay", 0.0), line.get("pauses", []))
            case "invoked" if line["creates"]:
                pieces[line["piece"]].invoked_at = line["at"]
            case "ok" if line["creates"]:
                pieces[line["piece"]].acked = True
            case "ended":
                pieces[line["piece"]].ends.append((line["status"], line["value"]))
            case "said":
                pieces[line["piece"]].words.append(line["word"])
            case _:
                pass
    return pieces


def read_handled(folder: Path) -> Handled:
    started: dict[str, list[dict[str, Any]]] = defaultdict(list)
    finished: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for line in read(folder, "worker"):
        (started if line["what"] == "started" else finished)[line["name"]].append(line)
    return Handled(started, finished)


def check_tasks(findings: Findings, stored: Rows, pieces: dict[str, Piece], handled: Handled) -> None:
    """Standalone tasks: one for each key, ended once, with a value that an execution of it returned."""
    rows: dict[str, list[tuple[str, Any, str]]] = defaultdict(list)
    for state, spec, status in stored.select("SELECT state, spec, status FROM tasks WHERE run_id = ''"):
        moving = codec.decode_status(status)
        failure = moving.failure.kind.value if moving.failure is not None else ""
        value = Converter().from_payload(moving.result[0]) if moving.result else None
        rows[codec.decode_spec(spec).key].append((state, value, failure))
    for piece in pieces.values():
        if piece.kind not in {"apply", "once"}:
            continue
        found = rows.pop(piece.name, [])
        if len(found) > 1:
            findings.doubled.append(f"{piece.name}: {len(found)} tasks with one key")
        if not found:
            if piece.acked:
                findings.lost.append(f"{piece.name}: was acknowledged and is not in the store")
            continue
        state, value, failure = found[0]
        if state not in {"succeeded", "failed"}:
            findings.lost.append(f"{piece.name}: is {state} after everything was given time to end")
        if state == "failed" and failure != "worker_lost":
            findings.lost.append(f"{piece.name}: failed with {failure}")
        findings.given_up += state == "failed" and piece.kind == "apply"
        if state == "succeeded" and value not in values(handled, piece.name):
            findings.lost.append(f"{piece.name}: has the result {value}, which no handler returned")
        check_ends(findings, piece, state, value)
        check_delay(findings, piece, handled)
    findings.doubled += [f"{key}: a task that nobody asked for" for key in rows]


def values(handled: Handled, name: str) -> set[str]:
    return {line["value"] for line in handled.finished[name]}


def check_ends(findings: Findings, piece: Piece, status: str, value: object) -> None:
    """What a client was told of the end is what is stored."""
    for seen_status, seen_value in piece.ends:
        if (seen_status, seen_value) != (status, value):
            findings.doubled.append(
                f"{piece.name}: a client saw {seen_status} {seen_value!r}, the store has {status} {value!r}"
            )
    if piece.acked and not piece.ends:
        findings.lost.append(f"{piece.name}: no client saw how it ended")


def check_delay(findings: Findings, piece: Piece, handled: Handled) -> None:
    if not piece.delay:
        return
    due = piece.invoked_at + int(piece.delay * SECOND)
    findings.timers += 1
    findings.early += [
        f"{piece.name}: began {(due - line['at']) / SECOND:.6f} s before its delay was over"
        for line in handled.started[piece.name]
        if line["at"] < due - CLOCKS_APART
    ]


def check_runs(findings: Findings, stored: Rows, pieces: dict[str, Piece], handled: Handled) -> None:
    """Runs: one for each id, closed as was right for it; histories whole; timers not early."""
    rows: dict[str, list[tuple[str, str, bytes]]] = defaultdict(list)
    for name, run_id, status, outcome in stored.select("SELECT workflow_id, run_id, status, outcome FROM runs"):
        rows[name].append((run_id, status, outcome))
    for piece in pieces.values():
        if piece.kind not in {"flow", "listener", "sleeper"}:
            continue
        found = rows.pop(piece.name, [])
        if len(found) > 1:
            findings.doubled.append(f"{piece.name}: {len(found)} runs of one start")
        if not found:
            if piece.acked:
                findings.lost.append(f"{piece.name}: was acknowledged and is not in the store")
            continue
        run_id, status, outcome = found[0]
        if status != ("canceled" if piece.kind == "sleeper" else "completed"):
            findings.lost.append(f"{piece.name}: is {status} after everything was given time to end")
            continue
        result = codec.decode_outcome(outcome).result
        value: Any = Converter().from_payload(result[0]) if result else None
        check_ends(findings, piece, status, value)
        check_value(findings, piece, value, handled)
        check_history(findings, piece, history_of(stored, run_id))
        check_pauses(findings, piece, handled)
    findings.doubled += [f"{name}: a run that nobody asked for" for name in rows]


def check_value(findings: Findings, piece: Piece, value: Any, handled: Handled) -> None:
    heard: list[str] = value if piece.kind == "listener" else []
    if piece.kind == "listener":
        for word, count in (Counter(heard) - Counter(piece.words)).items():
            findings.doubled.append(f"{piece.name}: heard {word} {count} times more than it was said")
        for word in set(piece.words) - set(heard):
            findings.lost.append(f"{piece.name}: the word {word} was acknowledged and never heard")
        if heard != piece.words and sorted(heard) == sorted(piece.words):
            findings.doubled.append(f"{piece.name}: heard {heard} in another order than they were said")
    if piece.kind == "flow":
        for part in value:
            if part not in values(handled, part.partition("=")[0]):
                findings.lost.append(f"{piece.name}: has the result {part}, which no handler returned")
        if len(value) != len(piece.pauses) + 3:
            findings.lost.append(f"{piece.name}: has {len(value)} results, not {len(piece.pauses) + 3}")


def history_of(stored: Rows, run_id: str) -> list[e.Timed]:
    rows = stored.select("SELECT blob FROM history WHERE run_id = $1 ORDER BY first_event_id", run_id)
    return [timed for (blob,) in rows for timed in codec.decode_events(unpack(blob))]


def check_history(findings: Findings, piece: Piece, history: list[e.Timed]) -> None:
    """Begins and ends once; each operation has one end; no timer fires before it is due; time does not go back."""
    events = [event for _, event in history]
    closings = [n for n, event in enumerate(events) if isinstance(event, CLOSINGS)]
    if closings != [len(events) - 1] or not isinstance(events[0], e.WorkflowExecutionStarted):
        findings.doubled.append(f"{piece.name}: its history of {len(events)} events closes at {closings}")
    ended = Counter(event.scheduled_event_id for event in events if isinstance(event, ENDS))
    findings.doubled += [f"{piece.name}: activity {n} ended {times} times" for n, times in ended.items() if times > 1]
    due = {event.timer_id: event.fire_at for event in events if isinstance(event, e.TimerStarted)}
    for at, event in history:
        if isinstance(event, e.TimerFired):
            findings.timers += 1
            if at < due.pop(event.timer_id, 2**63):
                findings.early.append(f"{piece.name}: timer {event.timer_id} fired early or twice")
    instants = [at for at, _ in history]
    if instants != sorted(instants):
        findings.doubled.append(f"{piece.name}: time goes back in its history")


def check_pauses(findings: Findings, piece: Piece, handled: Handled) -> None:
    """By the workers' own watches: what comes after a sleep began no sooner than what was before it had ended, and slept."""
    for n, pause in enumerate(piece.pauses, 1):
        before = [line["at"] for line in of_step(handled.finished, f"{piece.name}/{n - 1}")]
        after = [line["at"] for line in of_step(handled.started, f"{piece.name}/{n}")]
        if before and after and min(after) < min(before) + int(pause * SECOND) - CLOCKS_APART:
            findings.early.append(f"{piece.name}: step {n} began before its sleep of {pause} s was over")


def of_step(lines: dict[str, list[dict[str, Any]]], step: str) -> Iterator[dict[str, Any]]:
    """Give the lines of all turns of one step: ``step#1``, ``step#2``, …"""
    turn = 1
    while found := lines.get(f"{step}#{turn}"):
        yield from found
        turn += 1


def check_handled(findings: Findings, stored: Rows, handled: Handled) -> None:
    """Each lease of a task executes once; what has one attempt, once in all; a task that succeeded has one such attempt."""
    for name, lines in handled.started.items():
        leases = Counter((line["task"], line["lease"]) for line in lines)
        findings.doubled += [f"{name}: lease {lease} was executed {n} times" for lease, n in leases.items() if n > 1]
        tasks = {line["task"] for line in lines}
        if len(tasks) > 1:
            findings.doubled.append(f"{name}: was executed as {len(tasks)} tasks")
        if name.startswith("once") and len(lines) > 1:
            findings.doubled.append(f"{name}: has one attempt, and was executed {len(lines)} times")
        findings.repeated_attempts += len(lines) - 1
    won = "SELECT task_id, count(*) FROM attempts WHERE outcome = 'succeeded' AND late = 0 GROUP BY task_id HAVING count(*) > 1"
    findings.doubled += [f"task {task}: {n} attempts succeeded" for task, n in stored.select(won)]
    left = "SELECT count(*) FROM tasks WHERE state NOT IN ('succeeded', 'failed', 'canceled', 'expired')"
    if open_tasks := int(stored.select(left)[0][0]):
        findings.lost.append(f"{open_tasks} tasks are open after everything was given time to end")


def check_destination(findings: Findings, folder: Path, handled: Handled) -> None:
    """Each effect has one operation id over all its attempts, and was applied once; what finished was applied."""
    operations: dict[str, set[str]] = defaultdict(set)
    applied: Counter[str] = Counter()
    for line in read(folder, "destination"):
        operations[line["name"]].add(line["operation"])
        applied[line["operation"]] += line["what"] == "applied"
        findings.repeated_effects += line["what"] == "repeated"
    findings.applied = applied.total()
    findings.doubled += [
        f"{name}: went to the destination under {len(ids)} operation ids"
        for name, ids in operations.items()
        if len(ids) > 1
    ]
    findings.doubled += [f"operation {op}: applied {n} times" for op, n in applied.items() if n > 1]
    findings.lost += [
        f"{name}: finished, and the destination knows nothing" for name in handled.finished if name not in operations
    ]
