"""PgQ's pack comes and goes, alone and beside PgQue's."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.cli.conftest import Run, run  # noqa: F401
from tests.support.catalog import catalog_of
from tests.support.database import ENGINE_INSTALL, Connection, Database
from tests.support.database import PACK_INSTALL as PGQUE_PACK_INSTALL
from tests.support.pgq import PACK_INSTALL, PACK_UNINSTALL
from tests.support.queue import rows, value


@pytest.fixture
def shop(pgq_database: Database) -> Connection:
    """A database where PgQ is at work, without the pack."""
    connection = pgq_database.connect()
    value(connection, "select pgq.create_queue('orders')")
    value(connection, "select pgq.set_queue_config('orders', 'ticker_max_count', '1')")
    value(connection, "select pgq.register_consumer('orders', 'app')")
    value(connection, "select count(pgq.insert_event('orders', 'type', 'data')) from generate_series(1, 5)")
    value(connection, "select pgq.ticker('orders')")
    return connection


def test_the_pack_goes_without_a_trace_but_the_role(
    run: Run, shop: Connection, pgq_database: Database  # noqa: F811
) -> None:
    before = catalog_of(shop)
    name, where = pgq_database.name, ("--engine", "pgq", "--dsn", pgq_database.dsn())

    assert run("sql", "install", *where) == (0, f"{name}: observability pack of pgq installed\n", "")
    installed = catalog_of(shop)
    assert installed != before
    assert run("sql", "verify", *where) == (
        0, f"{name}: pack in schema pgq_observability: whole and safe\n", "",
    )  # fmt: skip
    value(shop, "select pgq.create_queue('made meanwhile')")
    shop.execute("update pgq_observability.health_threshold set tick_grace = '7 minutes'")
    assert run("sql", "install", *where)[0] == 0
    assert value(shop, "select tick_grace::text from pgq_observability.health_threshold") == "00:07:00"
    value(shop, "select pgq.drop_queue('made meanwhile')")
    assert catalog_of(shop) == installed

    assert run("sql", "uninstall", *where) == (0, f"{name}: observability pack of pgq removed\n", "")
    assert catalog_of(shop) == before
    nothing = f"{name}: nothing to remove: no observability pack of pgq\n"
    assert run("sql", "uninstall", *where) == (0, nothing, "")
    assert catalog_of(shop) == before
    assert value(shop, "select count(*) from pg_roles where rolname = 'pgque_monitor'") == 1

    batch = value(shop, "select pgq.next_batch('orders', 'app')")
    assert len(rows(shop, "select * from pgq.get_batch_events(%s)", batch)) == 5
    assert value(shop, "select pgq.finish_batch(%s)", batch) == 1


def test_a_database_without_pgq_is_refused_in_one_line(run: Run, pgq_database: Database) -> None:  # noqa: F811
    connection = pgq_database.connect()
    connection.execute("drop extension pgq")
    before = catalog_of(connection)
    code, out, error = run("sql", "install", "--engine", "pgq", "--dsn", pgq_database.dsn())
    assert (code, out) == (1, "")
    assert error.count("\n") == 1
    assert f'PgQ is not installed in database "{pgq_database.name}"' in error
    assert "create extension pgq" in error
    assert catalog_of(connection) == before


def test_a_pgq_that_lacks_what_the_pack_reads_is_refused(
    run: Run, shop: Connection, pgq_database: Database  # noqa: F811
) -> None:
    shop.execute("alter table pgq.retry_queue drop column ev_queue cascade")
    before = catalog_of(shop)
    code, out, error = run("sql", "install", "--dsn", pgq_database.dsn())
    assert (code, out) == (1, "")
    assert "is too old for this pack: pgq.retry_queue.ev_queue is missing" in error
    assert "alter extension pgq update" in error.lower()
    assert catalog_of(shop) == before


def test_the_owner_of_the_database_is_not_the_owner_of_pgq(
    run: Run, shop: Connection, pgq_database: Database, owner: str  # noqa: F811
) -> None:
    before = catalog_of(shop)
    code, out, error = run("sql", "install", "--engine", "pgq", "--dsn", pgq_database.dsn(user=owner))
    assert (code, out) == (1, "")
    assert f"The user {owner} may not do that: connect as the owner" in error
    assert catalog_of(shop) == before


@pytest.fixture
def owner(shop: Connection, pgq_database: Database) -> Iterator[str]:
    """The database's owner, without any right in PgQ."""
    shop.execute("create role shopkeeper login")
    shop.execute(f"alter database {pgq_database.name} owner to shopkeeper".encode())
    yield "shopkeeper"
    shop.execute(f"alter database {pgq_database.name} owner to postgres".encode())
    shop.execute("drop role shopkeeper")


def test_what_somebody_made_of_the_pack_stops_its_removal(
    run: Run, shop: Connection, pgq_database: Database  # noqa: F811
) -> None:
    pgq_database.install(PACK_INSTALL)
    shop.execute("create view public.depths as select queue_name, depth from pgq_observability.queue_stats()")
    before = catalog_of(shop)
    code, _, error = run("sql", "uninstall", "--engine", "pgq", "--dsn", pgq_database.dsn())
    assert code == 1
    assert "function pgq_observability.queue_stats() is in use: view public.depths depends on" in error
    assert "CASCADE" not in error
    assert catalog_of(shop) == before


def test_what_somebody_keeps_in_the_packs_schema_stays(
    run: Run, shop: Connection, pgq_database: Database  # noqa: F811
) -> None:
    pgq_database.install(PACK_INSTALL)
    shop.execute("create table pgq_observability.notes (note text)")
    shop.execute("insert into pgq_observability.notes values ('mine')")
    assert run("sql", "uninstall", "--engine", "pgq", "--dsn", pgq_database.dsn())[0] == 0
    assert value(shop, "select note from pgq_observability.notes") == "mine"
    left = "select count(*) from pg_proc where pronamespace = 'pgq_observability'::regnamespace"
    assert value(shop, left) == 0
    assert not value(shop, "select has_schema_privilege('pgque_monitor', 'pgq_observability', 'usage')")


def test_the_pack_is_not_in_the_way_of_the_engine(shop: Connection, pgq_database: Database) -> None:
    pgq_database.install(PACK_INSTALL)
    value(shop, "select pgq.drop_queue('orders', true)")
    shop.execute("drop extension pgq")  # without cascade
    shop.execute("create extension pgq")
    pgq_database.install(PACK_INSTALL)
    assert rows(shop, "select * from pgq_observability.queue_stats()") == []
    shop.execute("drop extension pgq")
    pgq_database.install(PACK_UNINSTALL)
    assert value(shop, "select to_regnamespace('pgq_observability') is null")


def test_both_packs_live_in_one_database_and_leave_it_one_by_one(
    run: Run, shop: Connection, pgq_database: Database  # noqa: F811
) -> None:
    name, where = pgq_database.name, ("--dsn", pgq_database.dsn())
    pgq_database.install(ENGINE_INSTALL)
    value(shop, "select pgque.create_queue('letters')")
    before = catalog_of(shop)
    pgq_database.install(PGQUE_PACK_INSTALL)
    with_pgque = catalog_of(shop)

    code, out, _ = run("sql", "install", *where)  # every engine that is there
    assert (code, out) == (
        0, f"{name}: observability pack of pgq installed\n{name}: observability pack of pgque installed\n",
    )  # fmt: skip
    code, out, _ = run("sql", "verify", *where)
    assert (code, out.count("whole and safe")) == (0, 2)
    assert value(shop, "select queue_name from pgq_observability.queue_stats()") == "orders"
    assert value(shop, "select queue_name from pgque.queue_stats()") == "letters"

    assert run("sql", "uninstall", "--engine", "pgq", *where)[0] == 0
    assert catalog_of(shop) == with_pgque
    pgq_database.install(PACK_INSTALL)
    assert run("sql", "uninstall", "--engine", "pgque", *where)[0] == 0
    assert value(shop, "select queue_name from pgq_observability.queue_stats()") == "orders"
    assert run("sql", "verify", *where)[0] == 0
    assert run("sql", "uninstall", "--engine", "pgq", *where)[0] == 0
    assert catalog_of(shop) == before
