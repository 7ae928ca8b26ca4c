"""Installing, installing again, and removing; US-10 of the specification."""

from __future__ import annotations

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psycopg
import pytest
from psycopg import sql

from pgque_exporter.demo.cluster import Cluster
from tests.support.database import (
    ENGINE_INSTALL,
    ROOT,
    Connection,
    Database,
    new_database,
    run_file,
    server_programs,
)
from tests.support.queue import (
    consume,
    create_queue,
    nack,
    receive,
    rotate,
    rows,
    send,
    tick,
    value,
)

UNINSTALL = ENGINE_INSTALL.with_name("uninstall.sql")


def contents(db: Connection) -> dict[str, object]:
    """All there is in the schema: rows, sequences, files, functions' ids and everybody's rights."""
    found: dict[str, object] = {}
    for name, kind in rows(
        db,
        "select relname, relkind from pg_class"
        " where relnamespace = 'pgque'::regnamespace and relkind in ('r', 'S')",
    ):
        table = sql.Identifier("pgque", name)
        query = sql.SQL("select x.*, {} from {} as x").format(
            sql.SQL("1") if kind == "S" else sql.SQL("x.ctid, x.xmin"), table)
        found[name] = sorted(map(repr, db.execute(query).fetchall()))
    found["classes"] = rows(
        db,
        "select relname, relkind, relfilenode, relacl::text[], reloptions from pg_class"
        " where relnamespace = 'pgque'::regnamespace order by oid",
    )
    found["functions"] = rows(
        db,
        "select oid, oid::regprocedure::text as signature, proacl::text[], prosrc, proconfig from pg_proc"
        " where pronamespace = 'pgque'::regnamespace order by signature",
    )
    found["constraints"] = rows(
        db,
        "select conname, pg_get_constraintdef(oid) from pg_constraint"
        " where connamespace = 'pgque'::regnamespace order by oid",
    )
    return found


def test_us10_installing_again_changes_nothing(engine_database: Database) -> None:
    db = engine_database.connect()
    create_queue(db, "orders", "fast", "slow", "open")
    create_queue(db, "empty")
    value(db, "select pgque.set_queue_config('orders', 'max_retries', '0')")
    send(db, "orders", "dead")
    tick(db, "orders")
    nack(db, receive(db, "orders", "fast")[0], reason="no")
    value(db, "select pgque.set_queue_config('orders', 'max_retries', '3')")
    nack(db, receive(db, "orders", "slow")[0], after="1 hour")
    for consumer in ("fast", "slow", "open"):
        consume(db, "orders", consumer)
    tick(db, "orders")
    for consumer in ("fast", "slow", "open"):
        consume(db, "orders", consumer)
    assert rotate(db, "orders")
    send(db, "orders", "ticked")
    tick(db, "orders")
    opened = receive(db, "orders", "open")
    send(db, "orders", "not ticked yet")

    before = contents(db)
    assert {"queue", "tick", "subscription", "retry_queue", "dead_letter", "event_1_1"} <= set(before)
    engine_database.install(ENGINE_INSTALL)
    assert contents(db) == before

    assert receive(db, "orders", "open") == opened
    send(db, "orders", "after")
    tick(db, "orders")
    assert consume(db, "orders", "fast") == ["ticked", "not ticked yet", "after"]


def test_installing_again_waits_for_nobody_at_work(engine_database: Database) -> None:
    """No lock that those who send and consume would have to wait for, or it for them."""
    db = engine_database.connect()
    create_queue(db, "orders", "app")
    until_commit = ENGINE_INSTALL.read_text(encoding="utf-8").rpartition("commit;")[0]
    db.execute(until_commit.encode())
    locks = rows(
        db,
        "select relation::regclass::text, mode from pg_locks where pid = pg_backend_pid()"
        " and relation in (select oid from pg_class where relnamespace = 'pgque'::regnamespace)"
        " and mode not in ('AccessShareLock', 'RowShareLock', 'RowExclusiveLock')",
    )
    db.execute("rollback")
    assert locks == []


def test_an_engine_of_an_earlier_version_gets_what_is_new(engine_database: Database) -> None:
    """Its tables have neither the new columns nor the new table; what they hold stays."""
    db = engine_database.connect()
    create_queue(db, "orders", "app")
    [sent] = send(db, "orders", "x")
    tick(db, "orders")
    db.execute(
        "drop table pgque.delayed_events;"
        " alter table pgque.queue drop column queue_event_ttl, drop constraint queue_sequences_check;"
        " alter table pgque.config drop column retry_job_id, drop column step2_job_id,"
        " drop column tick_period_ms"
    )
    engine_database.install(ENGINE_INSTALL)
    with pytest.raises(psycopg.errors.CheckViolation):
        db.execute("update pgque.queue set queue_tick_seq = 'public.other'")
    assert [message.id for message in receive(db, "orders", "app")] == [sent]
    value(db, "select pgque.set_queue_config('orders', 'event_ttl', '1 hour')")
    assert value(db, "select pgque.set_tick_period_ms(50)") == 50
    value(db, "select pgque.send_at('orders', 't', '1', now() + interval '1 hour')")
    db.execute("select pgque.stop()")


def test_psql_can_include_the_install_file(database: Database) -> None:
    psql = server_programs("pg18") / "psql"
    for _ in range(2):
        subprocess.run(
            [psql, "-X", "-q", "-v", "ON_ERROR_STOP=1", "-c", f"\\i {ENGINE_INSTALL}", database.dsn()],
            check=True, capture_output=True, stdin=subprocess.DEVNULL,
        )
    create_queue(database.connect(), "orders")


def test_installs_at_the_same_moment_do_not_disturb_each_other(cluster: Cluster) -> None:
    with new_database(cluster) as one, new_database(cluster) as other:
        targets = [one, one, other, other]
        with ThreadPoolExecutor(len(targets)) as pool:
            list(pool.map(lambda target: target.install(ENGINE_INSTALL), targets))
        for target in (one, other):
            create_queue(target.connect(), "orders", "app")


def test_a_schema_that_somebody_prepared_is_not_moved_into(database: Database) -> None:
    """What is there already of his would stay his, and be called with the rights of the engine's owner."""
    db = database.connect()
    db.execute("create role squatter")
    try:
        db.execute(f"grant create on database {database.name} to squatter; set role squatter".encode())
        db.execute(
            "create schema pgque;"
            " create function pgque.tick_queue(queue_id int4) returns bigint"
            " language sql as 'select 1::bigint';"
            " reset role"
        )
        with pytest.raises(psycopg.errors.InsufficientPrivilege, match="belongs to squatter, not to"):
            database.install(ENGINE_INSTALL)
        assert value(db, "select to_regclass('pgque.queue')") is None
    finally:
        db.execute("reset role; drop owned by squatter cascade; drop role squatter")
    database.install(ENGINE_INSTALL)


def test_a_failing_install_leaves_nothing_behind(database: Database, tmp_path: Path) -> None:
    broken = tmp_path / "install.sql"
    text = ENGINE_INSTALL.read_text(encoding="utf-8")
    broken.write_text(text.replace("create or replace function pgque.version()", "create nonsense"))
    with pytest.raises(Exception, match="nonsense"):
        run_file(database.dsn(), broken)
    assert value(database.connect(), "select to_regnamespace('pgque')") is None


@pytest.mark.parametrize("way", ["file", "function"])
def test_uninstalling_removes_all_but_the_roles(engine_database: Database, way: str) -> None:
    db = engine_database.connect()
    create_queue(db, "orders", "app")
    if way == "file":
        engine_database.install(UNINSTALL)
    else:
        db.execute("select pgque.uninstall()")
    assert value(db, "select to_regnamespace('pgque')") is None
    assert value(db, "select count(*) from pg_roles where rolname like 'pgque\\_%%er'") >= 2

    engine_database.install(ENGINE_INSTALL)
    assert rows(db, "select from pgque.queue") == []


def test_the_install_file_is_built_from_all_parts() -> None:
    check = subprocess.run(
        [sys.executable, ROOT / "sql" / "build.py", "--check"], capture_output=True, text=True, check=False
    )
    assert "sql/pgque/install.sql" not in check.stdout, "run python sql/build.py and commit the result"

    folder = ENGINE_INSTALL.parent
    lines = (folder / "parts.txt").read_text(encoding="utf-8").splitlines()
    named = [line for line in lines if line and not line.startswith("#")]
    there = {path.relative_to(folder).as_posix() for path in folder.rglob("*.sql")}
    assert sorted(named) == sorted(there - {"install.sql", "uninstall.sql"})
