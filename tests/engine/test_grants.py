"""What roles can and can't achieve. Which function is granted to whom: test_reference.py."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import psycopg
import pytest

from tests.support.database import Connection, Database
from tests.support.queue import create_queue, rows, send, tick, value


@pytest.fixture
def db(engine_database: Database) -> Connection:
    connection = engine_database.connect()
    create_queue(connection, "orders", "app")
    return connection


@pytest.fixture
def stranger(engine_database: Database) -> Iterator[Connection]:
    """A login role with no grant at all: what it may do, PUBLIC may do."""
    admin = engine_database.connect()
    admin.execute("create role stranger login")
    try:
        connection = engine_database.connect(user="stranger")
        yield connection
        connection.close()
    finally:
        admin.execute("drop role stranger")


def functions(connection: Connection, role: str) -> set[str]:
    """What a role may execute in the schema, without the schema's name."""
    found = rows(
        connection,
        "select regexp_replace(oid::regprocedure::text, '^pgque\\.', '') from pg_proc"
        " where pronamespace = 'pgque'::regnamespace and has_function_privilege(%s, oid, 'execute')",
        role,
    )
    return {name for (name,) in found}


def test_the_public_may_do_nothing(db: Connection, stranger: Connection) -> None:
    assert not value(stranger, "select has_schema_privilege('pgque', 'usage, create')")
    assert functions(db, "stranger") == set()
    rights = rows(
        stranger,
        "select relname from pg_class where relnamespace = 'pgque'::regnamespace and ("
        " case when relkind = 'S' then has_sequence_privilege(oid, 'usage, select, update')"
        "      when relkind = 'r' then has_table_privilege(oid, 'select, insert, update, delete, truncate,"
        "                               references, trigger') end)",
    )
    assert rights == []
    for attempt in (
        "select pgque.send('orders', 'x')",
        "select * from pgque.receive('orders', 'app')",
        "select * from pgque.event_1_0",
        "select pgque.version()",
    ):
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            stranger.execute(attempt)


def test_the_public_stays_out_without_the_schema_as_a_door(db: Connection, stranger: Connection) -> None:
    """Even where somebody opens the schema, every object in it is closed by itself."""
    db.execute("grant usage on schema pgque to public")
    assert functions(db, "stranger") == set()
    for attempt in ("select pgque.send('orders', 'x')", "select from pgque.event_1_0"):
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            stranger.execute(attempt)


def test_a_writer_can_not_consume(db: Connection) -> None:
    send(db, "orders", "x")
    tick(db, "orders")
    db.execute("set role pgque_writer")
    assert value(db, "select pgque.send('orders', 'y')") > 0
    assert len(value(db, "select pgque.send_batch('orders', 't', array['a', 'b'])")) == 2
    for attempt in (
        "select * from pgque.receive('orders', 'app')",
        "select pgque.ack(1)",
        "select pgque.subscribe('orders', 'other')",
        "select * from pgque.event_1_0",
        "insert into pgque.event_1_0 (ev_id) values (1)",
        "select * from pgque.dead_letter",
        "select nextval('pgque.event_1_id_seq')",
        "select pgque.insert_event_bulk('orders', 't', array['a'])",
        "select pgque.ticker()",
        "select pgque.create_queue('mine')",
    ):
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            db.execute(attempt)


def test_a_reader_can_not_produce(db: Connection) -> None:
    send(db, "orders", "x")
    tick(db, "orders")
    db.execute("set role pgque_reader")
    [(batch,)] = rows(db, "select batch_id from pgque.receive('orders', 'app')")
    assert rows(db, "select ev_data from pgque.event_1_0") == [("x",)]
    assert value(db, "select pgque.ack(%s)", batch) == 1
    for attempt in (
        "select pgque.send('orders', 'y')",
        "select pgque.send_batch('orders', array['a'])",
        "select pgque.insert_event('orders', 't', 'd')",
        "select pgque.dlq_replay(1)",
        "select pgque.dlq_purge('orders')",
        "select pgque.event_dead(1, 1, 'r', now(), null, null, null, null)",
        "delete from pgque.tick",
        "select pgque.drop_queue('orders', true)",
        "select pgque.batch_event_sql(1)",
    ):
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            db.execute(attempt)


def test_an_admin_runs_queues_but_gains_nothing_beyond(db: Connection) -> None:
    db.execute("set role pgque_admin")
    create_queue(db, "mine", "app")
    send(db, "mine", "x")
    tick(db, "mine")
    assert len(rows(db, "select from pgque.receive('mine', 'app')")) == 1
    assert value(db, "select pgque.drop_queue('mine', true)") == 1
    for attempt in (
        "select pgque.uninstall()",
        "select pgque.insert_event_bulk('orders', 't', array['a'])",
        # Either of these would let code of the admin run with the rights of the engine's owner.
        "create function pgque.now() returns timestamptz language sql as 'select null::timestamptz'",
        "create trigger t before update on pgque.queue for each row execute function"
        " suppress_redundant_updates_trigger()",
    ):
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            db.execute(attempt)


def test_an_admin_reaches_no_sequence_of_others(db: Connection) -> None:
    """Which sequences a queue has stands in a table that admins may write; the ticker sets them."""
    db.execute("create sequence public.invoices; set role pgque_admin")
    for column in ("queue_tick_seq", "queue_event_seq"):
        with pytest.raises(psycopg.errors.CheckViolation):
            db.execute(f"update pgque.queue set {column} = 'public.invoices'".encode())
    value(db, "select pgque.set_queue_config('orders', 'external_ticker', 'true')")
    value(db, "select pgque.ticker('orders', 1000, now(), 1000)")
    db.execute("reset role")
    assert value(db, "select pg_sequence_last_value('public.invoices')") is None


def test_privileged_functions_trust_no_search_path(db: Connection) -> None:
    loose = rows(
        db,
        "select oid::regprocedure::text from pg_proc where pronamespace = 'pgque'::regnamespace"
        " and prosecdef and proconfig is distinct from array['search_path=pg_catalog, pg_temp']",
    )
    assert loose == []


def test_a_shadowing_function_is_not_called(engine_database: Database, db: Connection) -> None:
    """What a role puts first in its search path must not run inside the engine."""
    db.execute(
        "create schema trap;"
        " create function trap.now() returns timestamptz language plpgsql as"
        " $$ begin raise exception 'trapped'; end $$;"
        " create function trap.clock_timestamp() returns timestamptz language plpgsql as"
        " $$ begin raise exception 'trapped'; end $$;"
        " create function trap.format(text, variadic text[]) returns text language plpgsql as"
        " $$ begin raise exception 'trapped'; end $$"
    )
    db.execute("set search_path = trap, pg_catalog")
    send(db, "orders", "x")
    tick(db, "orders")
    assert len(rows(db, "select from pgque.receive('orders', 'app')")) == 1
    value(db, "select pgque.maint_retry_events()")
    value(db, "select pgque.maint()")


def test_the_ticker_loop_calls_no_operator_of_the_callers_search_path(db: Connection) -> None:
    """It can't fix its search path, and a scheduler runs it with the rights of the engine's owner."""
    value(db, "select pgque.set_tick_period_ms(500)")
    db.execute("create schema trap")
    types = ("int4", "int8", "float8", "numeric", "timestamptz", "interval")
    for left, right in itertools.product(types, types):
        for sign in ("+", "-", "*", "/", ">=", "="):
            db.execute(
                f"create or replace function trap.f({left}, {right}) returns {left} language plpgsql as"
                " $$ begin raise exception 'trapped by % and %', pg_typeof($1), pg_typeof($2); end $$;"
                f" create operator trap.{sign} (leftarg = {left}, rightarg = {right}, function = trap.f)"
                .encode()
            )
    db.execute("set search_path = trap")  # pg_catalog is searched before it
    db.execute("call pgque.ticker_loop()")
