from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Iterator

import pytest
from psycopg import sql

from pgque_exporter import cli
from pgque_exporter.demo.cluster import Cluster
from tests.support.database import Connection, Database, new_database

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(capfdbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run a command in this process: exit code, standard output, standard error."""
    for name in list(os.environ):
        if name.startswith(("PG", "OTEL_")):
            monkeypatch.delenv(name)

    def call(*words: str) -> tuple[int, str, str]:
        try:
            code = cli.main(words)
        except SystemExit as exit_:
            code = exit_.code if isinstance(exit_.code, int) else 1
        captured = capfdbinary.readouterr()
        return code, captured.out.decode(), captured.err.decode()

    return call


@pytest.fixture
def login(cluster: Cluster) -> Iterator[str]:
    """A login role without any right, gone after the test."""
    role = f"login_{uuid.uuid4().hex[:8]}"
    with new_database(cluster) as anywhere:
        anywhere.connect().execute(sql.SQL("create role {} login").format(sql.Identifier(role)))
        yield role
        drop_role(anywhere.connect(), role)


def drop_role(connection: Connection, role: str) -> None:
    connection.execute(sql.SQL("drop role if exists {}").format(sql.Identifier(role)))


def owned_by(database: Database, role: str) -> None:
    """Give the database to `role`."""
    statement = sql.SQL("alter database {} owner to {}")
    database.connect().execute(statement.format(sql.Identifier(database.name), sql.Identifier(role)))
