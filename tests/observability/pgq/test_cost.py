"""What a poll of PgQ's pack costs doesn't grow with what a queue remembers."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from bench.observability import GOAL_BUFFERS
from tests.observability.test_facts import buffers
from tests.support.pgq import PgqQueue


def ticks(queue: PgqQueue, count: int) -> None:
    """So many ticks kept, in an index of the same height; the consumer stands near the newest."""
    queue.run(
        "insert into pgq.tick (tick_queue, tick_id, tick_time, tick_event_seq)"
        " select 1, t, now() - make_interval(secs => %s - t), t * 10 from generate_series(2, %s) t"
        " on conflict do nothing",
        count,
        count,
    )
    queue.run("update pgq.subscription set sub_last_tick = %s", count - 3)


def retries(queue: PgqQueue, count: int) -> None:
    """So many events waiting in the retry queue, more than are counted in any case."""
    queue.run(
        "insert into pgq.retry_queue (ev_retry_after, ev_queue, ev_id, ev_time, ev_owner)"
        " select now() + interval '1 hour', 1, e, now(), 1 from generate_series(1, %s) e"
        " on conflict do nothing",
        count,
    )


def backlog(queue: PgqQueue, count: int) -> None:
    """So many events waiting for the consumer."""
    queue.send_and_tick(count)


@pytest.mark.parametrize(
    ("grow", "little", "much"),
    [
        pytest.param(ticks, 300, 30_000, id="ticks kept"),
        pytest.param(retries, 3000, 100_000, id="waiting retries"),
        pytest.param(backlog, 1000, 100_000, id="backlog"),
    ],
)
def test_cost_is_flat(queue: PgqQueue, grow: Callable[[PgqQueue, int], None], little: int, much: int) -> None:
    queue.subscribe("app")
    for number in range(20):
        queue.run("select pgq.create_queue(%s)", f"idle {number}")
        queue.run("select pgq.register_consumer(%s, 'app')", f"idle {number}")

    def cost_with(count: int) -> int:
        grow(queue, count)
        queue.run("vacuum analyze")
        return buffers(queue, "otel_metrics()")

    before = cost_with(little)
    assert before > 0
    assert cost_with(much) <= before * GOAL_BUFFERS
