"""Enqueueing in a transaction of Django's, in a program of its own: its settings are one process's."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.store.cluster import Cluster

PROGRAM = """
import json, sys
import django
from django.conf import settings

database, store, outboxes = json.loads(sys.argv[1])
settings.configure(DATABASES={"default": database})
django.setup()
from django.db import connection, transaction
from outlast import App

app = App(store, outboxes=outboxes, threads=1)

@app.task
def mail(to: str) -> str:
    return f"mailed {to}"

@app.workflow
async def order(to: str) -> str:
    return await mail.execute(to)

if __name__ == "__main__":
    with app:
        with connection.cursor() as cursor:
            cursor.execute("CREATE TABLE orders (name text)")
        try:
            with transaction.atomic():
                mail.using(tx=connection).enqueue("never")
                raise ValueError
        except ValueError:
            pass
        with transaction.atomic():
            with connection.cursor() as cursor:
                cursor.execute("INSERT INTO orders VALUES ('1')")
            handle = mail.using(tx=connection).enqueue("ann")
            try:
                with transaction.atomic():  # a savepoint
                    mail.using(tx=connection).enqueue("neither")
                    raise ValueError
            except ValueError:
                pass
            run = order.using(tx=connection, id="order-1").start("bob")
        print(handle.result(timeout="30s"), run.result(timeout="30s"), app.tasks.count().count)
        try:
            mail.using(tx=connection).enqueue("outside")
        except Exception as error:
            print(error.code)
        connection.close()
"""
SQLITE = '[{"ENGINE": "django.db.backends.sqlite3", "NAME": "shop.db"}, "sqlite:///work.db", ["sqlite:///shop.db"]]'


def printed_by(folder: Path, places: str) -> list[str]:
    (folder / "shop.py").write_text(PROGRAM)
    done = subprocess.run(
        [sys.executable, "shop.py", places], cwd=folder, capture_output=True, text=True, check=False, timeout=90
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.mark.slow
def test_a_transaction_of_django_on_sqlite_takes_tasks_along(tmp_path: Path) -> None:
    assert printed_by(tmp_path, SQLITE) == ["mailed ann mailed bob 2", "no_transaction"]


@pytest.mark.slow
def test_a_transaction_of_django_on_the_engines_postgres_takes_tasks_along(cluster: Cluster, tmp_path: Path) -> None:
    name = cluster.empty_database()
    database = f'{{"ENGINE": "django.db.backends.postgresql", "NAME": "{name}", "USER": "outlast", "HOST": "{cluster.socket}"}}'
    store = f"{cluster.url(name)}&allow_weak_durability=yes"

    assert printed_by(tmp_path, f'[{database}, "{store}", []]') == ["mailed ann mailed bob 2", "no_transaction"]
    cluster.drop(name)
