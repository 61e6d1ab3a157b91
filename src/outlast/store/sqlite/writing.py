"""One commit: the fence first, then every row of the batch, in one transaction.

The order of the statements matters twice: runs that close make room for runs that open under the same workflow id, and
what is dropped goes before what is set.
"""

import errno
from collections.abc import Collection, Iterator
from typing import Any, Final

import apsw
import msgspec

from outlast.core import codec
from outlast.core.errors import InvariantBroken
from outlast.core.writes import Batch, CommitOutcome, FeedRow, HistoryRow, LabelsRow, RunMove, TaskMove
from outlast.store.compression import pack
from outlast.store.sqlite import queries
from outlast.store.sqlite.bulk import Bulk
from outlast.store.sqlite.conditions import stored
from outlast.store.sqlite.connection import Connection

OUT_OF_SPACE: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})

_tuple_of: Final = msgspec.structs.astuple


class Fenced(Exception):
    """The shard's row does not have the batch's fence, or the batch is not the next one."""


def commit(connection: Connection, batch: Batch) -> tuple[CommitOutcome, BaseException | None]:
    """Write ``batch`` or nothing; return what became of it, and the error if there was one.

    LOCKED is BUSY at the beginning: another program holds the file's write lock for longer than the busy timeout. Like
    FULL it is definite: nothing was written, and the same store can be used again.
    """
    try:
        connection.execute("BEGIN IMMEDIATE")
    except apsw.BusyError as error:
        return CommitOutcome.LOCKED, error
    except Exception as error:  # noqa: BLE001 - the door: whatever a database does becomes an outcome
        return _outcome_of(error, connection), error
    try:
        _write(connection, batch)
        connection.execute("COMMIT")
    except Fenced as error:
        roll_back(connection)
        return CommitOutcome.REFUSED, error
    except Exception as error:  # noqa: BLE001
        outcome = _outcome_of(error, connection)
        roll_back(connection)
        return outcome, error
    return CommitOutcome.DONE, None


def is_out_of_space(error: BaseException, connection: Connection | None = None) -> bool:
    """Say whether ``error``, just raised by ``connection``, means that a write found no room, and so did not happen."""
    if isinstance(error, apsw.FullError):
        return True
    # A quota or a file size limit is not SQLITE_FULL but an I/O error of a write, with the system's number beside it.
    write_failed = _code_of(error) in {apsw.SQLITE_IOERR_WRITE, apsw.SQLITE_IOERR_TRUNCATE}
    return write_failed and connection is not None and connection.system_errno in OUT_OF_SPACE


def is_failed_sync(error: BaseException) -> bool:
    """Say whether ``error`` means that the system could not bring written data to the disk."""
    return _code_of(error) in {apsw.SQLITE_IOERR_FSYNC, apsw.SQLITE_IOERR_DIR_FSYNC}


def roll_back(connection: Connection) -> None:
    """End the transaction, if SQLite has not done so itself after the error."""
    if connection.in_transaction:
        try:
            connection.execute("ROLLBACK")
        except apsw.Error:
            # A rollback that fails leaves the transaction to be dropped when the connection closes or begins anew.
            return


def _code_of(error: BaseException) -> int:
    return int(getattr(error, "extendedresult", 0)) if isinstance(error, apsw.IOError) else 0


def _outcome_of(error: BaseException, connection: Connection) -> CommitOutcome:
    return CommitOutcome.FULL if is_out_of_space(error, connection) else CommitOutcome.UNKNOWN


def _write(connection: Connection, batch: Batch) -> None:
    fence = batch.fence
    connection.execute(
        queries.FENCE, (batch.shard, fence.incarnation, fence.epoch, batch.number, batch.at, batch.lease_until)
    )
    if not connection.changes():
        raise Fenced
    if batch.forgotten_runs or batch.forgotten_tasks:
        _forget(connection, batch)
    _write_runs(connection, batch)
    if batch.history:
        queries.ADD_HISTORY.run(connection, map(_stored_history, batch.history))
    if batch.unparked:
        queries.DROP_PARKED.run(connection, ((run_id,) for run_id in batch.unparked))
    if batch.parked:
        queries.ADD_PARKED.run(connection, map(_tuple_of, batch.parked))
    _write_tasks(connection, batch)
    if batch.dropped_timers:
        queries.DROP_TIMER.run(connection, batch.dropped_timers)
    if batch.timers:
        queries.SET_TIMER.run(connection, map(_tuple_of, batch.timers.values()))
    if batch.dedup:
        queries.SET_DEDUP.run(connection, map(_tuple_of, batch.dedup.values()))
    if batch.counters:
        queries.SET_COUNTER.run(connection, ((*key, value) for key, value in batch.counters.items()))
    if batch.labels:
        old = [id_ for id_ in batch.labels if id_ not in batch.runs and id_ not in batch.tasks]
        queries.DROP_LABELS.run(connection, ((id_,) for id_ in old))
        queries.ADD_LABEL.run(connection, (values for row in batch.labels.values() for values in _stored_labels(row)))
    if batch.namespaces:
        kept = [info for info in batch.namespaces.values() if info is not None]
        rows = [(info.name, info.created_at, codec.encode_namespace(info)) for info in kept]
        queries.SET_NAMESPACE.run(connection, rows)
        gone = [(name,) for name, info in batch.namespaces.items() if info is None]
        queries.DROP_NAMESPACE.run(connection, gone)
        queries.DROP_COUNTERS.run(connection, gone)
        for statement in queries.DROP_FEEDS:
            statement.run(connection, gone)
    if batch.feed:
        queries.ADD_FEED.run(connection, map(_stored_feed, batch.feed))
    if batch.messages:
        queries.ADD_MESSAGE.run(connection, map(_tuple_of, batch.messages))
    if batch.received:
        queries.SET_RECEIVED.run(connection, ((*key, mark) for key, mark in batch.received.items()))


def _write_runs(connection: Connection, batch: Batch) -> None:
    if batch.run_moves:
        open_: list[RunMove] = []
        closed: list[RunMove] = []
        for move in batch.run_moves.values():
            (closed if move.closed_at else open_).append(move)
        _move(connection, queries.MOVE_RUN, closed)
        _move(connection, queries.MOVE_OPEN_RUN, open_)
    if batch.runs:
        queries.ADD_RUN.run(connection, map(_tuple_of, batch.runs.values()))


def _write_tasks(connection: Connection, batch: Batch) -> None:
    _move(connection, queries.MOVE_TASK, batch.task_moves.values())
    if batch.tasks:
        queries.ADD_TASK.run(connection, map(_tuple_of, batch.tasks.values()))
    if batch.attempts:
        queries.ADD_ATTEMPT.run(connection, (_tuple_of(row) for row in batch.attempts if not row.late))
        queries.ADD_LATE_ATTEMPT.run(connection, (_tuple_of(row) for row in batch.attempts if row.late))


def _move(connection: Connection, statement: Bulk, rows: Collection[RunMove | TaskMove]) -> None:
    if not rows:
        return
    before = connection.total_changes()
    statement.run(connection, map(_tuple_of, rows))
    moved = connection.total_changes() - before
    if moved != len(rows):
        # An entity that the core takes for stored is not there: better nothing than half.
        raise InvariantBroken("moved_row_missing", rows=len(rows), found=moved)


def _forget(connection: Connection, batch: Batch) -> None:
    for statement in queries.FORGET_RUNS:
        statement.run(connection, ((run_id,) for run_id in batch.forgotten_runs))
    for statement in queries.FORGET_TASKS:
        statement.run(connection, ((task_id,) for task_id in batch.forgotten_tasks))


def _stored_labels(row: LabelsRow) -> Iterator[tuple[Any, ...]]:
    for n, (name, value) in enumerate(row.items):
        yield row.id, name, n, stored(value), row.namespace, row.of, row.at


def _stored_feed(row: FeedRow) -> tuple[str, int, int, int, int, bytes]:
    return row.namespace, row.number, row.first, row.count, row.at, pack(row.changes)


def _stored_history(row: HistoryRow) -> tuple[str, int, int, bytes]:
    return row.run_id, row.first_event_id, row.count, pack(row.blob)
