"""Every block of SQL in a runbook runs as the role that it names, with the labels of an alert, by psql."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from psycopg.rows import dict_row

from tests.alerts.documents import RUNBOOKS
from tests.support.database import Database, server_programs
from tests.support.observed import Queue

ROLES = ("pgque_monitor", "pgque_admin", "pg_monitor")
QUEUE, CONSUMER = "billing's", "ledger"
each_runbook = pytest.mark.parametrize(
    "runbook", sorted(RUNBOOKS.glob("PgQue*.md")), ids=lambda path: str(path.stem)
)


def blocks(runbook: Path) -> list[tuple[str, str]]:
    """Role and SQL of each block."""
    found = re.findall(r"^```sql\n(.*?)^```", runbook.read_text("utf-8"), re.DOTALL | re.MULTILINE)
    roles = [re.match(r"-- as (\w+)\n", block) for block in found]
    assert all(roles), f"{runbook.name}: a block of SQL doesn't say who may run it"
    return [(role[1], block) for role, block in zip(roles, found, strict=True) if role]


@pytest.fixture
def troubled(pack_database: Database) -> Iterator[Database]:
    """A queue with all kinds of trouble, and a login role for each of those that runbooks name."""
    with psycopg.connect(pack_database.dsn(), autocommit=True, row_factory=dict_row) as db:
        db.execute("select pgque.create_queue(%s)", (QUEUE,))
        queue = Queue(db, QUEUE)
        queue.subscribe(CONSUMER)
        for parameter, value in (("ticker_max_count", "1"), ("max_retries", "0")):
            queue.configure(parameter, value)
        queue.send_and_tick(3)
        queue.nack(CONSUMER, queue.receive(CONSUMER)[0])
        queue.wait(9000)
        queue.send_and_tick(2)
        queue.send(1)
        for role in ROLES:
            db.execute(f"create role on_call_{role} login in role {role}".encode())
        db.execute("select pg_advisory_lock(1)")  # what a leader holds
        yield pack_database
        for role in ROLES:
            db.execute(f"drop owned by on_call_{role}".encode())
            db.execute(f"drop role on_call_{role}".encode())


@each_runbook
def test_the_sql_runs(runbook: Path, troubled: Database) -> None:
    answers = []
    for role, block in blocks(runbook):
        result = subprocess.run(
            [
                str(server_programs("pg18") / "psql"),
                "--no-psqlrc",
                "--tuples-only",
                "--set=ON_ERROR_STOP=1",
                f"--set=queue={QUEUE}",
                f"--set=consumer={CONSUMER}",
                troubled.dsn(user=f"on_call_{role}"),
            ],
            input=block,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert result.returncode == 0, f"{block}\n{result.stderr}"
        answers.append(result.stdout.strip())
    assert any(answers), "in all this trouble not one line was found"


def test_roles_are_known() -> None:
    named = {role for path in RUNBOOKS.glob("*.md") for role, _ in blocks(path)}
    assert named == set(ROLES)
