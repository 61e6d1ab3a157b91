"""What every test shares: how hypothesis draws, and a database server for those that ask for one."""

import logging
import os
from collections.abc import Generator

import pytest
from hypothesis import HealthCheck, settings

from tests.store.cluster import Cluster

# No deadline: the machine may be busy, and a law does not become false by being slow. In CI the same cases are drawn
# each time, so that a red build can be repeated; by hand new ones are, so that something is learned.
settings.register_profile("by_hand", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("ci", parent=settings.get_profile("by_hand"), derandomize=True, print_blob=True)
settings.load_profile("ci" if os.environ.get("CI") else "by_hand")


@pytest.fixture(autouse=True)
def _no_log_left_open() -> Generator[None]:
    """Take back how a command has set up logging: its stream is closed behind the test."""
    root = logging.getLogger()
    before, level = set(root.handlers), root.level
    yield
    for handler in set(root.handlers) - before:
        root.removeHandler(handler)
    root.setLevel(level)


@pytest.fixture(scope="session")
def cluster() -> Generator[Cluster]:
    """A PostgreSQL server of this process of the tests; its databases are made by those who need one."""
    with Cluster() as running:
        yield running


@pytest.fixture(params=["memory", "postgres"])
def store(request: pytest.FixtureRequest) -> Generator[str]:
    """The address of a store in which nothing is, of each kind that tests of the whole run on."""
    if request.param == "memory":
        yield "memory:"
        return
    cluster: Cluster = request.getfixturevalue("cluster")
    with cluster.database() as url:
        yield f"{url}&allow_weak_durability=yes"
