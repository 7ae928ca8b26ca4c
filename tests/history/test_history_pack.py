"""What the pipeline publishes, as the metrics that the service makes of it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import psycopg
import pytest

from pgque_exporter.contract import PollResult
from pgque_exporter.exposition import Format, SampleWriter, page_parts
from pgque_exporter.overview import queues
from tests.exporter.harness import CATALOGUE, ToyPack, poll
from tests.support.database import Database
from tests.support.repository import ROOT

INSTALL = (ROOT / "sql/history/install.sql").read_text("utf-8")
UNINSTALL = (ROOT / "sql/history/uninstall.sql").read_text("utf-8")
SUBJECT = ("pgque", "shop", "orders", "app")

Series = dict[tuple[str, frozenset[tuple[str, str]]], float]


@pytest.fixture
def history(database: Database) -> psycopg.Connection[Any]:
    """A database with the tables, empty; a login role that may only monitor is `watcher`."""
    connection = database.connect()
    connection.execute(INSTALL.encode())
    return connection


def publish(connection: psycopg.Connection[Any], table: str, *rows: tuple[Any, ...], **options: Any) -> None:
    now = datetime.now(UTC)
    given = {"as_of": now, "valid_until": now + timedelta(hours=1), "time_zone": "UTC", **options}
    connection.execute(
        "insert into queue_history.publication (table_name, as_of, valid_until, time_zone)"
        " values (%s, %s, %s, %s) on conflict (table_name) do update set as_of = excluded.as_of,"
        " valid_until = excluded.valid_until, time_zone = excluded.time_zone",
        (table, given["as_of"], given["valid_until"], given["time_zone"]),
    )
    for row in rows:
        marks = ", ".join(["%s"] * len(row))
        connection.execute(f"insert into queue_history.{table} values ({marks})".encode(), row)


def seen(result: PollResult) -> Series:
    return {
        (family.metric.name, frozenset(series.labels)): series.value
        for family in result.snapshot.families
        for series in family.series
    }


def key(name: str, *, engine: str = "pgque", database: str = "shop", **labels: str) -> Any:
    return name, frozenset({"engine": engine, "database": database, **labels}.items())


def test_the_band_of_this_hour_is_shown_in_the_time_zone_of_the_run(
    history: psycopg.Connection[Any], database: Database
) -> None:
    zone = "Asia/Kathmandu"  # of all zones one that isn't off by whole hours
    publish(history, "baseline", time_zone=zone)
    for hour in range(168):
        row = (*SUBJECT, "pgque.consumer.lag_seconds", hour, 10 + hour, hour, 20 + hour, 8)
        publish(history, "baseline", row, time_zone=zone)
    before = datetime.now(ZoneInfo(zone))
    found = seen(poll(database.dsn(), history=True))
    after = datetime.now(ZoneInfo(zone))
    labels = {"queue": "orders", "consumer": "app", "metric": "pgque.consumer.lag_seconds"}
    median = found[key("pgque.baseline.median", **labels)]
    assert median in {10 + when.weekday() * 24 + when.hour for when in (before, after)}
    assert found[key("pgque.baseline.low", **labels)] == median - 10
    assert found[key("pgque.baseline.high", **labels)] == median + 10


def test_objectives_and_forecasts_are_about_the_databases_they_name(
    history: psycopg.Connection[Any], database: Database
) -> None:
    publish(history, "slo", ("freshness", 720, *SUBJECT, 0.99, 0.995, 0.5, 0.5))
    publish(history, "slo", ("freshness", 720, "pgque", "billing", "", "", 0.9, 0.8, 2.0, -1.0))
    as_of = datetime.now(UTC) - timedelta(seconds=600)
    publish(history, "forecast", (*SUBJECT, as_of, 3600, 1800, None))
    publish(history, "forecast", ("pgque", "billing", "q", "late", as_of, 60, 0, 90))
    result = poll(database.dsn(), history=True)
    found = seen(result)
    slo = {"objective": "freshness", "window": "720h"}
    one = {**slo, "queue": "orders", "consumer": "app"}
    assert found[key("pgque.slo.attainment_ratio", **one)] == 0.995
    assert found[key("pgque.slo.target_ratio", **one)] == 0.99
    assert found[key("pgque.slo.burn_rate", **one)] == 0.5
    assert found[key("pgque.slo.budget_left_ratio", database="billing", **slo)] == -1
    blocked = "pgque.forecast.rotation_blocked_in_seconds"
    left = found[key(blocked, queue="orders", consumer="app")]
    assert 2900 < left <= 3000, "ten minutes have passed since"
    assert found[key(blocked, database="billing", queue="q", consumer="late")] == 0, "never below 0"
    latest = "pgque.forecast.rotation_blocked_in_high_seconds"
    assert key(latest, queue="orders", consumer="app") not in found, "unknown is absent"
    assert not any(result.snapshot.dropped.values())
    assert queues(result.snapshot) == (), "these are no queues of this database"
    page = b"".join(page_parts(CATALOGUE, [SampleWriter().samples(result.snapshot)], Format.TEXT))
    assert b'pgque_slo_burn_rate{engine="pgque",database="billing",objective="freshness"' in page


def test_what_is_too_old_is_not_shown_and_how_old_it_is_always(
    history: psycopg.Connection[Any], database: Database
) -> None:
    old = datetime.now(UTC) - timedelta(days=30)
    for table, row in (
        ("baseline", (*SUBJECT, "m", datetime.now(UTC).weekday() * 24, 1, 1, 1, 1)),
        ("slo", ("freshness", 720, *SUBJECT, 0.99, 0.995, 0.5, 0.5)),
        ("forecast", (*SUBJECT, old, 3600, 1800, None)),
    ):
        publish(history, table, row, as_of=old, valid_until=old + timedelta(days=1))
    found = seen(poll(database.dsn(), history=True))
    assert {name for name, _ in found} == {"pgque.history.as_of_timestamp_seconds"}
    ours = {"engine": "history", "table": "slo"}
    assert found[key("pgque.history.as_of_timestamp_seconds", **ours)] == pytest.approx(old.timestamp())


def test_a_database_speaks_for_others_only_where_it_may(
    history: psycopg.Connection[Any], database: Database
) -> None:
    publish(history, "slo", ("freshness", 720, *SUBJECT, 0.99, 0.995, 0.5, 0.5))
    result = poll(database.dsn())
    assert seen(result) == {}
    assert result.snapshot.dropped["unknown_metric"] == 5


def test_a_database_says_nothing_beside_what_history_says_of_it(database: Database) -> None:
    """Else a series would be on the page twice, with two values."""
    toy = ToyPack(database.connect())
    toy.add("pgque.slo.burn_rate", 0, objective="freshness", window="1h")
    assert seen(poll(database.dsn())) == {}
    assert seen(poll(database.dsn(), history=True)) != {}


def test_history_can_not_pose_as_a_queue_of_another_database(
    history: psycopg.Connection[Any], database: Database
) -> None:
    history.execute(
        "create or replace function queue_history.otel_metrics()"
        " returns table (metric_name text, metric_type text, value double precision, labels jsonb)"
        " language sql stable as $$ select 'pgque.queue.depth', 'gauge', 1.0::double precision,"
        """ '{"engine": "pgque", "database": "shop", "queue": "orders"}'::jsonb $$"""
    )
    result = poll(database.dsn(), history=True)
    assert (seen(result), result.snapshot.dropped["invalid_label"]) == ({}, 1)


def test_installing_again_keeps_what_was_published_and_removing_leaves_nothing(
    history: psycopg.Connection[Any],
) -> None:
    publish(history, "slo", ("freshness", 720, *SUBJECT, 0.99, 0.995, 0.5, 0.5))
    history.execute(INSTALL.encode())
    assert history.execute("select count(*) from queue_history.slo").fetchone() == (1,)
    for _ in range(2):
        history.execute(UNINSTALL.encode())
        assert history.execute("select to_regnamespace('queue_history')").fetchone() == (None,)


def test_a_schema_of_somebody_else_is_neither_moved_into_nor_removed(database: Database) -> None:
    """What he had put there would stay his, and say what is normal for every database."""
    db = database.connect()
    db.execute("create role squatter")
    try:
        db.execute(
            "create schema queue_history authorization squatter;"
            " create table queue_history.slo (precious int); alter table queue_history.slo owner to squatter"
        )
        for script, refusal in ((INSTALL, "belongs to squatter"), (UNINSTALL, "is not what")):
            with pytest.raises(psycopg.Error, match=refusal):
                db.execute(script.encode())
            db.execute("rollback")
            assert db.execute("select count(precious) from queue_history.slo").fetchone() == (0,)
    finally:
        db.execute("rollback")
        db.execute("drop owned by squatter cascade; drop role squatter")
    db.execute(INSTALL.encode())


def test_who_monitors_may_read_and_nobody_else_may(history: psycopg.Connection[Any]) -> None:
    rights = history.execute(
        """
        select p.proname, has_function_privilege('pgque_monitor', p.oid, 'execute'),
            exists (select from aclexplode(p.proacl) as a where a.grantee = 0)
        from pg_proc p where p.pronamespace = 'queue_history'::regnamespace
        """
    ).fetchall()
    assert len(rights) == 4
    assert {row[1:] for row in rights} == {(True, False)}
    history.execute("set role pgque_monitor")
    history.execute("select * from queue_history.otel_metrics()")
    for statement in ("delete from queue_history.slo", "create table queue_history.x ()"):
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            history.execute(statement.encode())


def test_a_poll_reads_one_hour_of_the_week(history: psycopg.Connection[Any]) -> None:
    publish(history, "baseline")
    history.execute(
        "insert into queue_history.baseline select 'pgque', 'shop', 'q' || q, '', 'm', h, 1, 0, 2, 4"
        " from generate_series(1, 200) as q, generate_series(0, 167) as h"
    )
    history.execute("analyze queue_history.baseline")
    read = "select coalesce(sum(idx_tup_read), 0) from pg_stat_user_indexes where relname = 'baseline'"
    scans = "select seq_scan from pg_stat_user_tables where relname = 'baseline'"
    flush = "select pg_stat_force_next_flush()"
    history.execute(flush)
    before = [history.execute(query).fetchone() for query in (read, scans)]
    rows = history.execute("select count(*) from queue_history.otel_metrics()").fetchone()
    history.execute(flush)
    after = [history.execute(query).fetchone() for query in (read, scans)]
    assert rows == (601,)
    assert after[1] == before[1], "never the whole table"
    assert after[0] is not None
    assert before[0] is not None
    assert after[0][0] - before[0][0] == 200
