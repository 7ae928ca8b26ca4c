"""Idle queues with a ticker at work, watched in the background while other tests run."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass

import psycopg

from pgque_exporter.demo.cluster import Cluster, embedded_bindir
from tests.support.database import ENGINE_INSTALL, PACK_INSTALL, Database, new_database
from tests.support.queue import create_queue, receive, rows, send, tick, value

DURATION = 180.0  # seconds, longer than the longest limit of a check on an idle queue
_PERIOD = 1.0  # of the ticker, the upkeep, the consumers and the looks


@dataclass(frozen=True)
class Seen:
    """What the watch has seen: seconds between first and last look, how often, and what wasn't ok."""

    seconds: float
    looks: int
    troubles: list[tuple[object, ...]]
    ticks: dict[str, int]  # written while watched, by queue


class IdleWatch:
    """Queues without work on a server of their own, in a thread."""

    def __init__(self) -> None:
        self._stop = threading.Event()
        self._seen: Seen | None = None
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="idle-watch")

    def start(self) -> None:
        """Begin; returns at once."""
        self._thread.start()

    def stop(self) -> None:
        """End it, whatever it has seen."""
        self._stop.set()
        self._thread.join()

    def result(self) -> Seen:
        """What was seen; waits until the whole time is over."""
        self._thread.join()
        if self._failure is not None:
            raise self._failure
        if self._seen is None:
            raise RuntimeError("the watch was stopped early")
        return self._seen

    def _run(self) -> None:
        try:
            with Cluster(embedded_bindir()) as cluster, new_database(cluster) as database:
                self._seen = self._watch(database)
        except BaseException as failure:  # noqa: BLE001 (raised again where the result is asked for)
            self._failure = failure

    def _watch(self, database: Database) -> Seen | None:
        database.install(ENGINE_INSTALL)
        database.install(PACK_INSTALL)
        db = database.connect()
        _lay(db)
        ticks = dict(rows(db, _TICKS))
        troubles: list[tuple[object, ...]] = []
        looks, started = 0, time.monotonic()
        while (passed := time.monotonic() - started) < DURATION or not looks:
            value(db, "select pgque.ticker()")
            value(db, "select pgque.maint()")
            value(db, "select pgque.maint_rotate_tables_step2()")
            value(db, "select pgque.maint_retry_events()")
            for queue in ("consumed", "rotated fast"):
                receive(db, queue, "app")
            troubles += rows(db, _TROUBLES)
            looks += 1
            if self._stop.wait(_PERIOD):
                return None
        written = {queue: count - ticks[queue] for queue, count in rows(db, _TICKS)}
        return Seen(passed, looks, troubles, written)


_TICKS = """
    select q.queue_name, max(t.tick_id)
    from pgque.queue q
    join pgque.tick t on t.tick_queue = q.queue_id
    group by q.queue_name
"""
_TROUBLES = """
    select queue_name, check_name, status, detail from pgque.queue_health() where status <> 'ok'
    union all
    select labels->>'queue', metric_name, value::text, labels::text
    from pgque.otel_metrics()
    where metric_name = 'pgque.queue.health_state' or metric_name = 'pgque.queue.health_status' and value <> 0
"""


def _lay(db: psycopg.Connection[tuple[object, ...]]) -> None:
    """Queues that are idle in every way: never used, used up, without consumers, often rotated."""
    create_queue(db, "never used", "app")
    create_queue(db, "nobody there")
    create_queue(db, "consumed", "app", "idle")
    create_queue(db, "rotated fast", "app")
    value(db, "select pgque.set_queue_config('rotated fast', 'rotation_period', '10 seconds')")
    for queue, consumers in (("consumed", ("app", "idle")), ("rotated fast", ("app",))):
        send(db, queue, "one", "two")
        tick(db, queue)
        for consumer in consumers:
            (first, _) = receive(db, queue, consumer)
            value(db, "select pgque.ack(%s)", first.batch_id)
