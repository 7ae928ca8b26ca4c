"""The engine against its function reference: every function there, with these names, for these roles."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
import pytest
from psycopg import sql

from tests.engine.reference import (
    ADMIN,
    BOTH,
    COLUMNS_OF_DEAD_LETTER,
    COLUMNS_OF_MESSAGE,
    OWNER,
    READER,
    WRITER,
    documented,
    documented_grants,
)
from tests.support.database import Connection, Database
from tests.support.queue import rows

ROLES = ("pgque_reader", "pgque_writer", "pgque_admin", None)
_FUNCTIONS = """
    select regexp_replace(p.oid::regprocedure::text, '^pgque\\.', ''), p.prokind::text,
        p.proname || '(' || pg_get_function_arguments(p.oid) || ')',
        coalesce(pg_get_function_result(p.oid), 'procedure'),
        array(select format_type(t, null) from unnest(p.proargtypes) with ordinality u(t, n) order by n)
    from pg_proc p
    where p.pronamespace = 'pgque'::regnamespace
"""


def may(role: str | None, granted: str) -> bool:
    """Whether a member of `role` is to call what is granted so."""
    return {
        "pgque_reader": granted in (READER, BOTH),
        "pgque_writer": granted in (WRITER, BOTH),
        "pgque_admin": granted != OWNER,
        None: False,
    }[role]


@contextmanager
def logged_in(database: Database, role: str | None) -> Iterator[Connection]:
    """A connection of a login role that is a member of `role`, or of none."""
    admin = database.connect()
    user = sql.Identifier(f"member_of_{role}")
    admin.execute(sql.SQL("create role {} login").format(user))
    try:
        if role is not None:
            admin.execute(sql.SQL("grant {} to {}").format(sql.Identifier(role), user))
        connection = database.connect(user=f"member_of_{role}", autocommit=False)
        yield connection
        connection.close()
    finally:
        admin.execute(sql.SQL("drop role {}").format(user))


def test_every_documented_function_is_there_with_its_names_types_and_defaults(
    engine_database: Database,
) -> None:
    found = {
        arguments: result
        for _, _, arguments, result, _ in rows(engine_database.connect(), _FUNCTIONS)
    }
    missing = {
        function: result for function, result in documented().items() if found.get(function) != result
    }
    assert missing == {}


@pytest.mark.parametrize("role", ROLES)
def test_a_role_is_let_into_exactly_what_is_granted_to_it(
    engine_database: Database, role: str | None
) -> None:
    """By calling every function with NULLs: what happens behind the door doesn't count here."""
    grants = documented_grants()
    wrong = []
    functions = rows(engine_database.connect(), _FUNCTIONS)
    assert {signature for signature, *_ in functions} >= set(grants)
    with logged_in(engine_database, role) as connection:
        for signature, kind, _, _, types in functions:
            call = "{} {}({})".format(
                "call" if kind == "p" else "select", f"pgque.{signature.split('(')[0]}",
                ", ".join(f"null::{kind}" for kind in types),
            )
            refused = False
            try:
                connection.execute(call.encode())
            except psycopg.errors.InsufficientPrivilege as error:
                name = signature.split("(")[0]
                refused = str(error.diag.message_primary) in (
                    f"permission denied for function {name}",
                    f"permission denied for procedure {name}",
                    "permission denied for schema pgque",
                )
            except psycopg.Error:
                pass
            connection.rollback()
            if refused == may(role, grants.get(signature, ADMIN)):
                wrong.append(f"{signature}: {'refused' if refused else 'let in'}")
    assert wrong == []


def test_messages_and_dead_letters_have_the_documented_columns(engine_database: Database) -> None:
    for name, columns in (("message", COLUMNS_OF_MESSAGE), ("dead_letter", COLUMNS_OF_DEAD_LETTER)):
        found = rows(
            engine_database.connect(),
            "select attname || ' ' || format_type(atttypid, atttypmod) from pg_attribute"
            " join pg_class on pg_class.oid = attrelid where attnum > 0 and not attisdropped"
            " and relnamespace = 'pgque'::regnamespace and relname = %s order by attnum", name,
        )
        assert tuple(column for (column,) in found) == columns


def test_readers_see_all_tables_and_writers_none(engine_database: Database) -> None:
    db = engine_database.connect()
    db.execute("select pgque.create_queue('orders')")
    tables = (
        "select relname, has_table_privilege(%s, oid, 'select'), array("
        " select r from unnest(array['insert', 'update', 'delete', 'truncate', 'references', 'trigger']) r"
        " where has_table_privilege(%s, oid, r)) from pg_class"
        " where relnamespace = 'pgque'::regnamespace and relkind = 'r'"
    )
    for role, reads, writes in (
        ("pgque_reader", True, []), ("pgque_writer", False, []),
        ("pgque_admin", True, ["insert", "update", "delete", "truncate"]),
    ):
        found = rows(db, tables, role, role)
        assert {row[0] for row in found} >= {"queue", "dead_letter", "delayed_events", "event_1_0"}
        assert [row for row in found if row[1:] != (reads, writes)] == []
