"""Installing the instrumentation and removing it, and who may do what with it."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest

from tests.support.database import ENGINE_INSTALL, INSTRUMENTATION_INSTALL, PACK_INSTALL, Database
from tests.support.instrumentation import ack, counts, failures, instrumentation, roll_up, take
from tests.support.observed import Connection, Queue, one

UNINSTALL = INSTRUMENTATION_INSTALL.with_name("uninstall.sql")



def test_installing_again_keeps_what_was_counted_and_counts_on(
    counted: Queue, pack_database: Database
) -> None:
    ack(counted, take(counted, 3))
    roll_up(counted.db)
    ack(counted, take(counted, 4))
    before = instrumentation(counted.db)
    messages = take(counted, 5)
    for path in (ENGINE_INSTALL, PACK_INSTALL, INSTRUMENTATION_INSTALL, ENGINE_INSTALL):
        pack_database.install(path)
        assert instrumentation(counted.db) == before
    ack(counted, messages)
    assert counts(counted.db) == {("q", "app", "acked"): 12}


def test_installing_again_waits_for_nobody(counted: Queue, pack_database: Database) -> None:
    messages = take(counted, 3)
    with psycopg.connect(pack_database.dsn()) as consumer:
        consumer.execute("select pgque.ack(%s)", (messages[0]["batch_id"],))
        with psycopg.connect(pack_database.dsn(), autocommit=True) as installer:
            installer.execute("set statement_timeout = '20 s'; set lock_timeout = '20 s'")
            installer.execute(INSTRUMENTATION_INSTALL.read_bytes())


def test_it_needs_the_pack(engine_database: Database) -> None:
    with pytest.raises(psycopg.Error, match="the observability pack of PgQue is not installed"):
        engine_database.install(INSTRUMENTATION_INSTALL)


def test_the_pack_does_not_leave_it_behind(counted: Queue, pack_database: Database) -> None:
    with pytest.raises(psycopg.Error, match="the instrumentation of PgQue is still installed"):
        pack_database.install(PACK_INSTALL.with_name("uninstall.sql"))
    pack_database.install(UNINSTALL)
    pack_database.install(PACK_INSTALL.with_name("uninstall.sql"))
    assert counted.consume("app") == 0


def test_without_it_its_metrics_are_absent_and_acked_is_the_position(counted: Queue) -> None:
    ack(counted, take(counted, 3))
    counted.db.execute(UNINSTALL.read_bytes())
    rows = counted.db.execute("select distinct metric_name from pgque.otel_metrics()").fetchall()
    names = {row["metric_name"] for row in rows}
    assert not {name for name in names if "nacked" in name or "batch.size" in name or "instrument" in name}
    assert counted.metrics()["pgque.message.acked_total", "app"] == 3
    assert {row["retries"] for row in failures(counted)} == {None}


@pytest.fixture
def as_monitor(counted: Queue) -> Iterator[Queue]:
    ack(counted, take(counted, 3))
    roll_up(counted.db)
    ack(counted, take(counted, 3))
    counted.db.execute("set role pgque_monitor")
    yield counted
    counted.db.execute("reset role")


def test_the_monitor_reads_all_of_it(as_monitor: Queue) -> None:
    seen = instrumentation(as_monitor.db)
    assert counts(as_monitor.db) == {("q", "app", "acked"): 6}
    assert failures(as_monitor)
    assert one(as_monitor.db, "select * from pgque.latency_percentiles('q', 'app', '1 hour')")["p50"]
    as_monitor.db.execute("reset role")
    assert instrumentation(as_monitor.db) == seen


@pytest.mark.parametrize("role", ["pgque_monitor", "somebody"])
def test_neither_the_monitor_nor_the_public_can_change_anything(as_monitor: Queue, role: str) -> None:
    db = as_monitor.db
    db.execute("reset role")
    objects = db.execute(
        "select p.oid::regprocedure::text as name, p.prorettype = 'trigger'::regtype as is_trigger"
        " from pg_proc p where p.pronamespace = 'pgque'::regnamespace and p.proname like 'instrument%'"
    ).fetchall()
    assert len(objects) > 8
    with db.transaction(force_rollback=True):
        if role == "somebody":
            db.execute("create role somebody")
        for table in ("log", "total", "history", "state"):
            row = one(
                db,
                "select has_table_privilege(%s, %s, 'insert, update, delete, truncate, trigger') as writes",
                role, f"pgque.instrumentation_{table}",
            )
            assert row == {"writes": False}, table
        for row in objects:
            may = one(db, "select has_function_privilege(%s, %s::regprocedure, 'execute') as may",
                      role, row["name"])["may"]
            reads = row["name"].split("(")[0].endswith(("_bounds", "_bucket", "_metrics", "_rows"))
            assert may == (reads and role == "pgque_monitor"), row["name"]


def test_nothing_of_a_payload_is_logged(counted: Queue) -> None:
    columns = counted.db.execute(
        "select distinct attname as name, atttypid::regtype::text as type from pg_attribute"
        " where attnum > 0 and attrelid in"
        " (select oid from pg_class where relname like 'instrumentation%' and relkind = 'r')"
    ).fetchall()
    assert {row["name"] for row in columns if row["type"] == "text"} == {"what"}


def test_its_trigger_functions_can_not_be_led_astray(instrumented: Connection) -> None:
    rows = instrumented.execute(
        "select p.proname as name,"
        " coalesce(p.proconfig @> array['search_path=pg_catalog, pg_temp'], false) as pinned"
        " from pg_proc p where p.pronamespace = 'pgque'::regnamespace"
        " and p.prosecdef and p.proname like 'instrument%'"
    ).fetchall()
    assert len(rows) == 6
    assert all(row["pinned"] for row in rows), rows


def test_a_readers_search_path_can_not_lead_its_figures_astray(counted: Queue) -> None:
    counted.run(
        "create function public.width_bucket(bigint, bigint[]) returns int4 language plpgsql as"
        " $$ begin raise exception 'ran with the rights of %', current_user; end $$"
    )
    counted.send_and_tick(3)
    counted.consume("app")
    sizes = counted.run(
        "select value from {engine}.instrumented_metrics() where metric_name = 'pgque.batch.size_sum'"
    )
    assert [row["value"] for row in sizes] == [3]
