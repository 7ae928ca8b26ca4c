"""The SQL that a dashboard tells its reader to run, run as the role that it names."""

from __future__ import annotations

import re

import psycopg
import pytest

from tests.support.dashboards import boards
from tests.support.database import Database

# Each statement stands below a comment that ends with the role in brackets.
_STATEMENT = re.compile(r"^-- [^\n]*\((\w+)\)\n(.*?;)$", re.DOTALL | re.MULTILINE)


def statements() -> list[tuple[str, str]]:
    """Role and statement, of all panels with words."""
    return [
        found
        for board in boards()
        for panel in board.panels
        if panel["type"] == "text"
        for found in _STATEMENT.findall(panel["options"]["content"])
    ]


@pytest.mark.servers("pg15")
def test_it_runs_and_finds_the_reasons(pack_database: Database) -> None:
    with psycopg.connect(pack_database.dsn(), autocommit=True) as db:
        db.execute("select pgque.create_queue('webhooks')")
        for setting, value in (("max_retries", "0"), ("ticker_max_count", "1")):
            db.execute("select pgque.set_queue_config('webhooks', %s, %s)", (setting, value))
        db.execute("select pgque.subscribe('webhooks', 'deliver')")
        db.execute("select pgque.send('webhooks', 'shipped', '{}'::jsonb)")
        db.execute("select pgque.ticker('webhooks')")
        db.execute(
            "select pgque.nack(m.batch_id, m, '1 second', '410 Gone')"
            " from pgque.receive('webhooks', 'deliver', 10) as m"
        )
        answers = {}
        for role, statement in statements():
            db.execute(f"set role {role}".encode())
            answers[role] = db.execute(statement.encode()).fetchall()
            db.execute("reset role")
    assert answers["pgque_reader"][0][:2] == ("410 Gone", 1)
    assert answers["pgque_monitor"]
    assert answers["pgque_admin"]
