"""Fixtures of the SDK's tests."""

from collections.abc import Iterator

import pytest

from tests.sdk.histories import MODES, Stage


@pytest.fixture(params=MODES)
def stage(request: pytest.FixtureRequest) -> Iterator[Stage]:
    """A run's engine, once for each way in which a run is brought up to date."""
    made = Stage(mode=request.param)
    yield made
    made.close()
