"""What the instrumentation says of a queue, and the work that it counts."""

from __future__ import annotations

from tests.support.observed import Connection, Queue, Row, one

COUNTERS = ("acked", "nacked", "redelivered", "dead_lettered", "replayed", "purged")
HISTOGRAMS = ("pgque.processing_latency_seconds", "pgque.batch.size")
LOG_ROWS = "pgque.instrumentation.log_rows"

Counts = dict[tuple[str, str | None, str], int]  # by queue, consumer and counter


def instrumentation(db: Connection) -> dict[tuple[str, str], float]:
    """Every row of it by metric and labels, but for the length of the log."""
    rows = db.execute(
        "select metric_name, labels::text as labels, value from pgque.instrumented_metrics()"
        " where metric_name <> %s",
        (LOG_ROWS,),
    )
    return {(row["metric_name"], row["labels"]): row["value"] for row in rows}


def counts(db: Connection) -> Counts:
    """The counters that aren't 0."""
    rows = db.execute(
        "select metric_name, labels->>'queue' as queue, labels->>'consumer' as consumer, value"
        " from pgque.otel_metrics() where metric_name = any (%s) and value <> 0",
        ([f"pgque.message.{counter}_total" for counter in COUNTERS],),
    )
    return {
        (row["queue"], row["consumer"], row["metric_name"].split(".")[-1].removesuffix("_total")): int(
            row["value"]
        )
        for row in rows
    }


def histogram(db: Connection, name: str, consumer: str = "app") -> tuple[dict[str, int], float, int]:
    """Cumulative buckets by their bound, sum and count."""
    rows = db.execute(
        "select metric_name, labels->>'le' as le, value from pgque.otel_metrics()"
        " where labels->>'consumer' = %s and metric_name like %s || '\\_%%'",
        (consumer, name),
    ).fetchall()
    buckets = {row["le"]: int(row["value"]) for row in rows if row["le"] is not None}
    single = {row["metric_name"].removeprefix(name): row["value"] for row in rows if row["le"] is None}
    return buckets, float(single["_sum"]), int(single["_count"])


def failures(queue: Queue, period: str = "1 hour", bucket: str = "1 minute") -> list[Row]:
    """The rows of error_rate()."""
    return queue.db.execute("select * from pgque.error_rate('q', %s, %s)", (period, bucket)).fetchall()


def roll_up(db: Connection, max_rows: int = 50_000) -> int:
    """How many rows of the log it moved."""
    return int(one(db, "select pgque.instrumentation_rollup(%s) as moved", max_rows)["moved"])


def take(queue: Queue, count: int, consumer: str = "app") -> list[Row]:
    """Send so many events and take them as one batch."""
    queue.send_and_tick(count)
    return queue.receive(consumer)


def ack(queue: Queue, messages: list[Row]) -> None:
    """Finish the batch that these messages came in."""
    assert one(queue.db, "select pgque.ack(%s) as done", messages[0]["batch_id"])["done"] == 1
