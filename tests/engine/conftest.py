"""Tests of the engine run on every kind of store, but for those that say they are about one."""

import sys
from collections.abc import Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from itertools import count
from pathlib import Path

import pytest

from tests.engine.places import PLACING, DatabasePlace, FilePlace, MemoryPlace, Place
from tests.store.cluster import Cluster

KINDS = ("memory", "sqlite", "postgres")
USING_A_STORE = {"running", "FaultyStore", "new_place"}  # by what a module imports


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Give each test that uses a store one of each kind."""
    if USING_A_STORE & set(
        vars(sys.modules[metafunc.function.__module__])
    ) and not metafunc.definition.get_closest_marker("one_store"):
        metafunc.parametrize("kept_in", KINDS, indirect=True)


@pytest.fixture(autouse=True)
def kept_in(request: pytest.FixtureRequest, tmp_path: Path) -> Generator[str]:
    """The kind of store of this test."""
    kind: str = getattr(request, "param", "memory")
    with ExitStack() as lent:
        PLACING.make = maker(kind, request, tmp_path, lent)
        try:
            yield kind
        finally:
            PLACING.make = MemoryPlace


def maker(kind: str, request: pytest.FixtureRequest, folder: Path, lent: ExitStack) -> Callable[[], Place]:
    """Return what makes places of a kind; what they need is given back when ``lent`` ends."""
    if kind == "memory":
        return MemoryPlace
    if kind == "sqlite":
        numbers = count()
        return lambda: FilePlace(folder / f"store-{next(numbers)}.db")
    cluster: Cluster = request.getfixturevalue("cluster")
    thread = lent.enter_context(ThreadPoolExecutor(1))  # to be asked for from within an event loop
    return lambda: DatabasePlace(thread.submit(lambda: lent.enter_context(cluster.database())).result())
