"""Changes of tables as events."""

from __future__ import annotations

import json

import psycopg
import pytest

from tests.support.database import Connection, Database
from tests.support.queue import create_queue, rows, value


@pytest.fixture
def db(engine_database: Database) -> Connection:
    connection = engine_database.connect()
    create_queue(connection, "changes")
    connection.execute(
        'create table public."Order Line" (id int, line int, "what?" text, amount numeric, at timestamptz,'
        " spot point, primary key (line, id));"
        " create table public.notes (body text, mark text);"
        " create table public.parts"
        " (id int primary key, gross int, net int generated always as (gross / 2) stored)"
    )
    return connection


def capture(
    db: Connection, how: str, *args: str, table: str = '"Order Line"', timing: str = "after"
) -> None:
    given = ", ".join("'" + argument.replace("'", "''") + "'" for argument in ("changes", *args))
    db.execute(
        f"create trigger capture {timing} insert or update or delete on public.{table}"
        f" for each row execute function pgque.{how}({given})".encode()
    )


def events(db: Connection) -> list[tuple[str | None, ...]]:
    """Type, data and extras of every event so far, which are forgotten."""
    found = rows(
        db, "delete from pgque.event_1 returning ev_id, ev_type, ev_data, ev_extra1, ev_extra2, ev_extra3"
    )
    return [row[1:] for row in sorted(found)]


INSERT = (
    """insert into public."Order Line" values (1, 2, 'a&b ü=''', 1.50, '2026-01-02 03:04:05+00', '(1,2)')"""
)
UPDATE = 'update public."Order Line" set amount = 2, "what?" = null'
DELETE = 'delete from public."Order Line"'


def test_changes_as_json(db: Connection) -> None:
    db.execute("set timezone = 'UTC'")
    capture(db, "jsontriga", "backup")
    for statement in (INSERT, UPDATE, DELETE):
        db.execute(statement.encode())
    inserted, updated, deleted = events(db)
    before = {
        "id": 1, "line": 2, "what?": "a&b ü='", "amount": "1.50", "at": "2026-01-02T03:04:05+00:00",
        "spot": "(1,2)",
    }
    after = before | {"amount": "2", "what?": None}
    table = 'public."Order Line"'
    for event, op, data, backup in (
        (inserted, "INSERT", before, None),
        (updated, "UPDATE", after, before),
        (deleted, "DELETE", after, None),
    ):
        kind, payload, extra1, extra2, extra3 = event
        assert json.loads(str(kind)) == {
            "op": op, "table": ["public", "Order Line"], "pkey": ["line", "id"],
        }
        assert (json.loads(str(payload)), extra1, extra3) == (data, table, None)
        assert (None if extra2 is None else json.loads(extra2)) == backup


def test_changes_as_url_encoded_pairs(db: Connection) -> None:
    capture(db, "logutriga", "ignore=at,spot", "backup")
    for statement in (INSERT, UPDATE, DELETE):
        db.execute(statement.encode())
    table = 'public."Order Line"'
    before = "id=1&line=2&what%3f=a%26b+%c3%bc%3d%27&amount=1.50"
    after = "id=1&line=2&what%3f&amount=2"
    assert events(db) == [
        ("I:line,id", before, table, None, None),
        ("U:line,id", after, table, before, None),
        ("D:line,id", after, table, None, None),
    ]


def test_changes_as_statements_make_a_copy(db: Connection) -> None:
    """Run elsewhere, one after the other, they do there what was done here."""
    for table in ('"Order Line"', "parts"):
        capture(db, "sqltriga", table=table)
    for statement in (
        INSERT, UPDATE, "insert into public.parts values (1, 10), (2, 20)",
        'update public."Order Line" set id = 7', 'update public."Order Line" set id = id',
        "insert into public.\"Order Line\" values (3, 3, 'it''s \\ \"x\"', null, 'infinity', null)",
        "update public.parts set gross = 40 where id = 2", "delete from public.parts where id = 1",
    ):
        db.execute(statement.encode())
    found = events(db)
    assert found[:3] == [
        ("I", 'INSERT INTO public."Order Line" (id, line, "what?", amount, at, spot) VALUES'
              " ('1', '2', 'a&b ü=''', '1.50', '" + str(value(
                  db, "select '2026-01-02 03:04:05+00'::timestamptz::text")) + "', '(1,2)')",
         'public."Order Line"', None, None),
        ("U", 'UPDATE public."Order Line" SET "what?" = NULL, amount = \'2\''
              " WHERE line = '2' AND id = '1'",
         'public."Order Line"', None, None),
        ("I", "INSERT INTO public.parts (id, gross) VALUES ('1', '10')", "public.parts", None, None),
    ]
    assert ("D", "DELETE FROM public.parts WHERE id = '1'", "public.parts", None, None) in found

    contents = [
        rows(db, 'select "Order Line"::text from public."Order Line" order by 1'),
        rows(db, "select parts::text from public.parts order by 1"),
    ]
    db.execute('drop trigger capture on public."Order Line"; drop trigger capture on public.parts')
    db.execute('truncate public."Order Line", public.parts')
    for event in found:
        db.execute(str(event[1]).encode())
    assert [
        rows(db, 'select "Order Line"::text from public."Order Line" order by 1'),
        rows(db, "select parts::text from public.parts order by 1"),
    ] == contents


def test_a_statement_needs_a_key_to_find_the_row(db: Connection) -> None:
    capture(db, "sqltriga", table="notes")
    db.execute("insert into public.notes values ('x', null)")
    for statement in ("update public.notes set body = 'y'", "delete from public.notes"):
        with pytest.raises(psycopg.Error, match="has no primary key") as caught:
            db.execute(statement.encode())
        assert "pkey=" in str(caught.value.diag.message_hint)
    db.execute("drop trigger capture on public.notes")
    capture(db, "sqltriga", "pkey=body,mark", table="notes")
    db.execute("delete from public.notes")
    assert events(db)[-1][1] == "DELETE FROM public.notes WHERE body = 'x' AND mark IS NULL"


@pytest.mark.parametrize("how", ["jsontriga", "logutriga", "sqltriga"])
def test_an_update_of_ignored_columns_is_no_event(db: Connection, how: str) -> None:
    capture(db, how, "ignore=at,spot")
    db.execute(INSERT.encode())
    db.execute('update public."Order Line" set at = now(), spot = null')
    db.execute('update public."Order Line" set at = now(), amount = 9')
    db.execute('update public."Order Line" set id = id')
    inserted, *updates = events(db)
    assert "spot" not in str(inserted)
    assert len(updates) == 2


def test_events_can_be_chosen_and_labelled_by_expressions(db: Connection) -> None:
    capture(
        db, "jsontriga", "when=amount > 1", "ev_type='order.' || lower('CHANGED')", 'ev_extra1="what?"',
        "ev_extra2=line", "ev_extra3=null", 'ev_extra4=(select max(amount) from public."Order Line")',
        "backup",
    )
    db.execute("insert into public.\"Order Line\" values (1, 5, 'x', 0.5), (2, 6, 'y', 3), (3, 7, 'z', null)")
    db.execute('delete from public."Order Line"')
    found = rows(
        db, "select ev_type, ev_extra1, ev_extra2, ev_extra3, ev_extra4 from pgque.event_1 order by ev_id"
    )
    assert found == [
        ("order.changed", "y", "6", None, "3"),
        ("order.changed", "y", "6", None, None),
    ]


@pytest.mark.parametrize("how", ["jsontriga", "logutriga", "sqltriga"])
def test_skip_keeps_the_table_as_it_is(db: Connection, how: str) -> None:
    db.execute(INSERT.encode())
    capture(db, how, "SKIP", timing="before")
    before = rows(db, 'select "Order Line"::text from public."Order Line"')
    for statement in (INSERT.replace("(1, 2,", "(5, 2,"), UPDATE, DELETE):
        db.execute(statement.encode())
    assert rows(db, 'select "Order Line"::text from public."Order Line"') == before
    assert len(events(db)) == 3


@pytest.mark.parametrize(
    ("how", "inserted", "deleted"),
    [
        ("jsontriga", "{}", "{}"),
        ("logutriga", "", ""),
        ("sqltriga", "INSERT INTO public.parts DEFAULT VALUES", "DELETE FROM public.parts WHERE id = '1'"),
    ],
)
def test_a_table_may_be_captured_without_its_columns(
    db: Connection, how: str, inserted: str, deleted: str
) -> None:
    capture(db, how, "ignore=id,gross,net", table="parts")
    db.execute(
        "insert into public.parts values (1, 2); update public.parts set gross = 3;"
        " delete from public.parts"
    )
    assert [event[1] for event in events(db)] == [inserted, deleted]


def test_a_before_trigger_without_skip_lets_the_change_through(db: Connection) -> None:
    capture(db, "logutriga", timing="before")
    for statement in (INSERT, UPDATE):
        db.execute(statement.encode())
    assert value(db, 'select amount from public."Order Line"') == 2
    db.execute(DELETE.encode())
    assert rows(db, 'select from public."Order Line"') == []
    assert len(events(db)) == 3


@pytest.mark.parametrize(
    "argument", ["colour=red", "skip", "BACKUP", "ev_extra5=1", "ev_data=1", "when", "", "ev_extra11=1"]
)
def test_an_argument_that_nobody_knows_is_refused(db: Connection, argument: str) -> None:
    capture(db, "jsontriga", argument, table="notes")
    with pytest.raises(psycopg.Error, match="unknown trigger argument"):
        db.execute("insert into public.notes values ('x', 'y')")


def test_triggers_in_the_wrong_place_are_refused(db: Connection) -> None:
    capture(db, "jsontriga", "SKIP", table="notes")
    with pytest.raises(psycopg.Error, match="SKIP needs a BEFORE trigger"):
        db.execute("insert into public.notes values ('x', 'y')")
    db.execute(
        "create trigger whole after insert on public.parts execute function pgque.jsontriga('changes');"
        " create trigger nowhere after insert on public.\"Order Line\""
        " for each row execute function pgque.jsontriga()"
    )
    with pytest.raises(psycopg.Error, match="are for each row"):
        db.execute("insert into public.parts values (1, 2)")
    with pytest.raises(psycopg.Error, match="first argument of the trigger must be a queue"):
        db.execute(INSERT.encode())


def test_the_table_of_the_moment_counts(db: Connection) -> None:
    """Several tables, and columns that come and go, within one session."""
    capture(db, "jsontriga")
    capture(db, "jsontriga", table="notes")
    db.execute("insert into public.notes values ('x', 'y')")
    db.execute(INSERT.encode())
    db.execute("alter table public.notes drop column mark, add column size int default 3")
    db.execute("insert into public.notes values ('z')")
    found = [json.loads(str(event[1])) for event in events(db)]
    assert [list(data) for data in found] == [
        ["body", "mark"], ["id", "line", "what?", "amount", "at", "spot"], ["body", "size"],
    ]


def test_whoever_changes_the_table_must_be_allowed_to_send(db: Connection) -> None:
    """What an argument evaluates runs with his rights, not with those of the engine's owner."""
    db.execute("create table public.secret (x int); insert into public.secret values (7)")
    capture(db, "jsontriga", table="notes")
    capture(db, "jsontriga", "ev_extra1=(select x from public.secret)", table="parts")
    db.execute(
        "create role clerk; grant usage on schema public to clerk;"
        " grant insert on public.notes, public.parts to clerk"
    )
    try:
        db.execute("set role clerk")
        with pytest.raises(psycopg.errors.InsufficientPrivilege, match="pgque"):
            db.execute("insert into public.notes values ('x', 'y')")
        db.execute("reset role; grant pgque_writer to clerk; set role clerk")
        db.execute("insert into public.notes values ('x', 'y')")
        with pytest.raises(psycopg.errors.InsufficientPrivilege, match="secret"):
            db.execute("insert into public.parts values (1, 2)")
    finally:
        db.execute("reset role; drop owned by clerk; drop role clerk")
    assert len(events(db)) == 1


def test_triggers_call_nothing_of_the_callers_search_path(db: Connection) -> None:
    capture(db, "logutriga")
    db.execute(
        "create schema trap;"
        " create function trap.concat_ws(text, variadic text[]) returns text language plpgsql as"
        " $$ begin raise exception 'trapped'; end $$"
    )
    db.execute("set search_path = trap, pg_catalog")
    db.execute(INSERT.encode())
    assert len(events(db)) == 1
