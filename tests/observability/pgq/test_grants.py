"""Least privilege beside PgQ, which itself lets everybody read much."""

from __future__ import annotations

import pytest

from tests.observability.test_grants import (  # noqa: F401
    as_monitor,
    refused,
    test_monitor_runs_the_contract,
    test_monitor_sees_the_same_as_the_owner,
    test_public_can_do_nothing,
    test_queues_made_after_the_install_are_seen_too,
    test_unreadable_sequence_is_unknown_and_costs_nobody_else,
)
from tests.support.database import Database
from tests.support.pgq import PACK_INSTALL, PgqQueue


@pytest.mark.parametrize(
    "statement",
    [
        "select ev_data from pgq.retry_queue",
        "select * from pgq.event_template",
        "select ev_data from {events}",
        "select ev_data from {events}_0",
        "select pgq.next_batch('q', 'app')",
        "select * from pgq.get_batch_events(1)",
        "select pgq.finish_batch(1)",
        "select pgq.event_retry(1, 1, 60)",
        "select pgq.register_consumer('q', 'other')",
        "select pgq.insert_event('q', 'type', 'data')",
        "select pgq.ticker('q')",
        "select pgq.force_tick('q')",
        "select pgq.create_queue('other')",
        "select pgq.drop_queue('q', true)",
        "select pgq.maint_retry_events()",
        "update pgq.queue set queue_ticker_paused = true",
        "delete from pgq.tick",
        "select nextval('{sequence}')",
        "create table pgq.mine (a int)",
        "create table pgq_observability.mine (a int)",
        "update pgq_observability.health_threshold set lag_critical = '1 year'",
    ],
)
def test_monitor_is_denied_everything_else(as_monitor: PgqQueue, statement: str) -> None:  # noqa: F811
    refused(as_monitor, statement)


def test_a_site_that_took_back_pgqs_open_grants_is_monitored_all_the_same(
    queue: PgqQueue, pgq_database: Database
) -> None:
    tables = "pgq.queue, pgq.tick, pgq.subscription, pgq.consumer"
    queue.run("revoke usage on schema pgq from public")
    queue.run(f"revoke all on {tables} from public")
    queue.run("select pgq.create_queue('later')")
    queue.run("revoke all on all sequences in schema pgq from public")
    queue.subscribe("app")
    queue.send_and_tick(3)

    queue.run("set role pgque_monitor")
    sent = [row for row in queue.ask("otel_metrics()") if row["metric_name"] == "pgque.message.sent_total"]
    assert {row["labels"]["queue"]: row["value"] for row in sent} == {"q": 3, "later": 0}
    assert queue.consumer("app")["pending_events"] == 3


def test_installing_again_grants_a_sequence_that_could_not_be_read(
    queue: PgqQueue, pgq_database: Database
) -> None:
    queue.run("revoke all on sequence pgq.event_1_id_seq from pgque_monitor, public")
    pgq_database.install(PACK_INSTALL)
    queue.run("set role pgque_monitor")
    assert queue.metrics()[("pgque.message.sent_total", None)] == 0


def test_pgqs_administrators_change_thresholds_and_its_readers_do_not(queue: PgqQueue) -> None:
    change = "insert into {pack}.health_threshold (queue_name, lag_critical) values ('q', '1 hour')"
    for role in ("pgq_reader", "pgq_writer"):
        queue.run(f"set role {role}")
        refused(queue, change)
        queue.run("reset role")
    queue.run("set role pgq_admin")
    queue.run(change)
    queue.run("reset role")
    (row,) = queue.run("select count(*) as own from {pack}.health_threshold where queue_name = 'q'")
    assert row == {"own": 1}
