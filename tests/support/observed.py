"""A queue driven through time by hand, and what the contract says of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, LiteralString, cast

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
    "dead_letters()",
)


@dataclass(frozen=True)
class Queue:
    """One queue of PgQue, driven through its own functions; `wait` moves its past instead of sleeping.

    What is said of it comes from the contract's functions in `schema`. A class for another engine of
    PgQ's layout overrides what that engine does by other functions.
    """

    db: Connection
    name: str
    schema: str = "pgque"

    engine: ClassVar[str] = "pgque"
    maintained_by: ClassVar[str] = "maint()"
    # What the queue remembers of the past: table, column, and the column with the queue's id.
    times: ClassVar[tuple[tuple[str, str, str], ...]] = (
        ("{engine}.tick", "tick_time", "tick_queue"),
        ("{engine}.subscription", "sub_active", "sub_queue"),
        ("{engine}.queue", "queue_switch_time", "queue_id"),
        ("{engine}.retry_queue", "ev_retry_after", "ev_queue"),
        ("{engine}.dead_letter", "dl_time", "dl_queue_id"),
    )

    def run(self, statement: str, *params: object) -> list[Row]:
        """Run a statement where {engine} and {pack} stand for their schemas; its rows, if it has any."""
        text = statement.replace("{engine}", self.engine).replace("{pack}", self.schema)
        cursor = self.db.execute(text.encode(), params or None)
        return cursor.fetchall() if cursor.description else []

    def configure(self, parameter: str, value: str) -> None:
        self.run("select {engine}.set_queue_config(%s, %s, %s)", self.name, parameter, value)

    def send(self, count: int = 1) -> None:
        self.db.execute(
            "select pgque.send_batch(%s, array_agg('{}'::text)) from generate_series(1, %s)",
            (self.name, count),
        )

    def tick(self) -> int | None:
        """Tick if events wait; the queue's max_count is 1, so any event is enough."""
        (row,) = self.run("select {engine}.ticker(%s) as tick_id", self.name)
        return cast("int | None", row["tick_id"])

    def force_tick(self) -> None:
        """Make the next tick come, whatever waits."""
        self.db.execute("select pgque.force_next_tick(%s)", (self.name,))

    def send_and_tick(self, count: int = 1) -> None:
        self.send(count)
        assert self.tick() is not None

    def subscribe(self, consumer: str) -> None:
        self.run("select {engine}.register_consumer(%s, %s)", self.name, consumer)

    def receive(self, consumer: str) -> list[Row]:
        return self.db.execute(
            "select * from pgque.receive(%s, %s, 1000000)", (self.name, consumer)
        ).fetchall()

    def consume(self, consumer: str) -> int:
        """Take and finish batches until none is left; how many events that were."""
        total = 0
        while messages := self.receive(consumer):
            total += len(messages)
            self.finish(messages)
        return total

    def finish(self, messages: list[Row]) -> None:
        """Finish the batch that these messages came with."""
        self.run("select {engine}.finish_batch(%s)", messages[0]["batch_id"])

    def nack(self, consumer: str, message: Row) -> None:
        """Fail one message of the consumer's open batch; its retry would be due in an hour."""
        self.db.execute(
            "select pgque.nack(%s, m, '1 hour', 'boom') from pgque.receive(%s, %s, 1000000) m"
            " where m.msg_id = %s",
            (message["batch_id"], self.name, consumer, message["msg_id"]),
        )

    def bring_back_retries(self) -> int:
        """Put retries that are due back into the queue; how many that were."""
        moved = 0
        while batch := int(self.run("select {engine}.maint_retry_events() as moved")[0]["moved"]):
            moved += batch
        return moved

    def wait(self, seconds: float) -> None:
        """Let time pass: everything that the queue remembers becomes older by so much."""
        (queue,) = self.run(
            "select queue_id, queue_data_pfx from {engine}.queue where queue_name = %s", self.name
        )
        for table, time, of_the_queue in self.times:
            self.run(
                f"update {table} set {time} = {time} - make_interval(secs => %s) where {of_the_queue} = %s",
                seconds,
                queue["queue_id"],
            )
        self.run(
            f"update {queue['queue_data_pfx']} set ev_time = ev_time - make_interval(secs => %s)", seconds
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


def one(db: Connection, query: LiteralString, *params: object) -> Row:
    """The single row of a query."""
    rows = db.execute(query, params).fetchall()
    assert len(rows) == 1, rows
    return rows[0]
