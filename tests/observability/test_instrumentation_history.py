"""What error_rate() and latency_percentiles() know of the past once the instrumentation is there."""

from __future__ import annotations

from datetime import timedelta

import pytest

from tests.support.database import INSTRUMENTATION_INSTALL, Database
from tests.support.instrumentation import ack, counts, failures, roll_up, take
from tests.support.observed import Queue, one


@pytest.fixture
def remembering(counted: Queue) -> Queue:
    """Instrumented since two hours ago."""
    counted.db.execute("update pgque.instrumentation_state set history_from = now() - interval '2 hours'")
    return counted


@pytest.mark.parametrize("rolled_up", [True, False])
def test_past_failures_stay_where_they_happened(remembering: Queue, rolled_up: bool) -> None:
    db = remembering.db
    messages = take(remembering, 9)
    for message in messages[:6]:
        remembering.nack("app", message)
    db.execute("select pgque.set_queue_config('q', 'max_retries', '0')")
    for message in messages[6:]:
        remembering.nack("app", message)
    ack(remembering, messages)
    db.execute("update pgque.retry_queue set ev_retry_after = now()")
    assert one(db, "select pgque.maint_retry_events() as n") == {"n": 6}
    assert one(db, "select pgque.dlq_purge('q', '0') as n") == {"n": 3}
    db.execute("update pgque.instrumentation_log set at = at - interval '10 minutes'")
    if rolled_up:
        roll_up(db)

    rows = failures(remembering)
    assert len(rows) == 61
    assert [(row["retries"], row["dead_letters"]) for row in rows if row["retries"]] == [(6, 3)]
    assert all(row["retries"] is not None for row in rows)
    [row] = [row for row in rows if row["retries"]]
    age = one(db, "select now() - %s as age", row["bucket_start"])["age"]
    assert timedelta(minutes=10) <= age <= timedelta(minutes=12)


def test_roll_ups_of_one_minute_add_up(remembering: Queue) -> None:
    messages = take(remembering, 9)
    for message in messages[:4]:
        remembering.nack("app", message)
        remembering.db.execute("update pgque.instrumentation_log set at = date_trunc('hour', now())")
        roll_up(remembering.db)
    rows = failures(remembering, "2 hours", "1 hour")
    assert [row["retries"] for row in rows if row["retries"]] == [4]


def test_what_history_does_not_cover_is_unknown(counted: Queue) -> None:
    messages = take(counted, 2)
    counted.nack("app", messages[0])
    rows = failures(counted, "10 minutes")
    assert {row["retries"] for row in rows[:-2]} == {None}, "before the installation"
    counted.db.execute("update pgque.instrumentation_state set history_from = now() - interval '5 minutes'")
    rows = failures(counted, "10 minutes")
    assert [row["retries"] is None for row in rows].count(False) in (5, 6)
    assert sum(row["retries"] or 0 for row in rows) == 1
    # A bucket that splits a minute can't be filled from what is kept by the minute.
    assert {row["retries"] for row in failures(counted, "10 minutes", "90 seconds")} == {None}
    assert {row["dead_letters"] for row in failures(counted, "10 minutes", "90 seconds")} == {0}


def test_history_is_kept_as_long_as_wished_and_what_was_dropped_stays_unknown(remembering: Queue) -> None:
    db = remembering.db
    messages = take(remembering, 2)
    remembering.nack("app", messages[0])
    db.execute("update pgque.instrumentation_log set at = at - interval '40 minutes'")
    roll_up(db)
    assert sum(row["retries"] or 0 for row in failures(remembering)) == 1
    db.execute("update pgque.instrumentation_state set history_kept = '30 minutes'")
    roll_up(db)
    for longer in ("7 days", "100000 years"):
        db.execute("update pgque.instrumentation_state set history_kept = %s", (longer,))
        roll_up(db)
    rows = failures(remembering)
    assert [row["retries"] for row in rows].count(None) in (30, 31)
    assert sum(row["retries"] or 0 for row in rows) == 0
    assert one(db, "select count(*) as n from pgque.instrumentation_history") == {"n": 0}
    assert counts(db) == {("q", "app", "nacked"): 1}, "a counter forgets nothing"


@pytest.mark.parametrize("rolled_up", [True, False])
def test_latency_percentiles_know_every_finished_batch(remembering: Queue, rolled_up: bool) -> None:
    for seconds, events in ((100, 50), (1, 940), (3000, 10)):
        messages = take(remembering, events)
        remembering.wait(seconds)
        ack(remembering, messages)
    if rolled_up:
        roll_up(remembering.db)
    row = one(remembering.db, "select * from pgque.latency_percentiles('q', 'app', '1 hour')")
    tolerance = 0.15  # a bucket is a tenth of a power of ten wide; and the test takes its time
    for name, seconds in (("p50", 1), ("p95", 100), ("p99", 100)):
        assert seconds * (1 - tolerance) <= row[name].total_seconds() <= seconds * (1 + tolerance) + 1

    remembering.send_and_tick(100_000)
    remembering.wait(1000)  # these wait still
    row = one(remembering.db, "select * from pgque.latency_percentiles('q', 'app', '1 hour')")
    assert 1000 <= row["p50"].total_seconds() < 1060


def test_latency_before_the_installation_is_read_from_the_tables(
    queue: Queue, pack_database: Database
) -> None:
    queue.subscribe("app")
    messages = take(queue, 10)
    queue.wait(100)
    ack(queue, messages)
    query = "select * from pgque.latency_percentiles('q', 'app', '1 hour')"
    before = one(queue.db, query)
    assert before["p50"] is not None
    pack_database.install(INSTRUMENTATION_INSTALL)
    assert one(queue.db, query) == before
