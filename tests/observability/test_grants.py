"""Least privilege: the monitor role can run the contract and can do nothing else."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import psycopg
import pytest
from psycopg.rows import dict_row

from tests.support.database import ENGINE_INSTALL, PACK_INSTALL, Database
from tests.support.observed import CONTRACT, Connection, Queue, Row

DENIED = (
    "select ev_data from pgque.retry_queue",
    "select dl_reason from pgque.dead_letter",
    "select ev_data from pgque.dead_letter",
    "select * from pgque.event_template",
    "select ev_data from {events}",
    "select * from pgque.receive('q', 'app')",
    "select pgque.ack(1)",
    "select pgque.send('q', 'x')",
    "select pgque.ticker()",
    "select pgque.create_queue('other')",
    "select pgque.drop_queue('q')",
    "select pgque.dlq_purge('q')",
    "update pgque.queue set queue_ticker_paused = true",
    "delete from pgque.tick",
    "select nextval('{sequence}')",
    "create table pgque.mine (a int)",
)


@pytest.fixture
def as_monitor(queue: Queue) -> Queue:
    """The queue for somebody who is the monitor role, with something to see in every table."""
    queue.subscribe("app")
    queue.send_and_tick(3)
    queue.wait(60)  # late: the event tables are asked as well
    queue.send(3)
    queue.wait(60)
    queue.run("set role pgque_monitor")
    return queue


def refused(queue: Queue, statement: str) -> None:
    """The statement is refused for want of a privilege; {events} and {sequence} are the queue's own."""
    (row,) = queue.run(
        "select queue_data_pfx as events, queue_event_seq as sequence from {engine}.queue"
        " where queue_name = 'q'"
    )
    for name, value in row.items():
        statement = statement.replace(f"{{{name}}}", value)
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        queue.run(statement)


@pytest.mark.parametrize("call", CONTRACT)
def test_monitor_runs_the_contract(as_monitor: Queue, call: str) -> None:
    assert isinstance(as_monitor.ask(call), list)


def test_monitor_sees_the_same_as_the_owner(as_monitor: Queue) -> None:
    def seen() -> list[tuple[str, str, object]]:
        rows = as_monitor.ask("otel_metrics()")
        return sorted(
            (row["metric_name"], str(row["labels"]), row["value"])
            for row in rows
            if not row["metric_name"].endswith("_seconds")
        )

    by_monitor = seen()
    as_monitor.run("reset role")
    assert by_monitor == seen()
    assert len(by_monitor) > 10


@pytest.mark.parametrize("statement", DENIED)
def test_monitor_is_denied_everything_else(as_monitor: Queue, statement: str) -> None:
    refused(as_monitor, statement)


def test_queues_made_after_the_install_are_seen_too(queue: Queue) -> None:
    queue.run("select {engine}.create_queue('later')")
    later = replace(queue, name="later")
    later.send(1)
    queue.run("set role pgque_monitor")
    assert later.metrics()[("pgque.message.sent_total", None)] == 1


def test_public_can_do_nothing(queue: Queue) -> None:
    queue.run("create role somebody login")
    try:
        queue.run("set role somebody")
        for call in CONTRACT:
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                queue.ask(call)
    finally:
        queue.run("reset role")
        queue.run("drop role somebody")


# ---- of everything there is, connected as a role of one's own ----

MAY_READ = {"queue", "tick", "subscription", "consumer", "health_threshold", "metrics_buffer"}
MAY_COUNT = {
    "retry_queue": {"ev_queue", "ev_owner", "ev_retry_after"},
    "dead_letter": {"dl_queue_id", "dl_consumer_id", "dl_time"},
}
_WRITES = (
    "insert into {table} default values",
    "update {table} set {column} = {column}",
    "delete from {table}",
    "truncate {table}",
    "lock table {table} in access exclusive mode",
    "create trigger mine before insert on {table} execute function suppress_redundant_updates_trigger()",
    "alter table {table} add mine int",
    "drop table {table}",
)


@pytest.fixture(params=["", "pack engine", "uninstall pack"])
def laid(request: pytest.FixtureRequest, pack_database: Database, queue: Queue) -> Queue:
    """The queue with something in every table, after more was installed, and another queue after that."""
    scripts = {
        "pack": PACK_INSTALL,
        "engine": ENGINE_INSTALL,
        "uninstall": PACK_INSTALL.with_name("uninstall.sql"),
    }
    queue.subscribe("app")
    queue.send_and_tick(3)
    for max_retries in ("0", "5"):
        queue.db.execute("select pgque.set_queue_config('q', 'max_retries', %s)", (max_retries,))
        queue.nack("app", queue.receive("app")[int(max_retries) // 5])
    for name in request.param.split():
        pack_database.install(scripts[name])
    queue.db.execute("select pgque.create_queue('later')")
    queue.db.execute("select pgque.buffer_metrics()")
    return queue


@pytest.fixture
def role(pack_database: Database, db: Connection) -> Iterator[str]:
    """A login role that is granted nothing."""
    name = f"role_of_{pack_database.name}"
    db.execute(f"create role {name} login".encode())
    yield name
    db.execute(f"drop role {name}".encode())


@pytest.fixture
def monitor(pack_database: Database, db: Connection, role: str) -> Iterator[Connection]:
    """A connection of a login role that is granted pgque_monitor."""
    db.execute(f"grant pgque_monitor to {role}".encode())
    with psycopg.connect(pack_database.dsn(user=role), autocommit=True, row_factory=dict_row) as connection:
        yield connection


@pytest.fixture
def stranger(pack_database: Database, role: str) -> Iterator[Connection]:
    """A connection of a login role that is granted nothing."""
    with psycopg.connect(pack_database.dsn(user=role), autocommit=True, row_factory=dict_row) as connection:
        yield connection


def is_denied(connection: Connection, statement: str) -> bool:
    """Whether the statement fails for want of a right; it fails in any case, or does nothing that stays."""
    try:
        with connection.transaction(force_rollback=True):
            connection.execute(statement.encode())
    except psycopg.errors.InsufficientPrivilege:
        return True
    except psycopg.errors.Error:
        return False
    return False


def functions(db: Connection, role: str) -> Iterator[tuple[Row, str]]:
    """Every function of the schema, whether the role may execute it, and a call of it."""
    rows = db.execute(
        "select p.proname, p.prokind, p.provolatile, obj_description(p.oid, 'pg_proc') as comment,"
        " has_function_privilege(%s, p.oid, 'execute') as allowed,"
        " array(select t::regtype::text from unnest(p.proargtypes) t) as types"
        " from pg_proc p where p.pronamespace = 'pgque'::regnamespace and p.prorettype <> 'trigger'::regtype",
        (role,),
    ).fetchall()
    assert len(rows) > 60
    for row in rows:
        arguments = ", ".join(f"null::{name}" for name in row["types"])
        word = "call" if row["prokind"] == "p" else "select"
        yield row, f"{word} pgque.{row['proname']}({arguments})"


def tables(db: Connection) -> Iterator[tuple[str, list[str]]]:
    """Every table of the schema, with its columns."""
    rows = db.execute(
        "select c.relname, array_agg(a.attname order by a.attnum)::text[] as columns"
        " from pg_class c join pg_attribute a on a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped"
        " where c.relnamespace = 'pgque'::regnamespace and c.relkind in ('r', 'v', 'm', 'p')"
        " group by c.relname"
    ).fetchall()
    assert len(rows) > 15
    yield from ((row["relname"], row["columns"]) for row in rows)


def sequences(db: Connection) -> list[str]:
    return [
        row["name"]
        for row in db.execute(
            "select oid::regclass::text as name from pg_class"
            " where relnamespace = 'pgque'::regnamespace and relkind = 'S'"
        )
    ]


def test_monitor_may_do_nothing_beyond_the_contract(laid: Queue, monitor: Connection) -> None:
    for call in CONTRACT:
        monitor.execute(f"select * from pgque.{call}".encode())
    for function, call in functions(laid.db, monitor.info.user):
        assert is_denied(monitor, call) != function["allowed"], call
        if not function["allowed"]:
            continue
        # What it may run is the pack's own, and can't write: that is what not being volatile means.
        assert function["provolatile"] != "v", call
        is_ours = str(function["comment"]).startswith("pgque_exporter ")
        assert is_ours or function["proname"] == "version", call

    for table, columns in tables(laid.db):
        name = f"pgque.{table}"
        assert is_denied(monitor, f"table {name}") == (table not in MAY_READ), table
        for column in columns:
            allowed = table in MAY_READ or column in MAY_COUNT.get(table, ())
            assert is_denied(monitor, f"select {column} from {name}") != allowed, f"{table}.{column}"
        for write in _WRITES:
            statement = write.format(table=name, column=columns[0])
            assert is_denied(monitor, statement), statement
    for sequence in sequences(laid.db):
        assert not is_denied(monitor, f"select last_value from {sequence}")
        for call in (f"nextval('{sequence}')", f"setval('{sequence}', 1)"):
            assert is_denied(monitor, f"select {call}"), call
    assert is_denied(monitor, "create table pgque.mine (a int)")
    assert is_denied(monitor, "create function pgque.now() returns int language sql as 'select 1'")


def test_the_public_may_do_nothing(laid: Queue, stranger: Connection) -> None:
    assert is_denied(stranger, "select from pgque.queue")
    # Not only is the door of the schema shut: everything in it is closed by itself.
    laid.db.execute("grant usage on schema pgque to public")
    for function, call in functions(laid.db, stranger.info.user):
        assert not function["allowed"], call
        assert is_denied(stranger, call), call
    for table, columns in tables(laid.db):
        for column in columns:
            assert is_denied(stranger, f"select {column} from pgque.{table}"), f"{table}.{column}"
        for write in _WRITES:
            statement = write.format(table=f"pgque.{table}", column=columns[0])
            assert is_denied(stranger, statement), statement
    for sequence in sequences(laid.db):
        for statement in (f"select last_value from {sequence}", f"select nextval('{sequence}')"):
            assert is_denied(stranger, statement), statement


def test_an_admin_can_not_have_a_view_read_with_the_rights_of_the_owner(
    laid: Queue, pack_database: Database, role: str
) -> None:
    laid.run(f"grant pgque_admin to {role}")
    laid.run(f"create schema trap authorization {role}")
    laid.run("create table trap.caught (by text)")
    laid.run(f"grant insert on trap.caught to {role}")
    with psycopg.connect(pack_database.dsn(user=role), autocommit=True) as admin:
        admin.execute(
            "create function trap.spring() returns xid8 language plpgsql as"
            " $$ begin insert into trap.caught values (current_user); return '1'; end $$"
        )
        for number in range(3):
            admin.execute(
                f"create view trap.event_{number} as select trap.spring() as ev_txid, null::int4 as ev_owner,"
                " null::int4 as ev_retry, now() as ev_time"
            )
        admin.execute("update pgque.queue set queue_data_pfx = 'trap.event'")
    laid.send_and_tick()
    laid.send()
    laid.ask("queue_stats()")
    laid.ask("exact_backlog('q')")
    caught = laid.run("select * from trap.caught")
    laid.run("drop schema trap cascade")
    laid.run(f"drop owned by {role}")
    assert caught == []


def test_unreadable_sequence_is_unknown_and_costs_nobody_else(queue: Queue) -> None:
    queue.subscribe("app")
    queue.send_and_tick(3)
    queue.consume("app")
    queue.run("select {engine}.create_queue('other')")
    (row,) = queue.run("select queue_event_seq as name from {engine}.queue where queue_name = 'q'")
    queue.run(f"revoke all on sequence {row['name']} from pgque_monitor, public")
    queue.run("set role pgque_monitor")
    sent = ("pgque.message.sent_total", None)
    assert sent not in queue.metrics()
    assert replace(queue, name="other").metrics()[sent] == 0
    assert queue.consumer("app").items() >= {"lag": None, "pending_events": None}.items()
    assert queue.stats().items() >= {"depth": None, "oldest_msg_age": None}.items()
    assert queue.troubles() == {}
    assert queue.detail("ticker_running").endswith("install the pack again, its event sequence can't be read")
