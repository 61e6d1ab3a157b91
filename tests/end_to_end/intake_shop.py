"""Programs of the run that kills around transactions: a shop that enqueues in them, and the engine that takes what they leave.

    python -m tests.end_to_end.intake_shop engine STORE [OUTBOX]
    python -m tests.end_to_end.intake_shop shop DATABASE SEED

Both go on until they are killed; $PLANT is a mistake that they make. DATABASE is a SQLite file or the address of a PostgreSQL
database.
"""

import os
import random
import sqlite3
import sys
import time
from typing import Any

import psycopg

from outlast import App
from outlast.sdk import outbox_postgres
from outlast.store.base import StoreError
from tests.end_to_end.intake_kills import APART, UNSYNCED

app = App(
    sys.argv[2] if sys.argv[1] == "engine" else "memory:", outboxes=sys.argv[3:] if sys.argv[1] == "engine" else []
)
PLANT = os.environ.get("PLANT", "")
RUNS = 0.3  # of all orders, that start a workflow rather than enqueue a task
UNDONE = 0.3  # of all transactions


@app.task
def send(n: int) -> int:
    return n


@app.workflow
async def order(n: int) -> int:
    return n


def engine() -> None:
    """Run the engine and a worker; wait for the lease of one that was killed, and for a database that was."""
    if PLANT == UNSYNCED:
        outbox_postgres._IS_WEAK = "SELECT false"  # type: ignore[misc]
    while True:
        try:
            app.run()
        except StoreError as error:
            if error.code not in {"not_owner", "unavailable"}:
                raise
            time.sleep(0.2)
        else:
            return


def shop(database: str, rng: random.Random, plant: str) -> None:
    """Place orders for ever, each in a transaction that enqueues for it; some are undone."""
    connection: Any = connect(database)
    mark = "%s" if "://" in database else "?"
    insert = f"INSERT INTO orders (kind, id) VALUES ({mark}, {mark})"
    n = 0
    while True:
        n += 1
        kind = "run" if rng.random() < RUNS else "task"
        handle = enqueue(kind, n, connection)
        if plant == APART:
            connection.rollback()
        connection.execute(insert, (kind, handle.id))
        if rng.random() < UNDONE:
            connection.rollback()
            continue
        connection.commit()
        if plant == APART:
            time.sleep(rng.uniform(0, 0.01))
            enqueue(kind, n, connection, id=handle.id)
            connection.commit()
        print("ready", flush=True)
        time.sleep(rng.uniform(0, 0.005))


def enqueue(kind: str, n: int, connection: Any, **named: str) -> Any:
    """Enqueue a task, or start a run, in the transaction that ``connection`` has open."""
    if kind == "run":
        return order.using(tx=connection, **named).start(n)  # type: ignore[arg-type]
    return send.using(tx=connection, **named).enqueue(n)  # type: ignore[arg-type]


def connect(database: str) -> Any:
    """Return a connection that gives up durability: that is not what the promise rests on."""
    if "://" in database:
        connection = psycopg.connect(database)
        connection.execute("SET synchronous_commit = off")
        connection.commit()
        return connection
    made = sqlite3.connect(database, timeout=30)
    made.execute("PRAGMA synchronous = OFF")
    return made


if __name__ == "__main__":
    if sys.argv[1] == "engine":
        print("ready", flush=True)
        engine()
    else:
        shop(sys.argv[2], random.Random(int(sys.argv[3])), PLANT)
