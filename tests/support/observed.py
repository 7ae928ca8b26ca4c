"""A PgQue queue driven through time by hand, and what the contract says of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, LiteralString, cast

import psycopg

Row = dict[str, Any]
Connection = psycopg.Connection[Row]

# Every function of the contract, called for the queue `q` and its consumer `app`.
CONTRACT = (
    "observability_info()",
    "queue_stats()",
    "consumer_stats()",
    "queue_health()",
    "otel_metrics()",
    "throughput('q', '1 hour', '1 minute')",
    "error_rate('q', '1 hour', '1 minute')",
    "latency_percentiles('q', 'app', '1 hour')",
    "in_flight('q')",
    "stuck_consumers()",
)


@dataclass(frozen=True)
class Queue:
    """One queue, driven through the engine's own functions; `wait` moves its past instead of sleeping.

    What is said of it comes from the contract's functions in `schema`.
    """

    db: Connection
    name: str
    schema: str = "pgque"

    def send(self, count: int = 1) -> None:
        self.db.execute(
            "select pgque.send_batch(%s, array_agg('{}'::text)) from generate_series(1, %s)",
            (self.name, count),
        )

    def tick(self) -> int | None:
        """Tick if events wait; the queue's max_count is 1, so any event is enough."""
        row = self.db.execute("select pgque.ticker(%s) as tick_id", (self.name,)).fetchone()
        assert row is not None
        return cast("int | None", row["tick_id"])

    def send_and_tick(self, count: int = 1) -> None:
        self.send(count)
        assert self.tick() is not None

    def subscribe(self, consumer: str) -> None:
        self.db.execute("select pgque.subscribe(%s, %s)", (self.name, consumer))

    def receive(self, consumer: str) -> list[Row]:
        return self.db.execute(
            "select * from pgque.receive(%s, %s, 1000000)", (self.name, consumer)
        ).fetchall()

    def consume(self, consumer: str) -> int:
        """Take and finish batches until none is left; how many events that were."""
        total = 0
        while messages := self.receive(consumer):
            total += len(messages)
            self.db.execute("select pgque.ack(%s)", (messages[0]["batch_id"],))
        return total

    def nack(self, consumer: str, message: Row) -> None:
        """Fail one message of the consumer's open batch; its retry would be due in an hour."""
        self.db.execute(
            "select pgque.nack(%s, m, '1 hour', 'boom') from pgque.receive(%s, %s, 1000000) m"
            " where m.msg_id = %s",
            (message["batch_id"], self.name, consumer, message["msg_id"]),
        )

    def wait(self, seconds: float) -> None:
        """Let time pass: everything that the queue remembers becomes older by so much."""
        values = {"seconds": seconds, "queue": self.name}
        for statement in _GROW_OLDER:
            self.db.execute(statement, values)
        tables = self.db.execute(
            "select queue_data_pfx from pgque.queue where queue_name = %(queue)s", values
        ).fetchone()
        assert tables is not None
        self.db.execute(
            f"update {tables['queue_data_pfx']} set ev_time = ev_time"
            " - make_interval(secs => %(seconds)s)",
            values,
        )

    def stats(self) -> Row:
        return one(self.db, f"select * from {self.schema}.queue_stats() where queue_name = %s", self.name)

    def consumer(self, consumer: str) -> Row:
        return one(
            self.db,
            f"select * from {self.schema}.consumer_stats() where queue_name = %s and consumer_name = %s",
            self.name,
            consumer,
        )

    def health(self) -> dict[str, str]:
        """Status by check."""
        rows = self.db.execute(
            f"select check_name, status from {self.schema}.queue_health() where queue_name = %s",
            (self.name,),
        )
        return {row["check_name"]: row["status"] for row in rows}

    def detail(self, check: str) -> str:
        row = one(
            self.db,
            f"select detail from {self.schema}.queue_health() where queue_name = %s and check_name = %s",
            self.name,
            check,
        )
        return str(row["detail"])

    def troubles(self) -> dict[str, str]:
        """Checks that aren't ok."""
        return {check: status for check, status in self.health().items() if status != "ok"}

    def ask(self, call: str) -> list[Row]:
        """All rows of one function of the contract, written as in CONTRACT."""
        return self.db.execute(f"select * from {self.schema}.{call}").fetchall()

    def metrics(self) -> dict[tuple[str, str | None], float]:
        """Value by (metric, consumer), health left out."""
        rows = self.db.execute(
            "select metric_name, labels->>'consumer' as consumer, value"
            f" from {self.schema}.otel_metrics() where labels->>'queue' = %s and not labels ? 'state'",
            (self.name,),
        )
        return {(row["metric_name"], row["consumer"]): float(row["value"]) for row in rows}


_GROW_OLDER: tuple[LiteralString, ...] = (
    """update pgque.tick set tick_time = tick_time - make_interval(secs => %(seconds)s)
       where tick_queue = (select queue_id from pgque.queue where queue_name = %(queue)s)""",
    """update pgque.subscription set sub_active = sub_active - make_interval(secs => %(seconds)s)
       where sub_queue = (select queue_id from pgque.queue where queue_name = %(queue)s)""",
    """update pgque.queue set queue_switch_time = queue_switch_time - make_interval(secs => %(seconds)s)
       where queue_name = %(queue)s""",
    """update pgque.retry_queue set ev_retry_after = ev_retry_after - make_interval(secs => %(seconds)s)
       where ev_queue = (select queue_id from pgque.queue where queue_name = %(queue)s)""",
    """update pgque.dead_letter set dl_time = dl_time - make_interval(secs => %(seconds)s)
       where dl_queue_id = (select queue_id from pgque.queue where queue_name = %(queue)s)""",
)


def one(db: Connection, query: LiteralString, *params: object) -> Row:
    """The single row of a query."""
    rows = db.execute(query, params).fetchall()
    assert len(rows) == 1, rows
    return rows[0]
