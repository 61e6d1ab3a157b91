"""Fixtures of the SDK's tests."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from outlast import App
from tests.sdk.histories import MODES, Stage


@pytest.fixture(params=MODES)
def stage(request: pytest.FixtureRequest) -> Iterator[Stage]:
    """A run's engine, once for each way in which a run is brought up to date."""
    made = Stage(mode=request.param)
    yield made
    made.close()


@pytest.fixture
def unstarted(tmp_path: Path) -> Any:
    """A task of an app that was never started."""
    app = App(f"sqlite:///{tmp_path / 'work.db'}")

    @app.task
    def mail(to: str) -> str:
        return to

    return mail
