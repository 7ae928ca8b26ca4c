"""Installing, upgrading and removing the pack: all of it or nothing, and never what is somebody else's."""

from __future__ import annotations

import re
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psycopg
import pytest

from pgque_exporter import __version__
from pgque_exporter.demo.cluster import Cluster
from tests.support.catalog import catalog_of
from tests.support.database import (
    ENGINE_INSTALL,
    PACK_INSTALL,
    Connection,
    Database,
    new_database,
    server_programs,
    wait_until,
)
from tests.support.observed import CONTRACT
from tests.support.queue import consume, create_queue, receive, rows, send, tick, value

UNINSTALL = PACK_INSTALL.with_name("uninstall.sql")
PACK = PACK_INSTALL.read_text("utf-8")


def of_version(version: str) -> str:
    """The pack as if it were of another version."""
    return PACK.replace(__version__, version)


def replaced(script: str, function: str, text: str) -> str:
    """The script with another definition, and other grants, of one function."""
    pattern = rf"create or replace function {re.escape(function)}\(.*?pgque_monitor;"
    changed, count = re.subn(pattern, lambda _: text, script, count=1, flags=re.DOTALL)
    assert count == 1
    return changed


def previous_version() -> str:
    """What a version before this one could have been: other results, other arguments, other helpers."""
    script = of_version("0.0.9")
    script = replaced(
        script,
        "pgque.queue_stats",
        """
        create function pgque.queue_stats() returns table (queue_name text, depth bigint, goes bool)
        language sql stable set search_path = pg_catalog, pg_temp
        as $$ select q.queue_name, 1::bigint, true from pgque.queue q $$;
        """,
    )
    script = replaced(
        script,
        "pgque.throughput",
        """
        create function pgque.throughput(queue text, wanted_period interval default '1 hour') returns bigint
        language sql stable as $$ select 1::bigint $$;
        """,
    )
    script = script.replace("throughput(text, interval, interval)", "throughput(text, interval)")
    script = script.replace(
        "create type pgque.observed_queue as (",
        """
        create type pgque.old_type as (a int);
        comment on type pgque.old_type is 'pgque_exporter pack 0.0.9';
        create function pgque.old_helper(pgque.old_type[]) returns int language sql as 'select 1';
        comment on function pgque.old_helper(pgque.old_type[]) is 'pgque_exporter pack 0.0.9';
        create type pgque.observed_queue as (""",
    )
    return script.replace(
        "commit;",
        """
        create function pgque.old_trigger() returns trigger language plpgsql as 'begin return new; end';
        comment on function pgque.old_trigger() is 'pgque_exporter pack 0.0.9';
        create trigger old_row before insert on pgque.health_threshold
            for each row execute function pgque.old_trigger();
        commit;""",
    )


def make_work(db: Connection) -> None:
    """A queue with an open batch, events behind it and a threshold of its own."""
    create_queue(db, "orders", "app")
    send(db, "orders", "one", "two")
    tick(db, "orders")
    assert len(receive(db, "orders", "app")) == 2
    send(db, "orders", "three")
    db.execute("select pgque.set_queue_config('orders', 'max_retries', '2')")


def engine_rows(db: Connection) -> dict[str, list[tuple[object, ...]]]:
    """Every row of the engine's tables, and which version of it."""
    tables = rows(
        db,
        "select oid::regclass::text from pg_class where relnamespace = 'pgque'::regnamespace"
        " and relkind = 'r' and relname <> 'health_threshold' order by 1",
    )
    columns = "t::text, t.xmin::text, t.ctid::text"
    return {table: rows(db, f"select {columns} from {table} t") for (table,) in tables}


@pytest.fixture
def db(engine_database: Database) -> Connection:
    return engine_database.connect()


@pytest.fixture
def user(db: Connection) -> str:
    """A role that is granted things, there on every server for good: dropping it would need them all back."""
    db.execute("do $$ begin create role reporting; exception when duplicate_object then end $$")
    return "reporting"


# --- upgrade --------------------------------------------------------------------------------------


def test_an_upgrade_ends_where_a_fresh_install_does_and_keeps_what_users_have(
    cluster: Cluster, engine_template: str, db: Connection, user: str
) -> None:
    def used(connection: Connection, throughput: str) -> None:
        """What users do with a pack."""
        connection.execute(
            f"""
            grant usage on schema pgque to {user};
            grant execute on function pgque.queue_stats() to {user};
            grant execute on function pgque.{throughput} to {user} with grant option;
            grant execute on function pgque.consumer_stats() to {user};
            create view lag as select queue_name, lag from pgque.consumer_stats();
            create view metrics as select * from pgque.otel_metrics();
            update pgque.health_threshold set lag_warning = '7 minutes' where queue_name = '*';
            insert into pgque.health_threshold (queue_name, stuck_after) values ('orders', '3 hours');
            """
        )

    make_work(db)
    db.execute(previous_version())
    used(db, "throughput(text, interval)")
    before, thresholds = engine_rows(db), rows(db, "select * from pgque.health_threshold")
    assert value(db, "select goes from pgque.queue_stats()") is True

    db.execute(PACK)

    assert value(db, "select pack_version from pgque.observability_info()") == __version__
    assert engine_rows(db) == before
    assert rows(db, "select * from pgque.health_threshold") == thresholds
    assert value(db, "select depth from pgque.queue_stats()") == 3
    assert rows(db, "select queue_name from lag") == [("orders",)]
    assert value(db, "select value from metrics where metric_name = 'pgque.queue.depth'") == 3
    with new_database(cluster, template=engine_template) as fresh:
        other = fresh.connect()
        make_work(other)
        other.execute(PACK)
        used(other, "throughput(text, interval, interval)")
        assert catalog_of(db) == catalog_of(other)


def test_installing_again_changes_nothing(db: Connection, user: str) -> None:
    make_work(db)
    db.execute(PACK)
    db.execute(f"grant execute on function pgque.otel_metrics() to {user} with grant option")
    before = catalog_of(db), engine_rows(db)
    db.execute(PACK)
    assert (catalog_of(db), engine_rows(db)) == before


@pytest.mark.parametrize(
    ("using", "changed"),
    [
        ("pgque.old_helper(pgque.old_type[])", "function pgque.old_helper(pgque.old_type[])"),
        ("pgque.otel_metrics()", "type pgque.observed_queue"),
    ],
)
def test_what_an_older_version_had_and_users_need_is_not_taken_away(
    db: Connection, using: str, changed: str
) -> None:
    script = previous_version().replace("    queue_id int4,\n", "    queue_id int4,\n    former int4,\n", 1)
    *_, mark = re.findall(r"comment on type pgque.observed_queue is '(.*)';", script)
    db.execute(script.replace(mark, "pgque_exporter pack 0.0.9 0123456789ab"))
    db.execute(f"create view mine as select * from {using.replace('pgque.old_type[]', 'null')}")
    before = catalog_of(db)
    with pytest.raises(psycopg.errors.DependentObjectsStillExist) as refusal:
        db.execute(PACK)
    assert refusal.value.diag.message_primary == (
        f"{changed} changes or goes with this version, but is in use:"
        f" view public.mine depends on function {using}"
    )
    assert refusal.value.diag.message_hint == "Drop what uses it, then install again."
    db.execute("rollback")
    assert catalog_of(db) == before


def test_the_owner_stays_the_owner_when_somebody_else_upgrades(
    cluster: Cluster, db: Connection, engine_database: Database
) -> None:
    name = engine_database.name
    role = f"owner_of_{name}"
    db.execute("drop schema pgque cascade")
    db.execute(f"create role {role} login; alter database {name} owner to {role}")
    try:
        owner = engine_database.connect(user=role)
        owner.execute(ENGINE_INSTALL.read_text("utf-8"))
        owner.execute(previous_version())
        db.execute(PACK)
        assert rows(
            db,
            "select p.oid::regprocedure from pg_proc p where pronamespace = 'pgque'::regnamespace"
            f" and proowner <> '{role}'::regrole and proname in ('queue_stats', 'observed', 'throughput')",
        ) == []
        owner.execute(UNINSTALL.read_text("utf-8"))
    finally:
        db.execute(f"alter database {name} owner to postgres; drop owned by {role}; drop role {role}")


@pytest.mark.parametrize(
    ("installed", "ours", "newer"),
    [
        ("0.10.0", "0.9.0", True),
        ("1.0.0", "0.99.99", True),
        ("0.9.1", "0.9", True),
        ("0.9.0", "0.10.0", False),
        ("0.9.0", "0.9.0", False),
        ("0.9.0rc1", "0.9.0", False),
    ],
)
def test_a_newer_version_is_never_replaced_by_an_older(
    db: Connection, installed: str, ours: str, newer: bool
) -> None:
    db.execute(of_version(installed))
    before = catalog_of(db)
    if not newer:
        db.execute(of_version(ours))
        assert value(db, "select pack_version from pgque.observability_info()") == ours
        return
    with pytest.raises(psycopg.errors.ObjectNotInPrerequisiteState) as refusal:
        db.execute(of_version(ours))
    assert refusal.value.diag.message_primary == (
        f"schema pgque holds version {installed} of the pack, newer than this one, {ours}"
    )
    assert f"pgque-exporter {installed} or newer" in str(refusal.value.diag.message_hint)
    db.execute("rollback")
    assert catalog_of(db) == before


@pytest.mark.servers("pg18")
def test_a_restored_dump_is_still_known_as_ours(cluster: Cluster, pack_database: Database) -> None:
    make_work(pack_database.connect())
    programs = server_programs("pg18")
    dumping = subprocess.run([programs / "pg_dump", pack_database.dsn()], capture_output=True, check=True)
    with new_database(cluster) as restored:
        psql: list[str | Path] = [programs / "psql", "-X", "-q", "-v", "ON_ERROR_STOP=1", restored.dsn()]
        subprocess.run(psql, input=dumping.stdout, capture_output=True, check=True)
        db = restored.connect()
        db.execute(PACK)
        db.execute(UNINSTALL.read_text("utf-8"))
        assert value(db, "select to_regprocedure('pgque.otel_metrics()')") is None
        assert value(db, "select to_regclass('pgque.health_threshold')") is None
        assert consume(db, "orders", "app") == ["one", "two"]


# --- what is there from elsewhere -----------------------------------------------------------------


@pytest.mark.parametrize(
    ("statement", "told"),
    [
        (
            "create function pgque.stuck_consumers(interval) returns int language sql as 'select 1'",
            "function pgque.stuck_consumers(interval), returning integer,",
        ),
        (
            "create function pgque.require_queue(queue text) returns int4 language sql as 'select 1'",
            "function pgque.require_queue(text), returning integer,",
        ),
        ("create table pgque.health_threshold (queue_name text)", "table pgque.health_threshold"),
        ("create view pgque.health_threshold as select 1 as one", "view pgque.health_threshold"),
        ("create type pgque.health_threshold as enum ('high')", "type pgque.health_threshold"),
        ("create type pgque.observed_queue as (a int)", "type pgque.observed_queue"),
        ("create table pgque.observed_consumer (a int)", "table pgque.observed_consumer"),
    ],
)
@pytest.mark.parametrize("earlier", ["", "upgrade"])
def test_what_is_from_elsewhere_is_named_and_left_alone(
    db: Connection, statement: str, told: str, earlier: str
) -> None:
    if earlier:
        # An upgrade may need a name for the first time.
        db.execute(of_version("0.0.9"))
        db.execute("drop function pgque.stuck_consumers(interval), pgque.require_queue(text)")
        db.execute("drop table pgque.health_threshold")
        db.execute("drop type pgque.observed_queue, pgque.observed_consumer cascade")
    db.execute(statement)
    before = catalog_of(db)
    with pytest.raises(psycopg.errors.Error) as refusal:
        db.execute(PACK)
    assert refusal.value.diag.message_primary == f"there is a {told} that is not part of the pack"
    assert "Drop it, or give it another name" in str(refusal.value.diag.message_hint)
    db.execute("rollback")
    assert catalog_of(db) == before


def test_other_functions_of_a_name_are_none_of_our_business(db: Connection) -> None:
    db.execute("create function pgque.in_flight(int) returns int language sql as 'select 1'")
    before = catalog_of(db)
    db.execute(PACK)
    db.execute(PACK)
    db.execute(UNINSTALL.read_text("utf-8"))
    assert catalog_of(db) == before


# --- the engine -----------------------------------------------------------------------------------


@pytest.mark.servers("pg18")
def test_an_engine_without_a_column_that_the_pack_reads_is_too_old(db: Connection) -> None:
    """Of every column of the engine: without it the install is refused, or all of the contract works."""
    in_one_transaction = re.sub(r"^(begin .*|commit);$", "", PACK, flags=re.MULTILINE)
    create_queue(db, "q", "app")
    refused = {}
    columns = rows(
        db,
        "select attrelid::regclass::text, attname from pg_attribute where attrelid in"
        " (select oid from pg_class where relnamespace = 'pgque'::regnamespace and relkind = 'r'"
        "  and relname !~ '^event_[0-9]') and attnum > 0 and not attisdropped order by 1, attnum",
    )
    assert len(columns) > 60
    for table, column in columns:
        with db.transaction(force_rollback=True):
            db.execute(f"alter table {table} drop column {column} cascade")
            try:
                with db.transaction():
                    db.execute(in_one_transaction)
            except psycopg.errors.ObjectNotInPrerequisiteState as refusal:
                refused[f"{table}.{column}"] = str(refusal)
                continue
            for call in CONTRACT:
                db.execute(f"select * from pgque.{call}")
    assert len(refused) > 30
    for column, told in refused.items():
        assert f"is too old for this pack: {column} is missing" in told
        assert "Upgrade it first" in told


def test_an_engine_without_a_table_is_too_old(db: Connection) -> None:
    db.execute("drop table pgque.dead_letter cascade")
    with pytest.raises(psycopg.errors.ObjectNotInPrerequisiteState, match=r"too old.*pgque\.dead_letter"):
        db.execute(PACK)


def test_a_new_install_of_the_engine_keeps_the_pack_and_its_grants(
    pack_database: Database, user: str
) -> None:
    db = pack_database.connect()
    make_work(db)
    db.execute(f"grant execute on function pgque.queue_stats() to {user}")
    before = catalog_of(db)
    pack_database.install(ENGINE_INSTALL)
    assert catalog_of(db) == before
    db.execute("set role pgque_monitor")
    assert value(db, "select depth from pgque.queue_stats()") == 3


# --- removal --------------------------------------------------------------------------------------


def test_removing_leaves_what_was_there_before(db: Connection, user: str) -> None:
    make_work(db)
    before = catalog_of(db), engine_rows(db)
    for script in (PACK, previous_version()):
        db.execute(script)
        db.execute(f"grant execute on function pgque.queue_stats() to {user}")
        assert catalog_of(db) != before[0]
        for _ in range(2):
            db.execute(UNINSTALL.read_text("utf-8"))
            assert (catalog_of(db), engine_rows(db)) == before


def test_removing_works_when_the_engine_is_gone(pack_database: Database, database: Database) -> None:
    db = pack_database.connect()
    db.execute("drop schema pgque cascade")
    db.execute(UNINSTALL.read_text("utf-8"))
    assert catalog_of(db) == catalog_of(database.connect())


@pytest.mark.parametrize("used", ["function pgque.queue_stats()", "table pgque.health_threshold"])
def test_removing_takes_nothing_of_others_with_it(pack_database: Database, used: str) -> None:
    db = pack_database.connect()
    db.execute(f"create view mine as select * from {used.split()[1]}")
    before = catalog_of(db)
    with pytest.raises(psycopg.errors.DependentObjectsStillExist) as refusal:
        db.execute(UNINSTALL.read_text("utf-8"))
    told = f"{used} is in use: view public.mine depends on {used}"
    assert refusal.value.diag.message_primary == told
    db.execute("rollback")
    assert catalog_of(db) == before


# --- at the same moment ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("first", "second"),
    [("install", "install"), ("install", "uninstall"), ("uninstall", "install"), ("uninstall", "uninstall")],
)
def test_of_two_at_the_same_moment_the_second_waits_and_both_end_well(
    cluster: Cluster, engine_template: str, pack_database: Database, first: str, second: str
) -> None:
    scripts = {"install": PACK, "uninstall": UNINSTALL.read_text("utf-8")}
    db, other = pack_database.connect(), pack_database.connect()
    # A session that isn't read committed by default must see what the one before it did all the same.
    other.execute("set default_transaction_isolation = 'repeatable read'")
    db.execute(scripts[first].replace("\ncommit;\n", "\n"))
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(other.execute, scripts[second])
        pid = other.info.backend_pid
        waits = "select count(*) from pg_locks where pid = %s and not granted"
        wait_until(lambda: value(db, waits, pid) or waiting.done(), what="the second waits")
        assert not waiting.done()
        db.execute("commit")
        waiting.result(20)

    with new_database(cluster, template=engine_template) as expected:
        if second == "install":
            expected.install(PACK_INSTALL)
        assert catalog_of(db) == catalog_of(expected.connect())


def test_installs_in_two_databases_at_the_same_moment(cluster: Cluster, engine_template: str) -> None:
    with (
        new_database(cluster, template=engine_template) as one,
        new_database(cluster, template=engine_template) as other,
    ):
        targets = [one, other, one, other]
        with ThreadPoolExecutor(len(targets)) as pool:
            list(pool.map(lambda target: target.install(PACK_INSTALL), targets))
        assert catalog_of(one.connect()) == catalog_of(other.connect())
