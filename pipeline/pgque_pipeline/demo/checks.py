"""The health checks of the generated queues, by the pack's thresholds."""

from __future__ import annotations

from pgque_pipeline.demo.consumers import Consumer
from pgque_pipeline.demo.plan import HOUR, MINUTE
from pgque_pipeline.demo.queues import Queue

QUEUE_CHECKS = (
    "ticker_running", "paused", "xid_regression", "no_consumers", "rotation_health", "dlq_health",
    "retry_overdue",
)  # fmt: skip
CONSUMER_CHECKS = ("missing_tick", "consumer_lag", "consumer_stuck")

_TICK_LATE = 90 + 30  # seconds: one and a half idle periods, and the grace
_ROTATION_GRACE = MINUTE
_DEAD_CRITICAL, _DEAD_WARNING = 1000, 10  # within an hour
_DEAD_KEPT = 1000


def queue_troubles(queue: Queue) -> dict[str, str]:
    """State of each check of a queue that isn't ok."""
    found = {}
    if queue.tick_age > _TICK_LATE:
        found["ticker_running"] = "critical"
    if queue.rotation_age > 2 * queue.plan.rotation + _ROTATION_GRACE:
        found["rotation_health"] = "warning"
    if queue.dead_of_hour >= _DEAD_CRITICAL:
        found["dlq_health"] = "critical"
    elif queue.dead_of_hour >= _DEAD_WARNING or queue.dead_letters > _DEAD_KEPT:
        found["dlq_health"] = "warning"
    return found


def consumer_troubles(queue: Queue, consumer: Consumer) -> dict[str, str]:
    """State of each check of a consumer that isn't ok."""
    found = {}
    if consumer.lag > queue.plan.rotation:
        found["consumer_lag"] = "critical"
    elif consumer.lag > queue.plan.rotation / 2:
        found["consumer_lag"] = "warning"
    if min(consumer.lag, consumer.idle) > max(HOUR, queue.plan.rotation / 2):
        found["consumer_stuck"] = "warning"
    return found
