"""The same operations on every store give the same answers: 200 lists of operations drawn from seeds."""

from pathlib import Path

import pytest

from tests.store.cluster import Cluster
from tests.store.differential import LISTS_A_SEED, OPERATIONS, play


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(20))
def test_stores_agree_after_every_operation_of(seed: int, tmp_path: Path, cluster: Cluster) -> None:
    with cluster.database() as url:
        commits = play(seed, tmp_path, url, lists=LISTS_A_SEED)

    assert commits > LISTS_A_SEED * OPERATIONS // 3
