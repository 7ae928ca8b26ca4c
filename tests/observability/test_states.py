"""The contract's answers in the states that an operator meets every day."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import psycopg
import pytest

from tests.support.observed import Connection, Queue

ZERO = timedelta(0)


def test_healthy_queue_is_ok_in_every_check(queue: Queue) -> None:
    queue.subscribe("app")
    queue.send_and_tick(10)
    assert queue.consume("app") == 10

    assert queue.troubles() == {}
    assert queue.stats().items() >= {"depth": 0, "oldest_msg_age": ZERO, "consumers": 1}.items()
    assert queue.consumer("app")["pending_events"] == 0
    assert queue.consumer("app")["lag"] == ZERO


def test_idle_queue_is_healthy_between_its_rare_ticks(queue: Queue) -> None:
    queue.subscribe("app")
    queue.send_and_tick(3)
    queue.consume("app")
    queue.wait(110)  # idle period 60 s: the next tick may be as late as that plus the ticker's own pace

    assert queue.troubles() == {}
    assert queue.stats()["oldest_msg_age"] == ZERO
    assert queue.consumer("app")["lag"] == ZERO


def test_new_queue_without_a_single_event_is_ok_and_reads_zero(queue: Queue) -> None:
    queue.subscribe("app")

    assert queue.troubles() == {}
    assert queue.stats()["depth"] == 0
    assert queue.metrics()[("pgque.message.sent_total", None)] == 0
    assert queue.metrics()[("pgque.consumer.pending_events", "app")] == 0


def test_depth_is_the_slowest_consumers_backlog_and_each_has_its_own(queue: Queue) -> None:
    queue.subscribe("fast")
    queue.subscribe("slow")
    queue.send_and_tick(100)
    queue.consume("fast")
    queue.wait(30)
    queue.send_and_tick(50)

    assert queue.stats()["depth"] == 150
    assert queue.consumer("slow")["pending_events"] == 150
    assert queue.consumer("fast")["pending_events"] == 50
    # The slow one waits since before the first 100, the fast one since before the last 50.
    assert queue.consumer("slow")["lag"] >= timedelta(seconds=30)
    assert queue.stats()["oldest_msg_age"] >= timedelta(seconds=30)


def test_lag_counts_from_the_first_pending_event_not_from_the_idle_time_before_it(queue: Queue) -> None:
    queue.subscribe("app")
    queue.send_and_tick(5)
    queue.consume("app")
    # A long idle time: ticks without events, none of them taken by the consumer.
    for _ in range(40):
        queue.wait(61)
        assert queue.tick() is not None
    queue.wait(5)
    queue.send_and_tick(7)
    queue.wait(20)

    lag = queue.consumer("app")["lag"]
    assert timedelta(seconds=20) <= lag < timedelta(seconds=40)
    assert queue.consumer("app")["pending_events"] == 7


def test_lagging_consumer_warns_past_half_the_rotation_period_and_is_critical_past_it(queue: Queue) -> None:
    queue.subscribe("app")
    queue.send_and_tick(5)
    queue.wait(1000)
    queue.send_and_tick(5)
    assert "consumer_lag:app" not in queue.troubles()
    queue.wait(3000)
    queue.send_and_tick(1)
    assert queue.troubles()["consumer_lag:app"] == "warning"
    queue.wait(4000)
    queue.send_and_tick(1)
    assert queue.troubles()["consumer_lag:app"] == "critical"
    assert "12 events" in queue.detail("consumer_lag:app")


def test_stuck_consumer_is_listed_once_it_is_behind_and_silent(queue: Queue) -> None:
    queue.subscribe("app")
    queue.subscribe("other")
    queue.send_and_tick(5)
    assert queue.receive("app")
    queue.consume("other")
    queue.wait(7000)
    queue.send_and_tick(1)
    queue.consume("other")

    stuck = queue.ask("stuck_consumers()")
    assert [(row["queue_name"], row["consumer_name"]) for row in stuck] == [("q", "app")]
    assert stuck[0]["lag"] >= timedelta(seconds=7000)
    assert queue.troubles()["consumer_stuck:app"] == "warning"
    assert queue.ask("stuck_consumers('3 hours')") == []

    in_flight = queue.ask("in_flight('q')")
    assert [(row["consumer_name"], row["estimated_events"]) for row in in_flight] == [("app", 5)]
    assert in_flight[0]["batch_age"] >= timedelta(seconds=7000)
    assert queue.metrics()[("pgque.consumer.open_batch_events", "app")] == 5
    assert queue.metrics()[("pgque.consumer.open_batch_age_seconds", "app")] >= 7000
    assert ("pgque.consumer.open_batch_age_seconds", "other") not in queue.metrics()


def test_idle_consumer_of_an_idle_queue_is_not_stuck(queue: Queue) -> None:
    queue.subscribe("app")
    queue.send_and_tick(5)
    queue.consume("app")
    queue.wait(100_000)
    queue.tick()

    assert queue.ask("stuck_consumers()") == []
    assert "consumer_stuck:app" not in queue.troubles()
    assert "consumer_lag:app" not in queue.troubles()


def test_failing_consumer_shows_retries_and_dead_letters(queue: Queue) -> None:
    queue.configure("max_retries", "0")
    queue.subscribe("app")
    queue.send_and_tick(20)
    assert queue.stats()["dlq_count"] == 0
    messages = queue.receive("app")
    for message in messages[:15]:
        queue.nack("app", message)
    queue.configure("max_retries", "5")
    for message in messages[15:]:
        queue.nack("app", message)
    queue.finish(messages)

    assert queue.stats()["dlq_count"] == 15
    assert queue.metrics()[("pgque.message.dead_lettered", None)] == 15
    assert queue.metrics()[("pgque.message.retry_waiting", None)] == 5
    assert queue.troubles() == {"dlq_health": "warning"}

    queue.wait(4000)  # nobody runs maint_retry_events
    assert queue.troubles()["retry_overdue"] == "warning"
    buckets = queue.ask("error_rate('q', '2 hours', '1 minute')")
    assert sum(row["dead_letters"] for row in buckets) == 15
    assert {row["retries"] for row in buckets} == {None}  # unknown, not none
    assert len(buckets) == 121

    assert "dlq_health" not in queue.troubles()


def test_paused_queue_is_a_state_of_its_own(queue: Queue) -> None:
    queue.subscribe("app")
    queue.send_and_tick(5)
    queue.consume("app")
    queue.configure("ticker_paused", "true")
    queue.send(9)
    queue.wait(6000)  # longer than half the rotation period, still shorter than two of them

    assert queue.troubles() == {"paused": "warning"}
    assert "9 events wait" in queue.detail("paused")
    assert queue.stats()["ticker_paused"] is True
    assert queue.metrics()[("pgque.queue.paused", None)] == 1
    assert queue.ask("stuck_consumers()") == []


def test_dead_ticker_is_critical_past_the_idle_period(queue: Queue) -> None:
    queue.subscribe("app")
    queue.wait(119)
    assert "ticker_running" not in queue.troubles()
    queue.wait(2)
    assert queue.troubles() == {"ticker_running": "critical"}
    assert queue.stats()["events_per_sec"] is None


def test_dead_ticker_with_events_waiting_is_critical_within_seconds(queue: Queue) -> None:
    queue.subscribe("app")
    queue.send(10_000)
    queue.wait(7)
    assert "ticker_running" not in queue.troubles()
    queue.wait(8)

    assert queue.troubles() == {"ticker_running": "critical"}
    # The waiting events are in the depth, not invisible until a tick comes.
    assert queue.stats()["depth"] == 10_000
    assert queue.metrics()[("pgque.queue.unticked_events", None)] == 10_000
    assert queue.consumer("app")["pending_events"] == 10_000
    assert timedelta(seconds=15) <= queue.consumer("app")["lag"] < timedelta(seconds=60)


def test_paused_queues_hide_no_dead_ticker(queue: Queue) -> None:
    for number in range(30):
        other = replace(queue, name=f"paused {number}")
        other.run("select {engine}.create_queue(%s)", other.name)
        other.send()
        other.wait(3600)
        other.configure("ticker_paused", "true")
    queue.subscribe("app")
    queue.send()
    queue.wait(15)
    assert queue.troubles() == {"ticker_running": "critical"}


def test_clock_that_was_set_back_hides_no_dead_ticker_and_makes_no_negative_ages(queue: Queue) -> None:
    queue.subscribe("app")
    queue.send_and_tick(3)
    assert len(queue.receive("app")) == 3
    queue.wait(-3600)
    assert queue.troubles() == {}
    assert not [check for check in queue.health() if "-" in queue.detail(check)]
    assert min(queue.metrics().values()) >= 0

    queue.send()
    queue.run("update {engine}.event_1 set ev_time = now() - interval '15 seconds' where ev_time <= now()")
    assert queue.troubles() == {"ticker_running": "critical"}
    assert queue.detail("ticker_running").startswith("events have waited 00:00:15 for a tick")


def test_sequence_that_ran_ahead_of_nothing_is_no_backlog_and_no_dead_ticker(queue: Queue) -> None:
    queue.subscribe("app")
    with queue.db.transaction(force_rollback=True):
        queue.send(5000)
    queue.wait(40)

    assert queue.troubles() == {}
    assert queue.stats()["depth"] == 0
    assert queue.stats()["oldest_msg_age"] == ZERO


def test_a_time_without_an_age_stops_no_poll(queue: Queue) -> None:
    queue.subscribe("app")
    queue.send_and_tick(2)
    first, _ = queue.receive("app")
    queue.nack("app", first)
    queue.run("update {engine}.retry_queue set ev_retry_after = '-infinity'")
    assert queue.troubles() == {"retry_overdue": "warning"}

    queue.send(2)
    queue.run("update {engine}.event_1 set ev_time = 'infinity'")
    assert queue.stats()["depth"] == 4
    queue.wait(60)
    assert queue.troubles()["ticker_running"] == "critical"


def test_queue_without_consumers_warns_only_when_somebody_sends(queue: Queue) -> None:
    assert queue.troubles() == {}
    queue.send_and_tick(3)
    assert queue.troubles() == {"no_consumers": "warning"}
    assert queue.stats().items() >= {"depth": 0, "consumers": 0}.items()
    queue.subscribe("app")
    assert queue.troubles() == {}


def test_overdue_rotation_names_the_consumer_that_blocks_it(queue: Queue) -> None:
    queue.subscribe("fast")
    queue.subscribe("Slow one")
    queue.send_and_tick(5)
    queue.consume("fast")
    queue.consume("Slow one")
    queue.send_and_tick(5)
    queue.configure("rotation_period", "10 seconds")
    queue.wait(11)
    # First rotation: allowed, both are past the one before. Then the slow one stays where it is.
    queue.run("select {engine}.maint_rotate_tables_step1('q')")
    queue.run("select {engine}.maint_rotate_tables_step2()")
    queue.send_and_tick(5)
    queue.consume("fast")
    queue.wait(85)
    queue.send_and_tick(5)
    queue.consume("fast")

    assert queue.troubles()["rotation_health"] == "warning"
    assert 'blocked by consumer "Slow one"' in queue.detail("rotation_health")
    queue.consume("Slow one")
    assert queue.maintained_by in queue.detail("rotation_health")


def test_rotation_in_its_normal_window_is_ok(queue: Queue) -> None:
    queue.subscribe("app")
    queue.configure("rotation_period", "10 seconds")
    queue.send_and_tick(1)
    queue.consume("app")
    queue.wait(15)
    assert "rotation_health" not in queue.troubles()
    queue.run("select {engine}.maint_rotate_tables_step1('q')")
    assert queue.run("select queue_switch_step2 from {engine}.queue") == [{"queue_switch_step2": None}]
    assert "rotation_health" not in queue.troubles()


def test_position_whose_tick_is_gone_is_critical_and_its_figures_unknown(queue: Queue) -> None:
    queue.subscribe("app")
    queue.send_and_tick(5)
    queue.run("delete from {engine}.tick where tick_id = (select sub_last_tick from {engine}.subscription)")

    assert queue.troubles() == {
        "missing_tick:app": "critical",
        "consumer_lag:app": "unknown",
        "consumer_stuck:app": "unknown",
    }
    assert queue.consumer("app").items() >= {"lag": None, "pending_events": None}.items()
    assert ("pgque.consumer.lag_seconds", "app") not in queue.metrics()
    assert queue.stats()["depth"] is None


def test_restored_dump_with_ids_from_the_future_is_critical(queue: Queue) -> None:
    queue.subscribe("app")
    queue.run("update {engine}.tick set tick_snapshot = '99999999:99999999:'")
    assert queue.troubles()["xid_regression"] == "critical"


def test_cooperative_group_is_one_consumer_with_all_that_its_members_hold(
    db: Connection, queue: Queue
) -> None:
    for name in ("group", "group.a", "group.b"):
        queue.subscribe(name)
    queue.send_and_tick(600)
    queue.send_and_tick(300)
    queue.send_and_tick(100)
    # As the engine lays it: the main row is the group's cursor, members own the batches it handed out.
    ticks = [row["tick_id"] for row in db.execute("select tick_id from pgque.tick order by tick_id")]
    db.execute(
        "update pgque.subscription s set sub_role = 'coop_main', sub_last_tick = %s"
        " from pgque.consumer c where c.co_id = s.sub_consumer and c.co_name = 'group'",
        (ticks[2],),
    )
    for member, first, last in (("group.a", ticks[0], ticks[1]), ("group.b", ticks[1], ticks[2])):
        db.execute(
            "update pgque.subscription s set sub_role = 'coop_member', sub_last_tick = %s,"
            " sub_next_tick = %s, sub_batch = nextval('pgque.batch_id_seq'), sub_parent ="
            " (select sub_id from pgque.subscription where sub_role = 'coop_main')"
            " from pgque.consumer c where c.co_id = s.sub_consumer and c.co_name = %s",
            (first, last, member),
        )
    queue.wait(50)

    rows = db.execute("select * from pgque.consumer_stats()").fetchall()
    assert [row["consumer_name"] for row in rows] == ["group"]
    assert rows[0]["pending_events"] == 1000
    assert rows[0]["batch_active"] is True
    assert rows[0]["lag"] >= timedelta(seconds=50)
    assert queue.stats().items() >= {"depth": 1000, "consumers": 1}.items()
    assert queue.metrics()[("pgque.consumer.open_batch_events", "group")] == 900
    assert {row["consumer_name"] for row in db.execute("select * from pgque.in_flight('q')")} == {
        "group.a",
        "group.b",
    }


def test_throughput_keeps_the_true_rate_when_ticks_are_rarer_than_buckets(queue: Queue) -> None:
    queue.subscribe("app")
    for _ in range(10):
        queue.wait(60)
        queue.send_and_tick(600)

    rows = queue.ask("throughput('q', '15 minutes', '30 seconds')")
    assert sum(row["events"] for row in rows) == 6000
    assert all(9 < row["events_per_sec"] <= 10 for row in rows), rows
    assert 9 < queue.stats()["events_per_sec"] <= 10
    assert 9 < queue.metrics()[("pgque.queue.throughput", None)] <= 10


def test_rate_survives_a_gap_in_the_tick_ids(queue: Queue) -> None:
    queue.send_and_tick(1)
    queue.wait(10)
    with queue.db.transaction(force_rollback=True):
        queue.send_and_tick(1)  # burns a tick id
    queue.send_and_tick(100)
    assert queue.stats()["events_per_sec"] is not None
    assert 9 < queue.stats()["events_per_sec"] <= 10.2


def test_latency_percentiles_weigh_every_event_the_same(queue: Queue) -> None:
    queue.subscribe("app")
    latency = "latency_percentiles('q', 'app', '1 hour')"
    assert queue.ask(latency) == [{"p50": None, "p95": None, "p99": None}]
    queue.send_and_tick(10)
    queue.wait(100)
    queue.send_and_tick(990)
    queue.wait(5)

    (row,) = queue.ask(latency)
    assert timedelta(seconds=5) <= row["p50"] == row["p95"] == row["p99"] < timedelta(seconds=60)
    queue.consume("app")
    queue.wait(7)  # consumed ones don't age any more
    (row,) = queue.ask(latency)
    assert timedelta(seconds=5) <= row["p50"] < timedelta(seconds=7)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        ("throughput('nope', '1 hour', '1 minute')", "queue not found: nope"),
        ("throughput('q', '1 hour', '0')", "bucket_size must be positive"),
        ("throughput('q', '-1 hour', '1 minute')", "period must be positive"),
        ("throughput('q', '1 year', '1 second')", "more than 10000 buckets"),
        ("error_rate('q', null, '1 minute')", "period must be positive, not null"),
        ("error_rate('nope', '1 hour', '1 minute')", "queue not found: nope"),
        ("in_flight('nope')", "queue not found: nope"),
        ("latency_percentiles('q', 'nobody', '1 hour')", "not subscriber to queue: q/nobody"),
        ("latency_percentiles('q', 'app', '0')", "period must be positive"),
    ],
)
def test_bad_arguments_get_a_clear_error(queue: Queue, call: str, message: str) -> None:
    queue.subscribe("app")
    with pytest.raises(psycopg.Error, match=message):
        queue.ask(call)
