"""Batches read by a cursor."""

from __future__ import annotations

import psycopg
import pytest

from tests.support.database import Connection, Database
from tests.support.queue import create_queue, rows, send, tick, value


@pytest.fixture
def db(engine_database: Database) -> Connection:
    connection = engine_database.connect()
    create_queue(connection, "orders", "app")
    send(connection, "orders", *(str(number) for number in range(1, 8)))
    tick(connection, "orders")
    assert value(connection, "select pgque.next_batch('orders', 'app')") == 1
    return connection


def first(db: Connection, count: int | None, where: str | None = None) -> list[str]:
    found = rows(db, "select ev_data from pgque.get_batch_cursor(1, 'My Cursor', %s, %s)", count, where)
    return [data for (data,) in found]


def rest(db: Connection) -> list[tuple[object, ...]]:
    return rows(db, 'fetch all from "My Cursor"')


def test_the_first_events_come_at_once_and_the_rest_by_fetch(db: Connection) -> None:
    whole = rows(db, "select * from pgque.get_batch_events(1)")
    with db.transaction():
        assert rows(db, "select * from pgque.get_batch_cursor(1, 'My Cursor', 3)") == whole[:3]
        assert rest(db) == whole[3:]
    with db.transaction():
        assert first(db, 100) == [str(number) for number in range(1, 8)]
        assert rest(db) == []


@pytest.mark.parametrize("count", [0, -1, None])
def test_without_a_first_part_all_comes_by_fetch(db: Connection, count: int | None) -> None:
    with db.transaction():
        assert first(db, count) == []
        assert len(rest(db)) == 7


def test_a_condition_counts_as_a_whole(db: Connection) -> None:
    with db.transaction():
        assert first(db, 2, "ev_data = '2' or ev_data = '5' or ev_data >= '6'") == ["2", "5"]
        assert [row[5] for row in rest(db)] == ["6", "7"]


def test_a_batch_that_is_not_open_is_refused(db: Connection) -> None:
    with pytest.raises(psycopg.Error, match="batch not found: 99"):
        db.execute("select pgque.get_batch_cursor(99, 'c', 1)")


def test_the_condition_runs_with_the_rights_of_the_caller(db: Connection) -> None:
    """It is SQL as it stands: with the owner's rights, an admin would have those too."""
    db.execute("create table public.secret (x int); insert into public.secret values (7)")
    db.execute("create role operator in role pgque_admin")
    try:
        db.execute("set role operator")
        with db.transaction():
            assert first(db, 1) == ["1"]
        with pytest.raises(psycopg.errors.InsufficientPrivilege, match="secret"), db.transaction():
            first(db, 9, "ev_data = (select x::text from public.secret)")
    finally:
        db.execute("reset role")
        db.execute("drop role operator")
