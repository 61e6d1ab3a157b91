"""A reader of the feed that tells another system of every order, once each, however often it is stopped.

    python -m examples.outbox

What was told and how far the reader came are one transaction of a database of its own, so that a crash between the two is
not possible. Its stores are orders.db and told.db in the folder where you are.
"""

import contextlib
import sqlite3

from outlast import App

app = App("sqlite:///orders.db")


@app.task
def charge(cents: int) -> str:
    """Charge a card."""
    return f"paid {cents / 100:.2f}"


@app.workflow
async def order(cents: int) -> str:
    return await charge.execute(cents)


def tell(told: sqlite3.Connection, stop_after: int = 0) -> int:
    """Tell of the orders that have been completed since the last time; return how many. It may be stopped in between."""
    row = told.execute("SELECT cursor FROM place").fetchone()
    count = 0
    for event in app.feed(row[0] if row else "", follow=False):
        with told:  # both or neither
            if event.kind == "WorkflowExecutionCompleted" and event.type == "order":
                told.execute("INSERT INTO told VALUES (?, ?)", (event.run_id, event.workflow_id))
                count += 1
            told.execute("DELETE FROM place")
            told.execute("INSERT INTO place VALUES (?)", (event.cursor,))
        if stop_after and count == stop_after:
            break  # as a crash would
    return count


def main() -> None:
    """Complete five orders and tell of them, stopped once in between."""
    with app, contextlib.closing(sqlite3.connect("told.db")) as told:
        told.execute("CREATE TABLE IF NOT EXISTS told (run_id TEXT PRIMARY KEY, workflow_id TEXT)")
        told.execute("CREATE TABLE IF NOT EXISTS place (cursor TEXT)")
        for n in range(5):
            order.using(id=f"order-{n}", if_open="return_existing").start(100 * n).result(timeout="30s")
        first = tell(told, stop_after=2)
        second = tell(told)
        print(f"told of {first}, was stopped, told of {second}")
        assert (first, second) == (2, 3)


if __name__ == "__main__":
    main()
