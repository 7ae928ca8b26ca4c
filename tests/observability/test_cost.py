"""What a poll costs doesn't grow with what a queue remembers: buffers touched, which no noise changes."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from bench.observability import GOAL_BUFFERS, Cost, backlog, dead_letters, ticks
from pgque_exporter.demo.cluster import Cluster


@pytest.mark.parametrize(
    "between",
    [
        pytest.param(ticks, id="300 and 200,000 ticks kept"),
        pytest.param(dead_letters, id="0 and 200,000 dead letters"),
        pytest.param(backlog, id="a backlog of 1,000 and of 1,000,000 events"),
    ],
)
def test_cost_is_flat(cluster: Cluster, between: Callable[[Cluster], tuple[Cost, Cost]]) -> None:
    little, much = between(cluster)
    assert little.rows > 0
    assert much.rows - little.rows in (0, 1)  # one more when a check is no longer ok
    assert much.buffers <= little.buffers * GOAL_BUFFERS
