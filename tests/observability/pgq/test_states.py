"""PgQ's pack in the situations that both engines know, and in those that only PgQ knows."""

from __future__ import annotations

from datetime import timedelta

# The same tests as PgQue's, run here on the queue of this folder.
from tests.observability.test_backlog import (  # noqa: F401
    test_a_forced_tick_is_no_backlog,
    test_a_large_backlog_is_bounded_by_the_sequence_and_exact_when_asked,
    test_a_retried_event_is_pending_for_its_owner_alone,
    test_an_event_committed_late_is_pending_though_its_number_is_old,
    test_exact_backlog_of_a_lost_position_is_unknown,
    test_rolled_back_events_are_no_backlog_before_and_after_their_tick,
    test_the_monitor_may_ask_for_the_exact_backlog,
)
from tests.observability.test_states import (  # noqa: F401
    test_bad_arguments_get_a_clear_error,
    test_dead_ticker_is_critical_past_the_idle_period,
    test_dead_ticker_with_events_waiting_is_critical_within_seconds,
    test_depth_is_the_slowest_consumers_backlog_and_each_has_its_own,
    test_healthy_queue_is_ok_in_every_check,
    test_idle_consumer_of_an_idle_queue_is_not_stuck,
    test_idle_queue_is_healthy_between_its_rare_ticks,
    test_lag_counts_from_the_first_pending_event_not_from_the_idle_time_before_it,
    test_lagging_consumer_warns_past_half_the_rotation_period_and_is_critical_past_it,
    test_latency_percentiles_weigh_every_event_the_same,
    test_new_queue_without_a_single_event_is_ok_and_reads_zero,
    test_overdue_rotation_names_the_consumer_that_blocks_it,
    test_paused_queue_is_a_state_of_its_own,
    test_position_whose_tick_is_gone_is_critical_and_its_figures_unknown,
    test_queue_without_consumers_warns_only_when_somebody_sends,
    test_rate_survives_a_gap_in_the_tick_ids,
    test_restored_dump_with_ids_from_the_future_is_critical,
    test_rotation_in_its_normal_window_is_ok,
    test_sequence_that_ran_ahead_of_nothing_is_no_backlog_and_no_dead_ticker,
    test_stuck_consumer_is_listed_once_it_is_behind_and_silent,
    test_throughput_keeps_the_true_rate_when_ticks_are_rarer_than_buckets,
)
from tests.observability.test_thresholds import (  # noqa: F401
    test_a_threshold_for_all_queues_and_one_for_a_single_queue,
    test_each_threshold_moves_its_check,
    test_only_the_administrator_changes_thresholds,
    test_what_makes_no_sense_is_refused,
)
from tests.support.pgq import PgqQueue

ZERO = timedelta(0)


def test_the_first_event_of_a_queue_counts_though_pgq_does_not_see_it(queue: PgqQueue) -> None:
    # An unused sequence and one that gave out its first number both read 1.
    queue.subscribe("app")
    queue.send(1)
    assert queue.run("select ev_new from pgq.get_queue_info('q')") == [{"ev_new": 0}]
    queue.wait(50)  # so its ticker lets the event wait for an idle tick: late, but not dead
    assert queue.troubles() == {}
    assert queue.stats()["depth"] == 1
    assert queue.consumer("app")["pending_events"] == 1
    assert queue.metrics()[("pgque.message.sent_total", None)] == 1
    queue.wait(80)
    assert queue.troubles() == {"ticker_running": "critical"}

    assert queue.tick() is not None
    assert queue.consumer("app").items() >= {"pending_events": 1}.items()
    assert queue.consumer("app")["lag"] >= timedelta(seconds=130)
    assert queue.consume("app") == 1
    assert queue.consumer("app").items() >= {"pending_events": 0, "lag": ZERO}.items()
    assert queue.stats()["depth"] == 0
    assert queue.metrics()[("pgque.queue.unticked_events", None)] == 0
    assert queue.troubles() == {}


def test_a_first_event_that_is_left_waiting_gets_no_younger_with_idle_ticks(queue: PgqQueue) -> None:
    queue.subscribe("app")
    queue.send_and_tick(1)
    for _ in range(10):
        queue.wait(1000)
        assert queue.tick() is not None
    assert queue.consumer("app")["pending_events"] == 1
    assert queue.consumer("app")["lag"] >= timedelta(seconds=10_000)
    assert queue.troubles() == {"consumer_lag:app": "critical", "consumer_stuck:app": "warning"}


def test_a_first_event_that_nobody_reads_warns(queue: PgqQueue) -> None:
    queue.send_and_tick(1)
    assert queue.troubles() == {"no_consumers": "warning"}


def test_the_rate_of_a_dead_ticker_is_unknown_where_pgq_shows_the_last_one(queue: PgqQueue) -> None:
    queue.subscribe("app")
    queue.send_and_tick(10)
    queue.wait(10)
    queue.send_and_tick(500)
    assert 10 < queue.stats()["events_per_sec"] <= 50
    queue.wait(3600)

    (told,) = queue.run("select ev_per_sec from pgq.get_queue_info('q')")
    assert told["ev_per_sec"] > 1  # an hour after the ticker died
    assert queue.stats()["events_per_sec"] is None
    assert ("pgque.queue.throughput", None) not in queue.metrics()
    assert queue.troubles()["ticker_running"] == "critical"


def test_an_open_batch_is_in_flight(queue: PgqQueue) -> None:
    queue.subscribe("app")
    queue.send_and_tick(7)
    batch_id = queue.receive("app")[0]["batch_id"]
    queue.wait(30)

    assert queue.consumer("app").items() >= {"batch_active": True, "batch_id": batch_id}.items()
    (row,) = queue.ask("in_flight('q')")
    assert row.items() >= {"consumer_name": "app", "batch_id": batch_id, "estimated_events": 7}.items()
    assert timedelta(seconds=30) <= row["batch_age"] < timedelta(seconds=90)
    assert queue.consumer("app")["pending_events"] == 7


def test_retries_wait_for_their_consumer_and_are_overdue_without_pgqd(queue: PgqQueue) -> None:
    queue.subscribe("app")
    queue.subscribe("other")
    queue.send_and_tick(20)
    for consumer, failed in (("app", 12), ("other", 3)):
        messages = queue.receive(consumer)
        for message in messages[:failed]:
            queue.nack(consumer, message)
        queue.finish(messages)

    assert queue.metrics()[("pgque.message.retry_waiting", None)] == 15
    assert "retry_overdue" not in queue.troubles()
    queue.wait(4000)
    assert queue.troubles()["retry_overdue"] == "warning"
    assert queue.detail("retry_overdue").startswith("15 retries overdue")
    assert queue.detail("retry_overdue").endswith("is pgqd running?")
    assert queue.bring_back_retries() == 15
    assert queue.metrics()[("pgque.message.retry_waiting", None)] == 0
    assert "retry_overdue" not in queue.troubles()


def test_dead_letters_are_unknown_to_pgq_and_so_to_its_pack(queue: PgqQueue) -> None:
    queue.subscribe("app")
    queue.send_and_tick(1)

    assert queue.stats()["dlq_count"] is None
    assert ("pgque.message.dead_lettered", None) not in queue.metrics()
    assert "dlq_health" not in queue.health()
    buckets = queue.ask("error_rate('q', '10 minutes', '1 minute')")
    assert len(buckets) == 11
    assert {(row["retries"], row["dead_letters"]) for row in buckets} == {(None, None)}


def test_a_rotation_that_is_left_half_done_asks_for_pgqd(queue: PgqQueue) -> None:
    queue.configure("rotation_period", "10 seconds")
    queue.wait(11)
    queue.run("select pgq.maint_rotate_tables_step1('q')")
    queue.wait(3600)
    assert queue.troubles()["rotation_health"] == "warning"
    assert queue.detail("rotation_health").endswith("step 2 is outstanding, is pgqd running?")
    queue.run("select pgq.maint_rotate_tables_step2()")
    queue.run("select pgq.maint_rotate_tables_step1('q')")
    assert queue.health()["rotation_health"] == "ok"


def test_a_cooperative_group_is_one_consumer_with_all_that_its_members_hold(queue: PgqQueue) -> None:
    for name in ("group", "group.a", "group.b", "group.idle", "alone"):
        queue.subscribe(name)
    queue.send_and_tick(600)
    queue.send_and_tick(300)
    queue.send_and_tick(100)
    # As pgq_coop lays it: all have the group's sub_id; members have ticks while they hold a batch.
    ticks = [row["tick_id"] for row in queue.run("select tick_id from pgq.tick order by tick_id")]
    queue.run(
        """
        update pgq.subscription s
        set sub_last_tick = m.last_tick, sub_next_tick = m.next_tick,
            sub_batch = case when m.next_tick is not null then nextval('pgq.batch_id_seq') end,
            sub_id = (select sub_id from pgq.subscription join pgq.consumer on co_id = sub_consumer
                      where co_name = 'group')
        from pgq.consumer c
        join (values ('group', %s::int8, null::int8), ('group.a', %s, %s), ('group.b', %s, %s),
            ('group.idle', null, null)) m(name, last_tick, next_tick) on m.name = c.co_name
        where c.co_id = s.sub_consumer
        """,
        *(ticks[2], ticks[0], ticks[1], ticks[1], ticks[2]),
    )
    queue.consume("alone")
    queue.wait(50)

    assert [row["consumer_name"] for row in queue.ask("consumer_stats()")] == ["alone", "group"]
    assert queue.consumer("group").items() >= {"pending_events": 1000, "batch_active": True}.items()
    assert queue.consumer("group")["lag"] >= timedelta(seconds=50)
    assert queue.stats().items() >= {"depth": 1000, "consumers": 2}.items()
    assert queue.metrics()[("pgque.consumer.open_batch_events", "group")] == 900
    assert {row["consumer_name"] for row in queue.ask("in_flight('q')")} == {"group.a", "group.b"}
    assert [(row["consumer_name"], row["pending_events"]) for row in queue.ask("exact_backlog('q')")] == [
        ("alone", 0),
        ("group", 1000),
    ]
    assert queue.troubles() == {}
