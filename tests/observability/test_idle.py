"""Idle is healthy, and only a dead ticker is not: watched for minutes, and at every limit."""

from __future__ import annotations

import pytest

from tests.support.idle_watch import DURATION, IdleWatch
from tests.support.observed import Queue


def test_no_check_of_an_idle_queue_ever_leaves_ok(idle_watch: IdleWatch) -> None:
    """Watched for three minutes beside the other tests, with a ticker called every second."""
    seen = idle_watch.result()
    assert seen.troubles == []
    assert seen.seconds >= DURATION
    assert seen.looks > 20
    # The ticker was at work, and had little to do.
    assert set(seen.ticks) == {"never used", "nobody there", "consumed", "rotated fast"}
    assert all(1 <= ticks < seen.looks / 2 for ticks in seen.ticks.values()), seen


@pytest.mark.parametrize(
    ("idle_period", "limit"), [("1 second", 31.5), ("1 minute", 120), ("10 minutes", 930)]
)
def test_a_dead_ticker_is_critical_after_one_and_a_half_idle_periods(
    queue: Queue, idle_period: str, limit: float
) -> None:
    queue.db.execute("select pgque.set_queue_config('q', 'ticker_idle_period', %s)", (idle_period,))
    queue.subscribe("app")
    queue.wait(limit - 1)
    assert "ticker_running" not in queue.troubles()
    queue.wait(2)
    assert queue.troubles() == {"ticker_running": "critical"}
    queue.tick()
    queue.db.execute("select pgque.force_next_tick('q')")
    queue.tick()
    assert queue.troubles() == {}


@pytest.mark.parametrize("max_lag", ["1 second", "3 seconds", "30 seconds"])
def test_with_events_waiting_a_dead_ticker_is_critical_within_seconds(queue: Queue, max_lag: str) -> None:
    queue.db.execute("select pgque.set_queue_config('q', 'ticker_max_lag', %s)", (max_lag,))
    queue.subscribe("app")
    queue.send(1)
    queue.wait(int(max_lag.split()[0]) + 9)
    assert "ticker_running" not in queue.troubles()
    queue.wait(2)
    assert queue.troubles() == {"ticker_running": "critical"}
    assert queue.tick() is not None
    assert "ticker_running" not in queue.troubles()
