"""Databases of a throw-away server, and the small things that tests do with them."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
from psycopg import sql

from pgque_exporter.demo.cluster import Cluster, embedded_bindir
from tests.support.debian import postgres
from tests.support.tools import Postgres
from tests.support.wheels import WHEELS, wheel_postgres

ROOT = Path(__file__).resolve().parents[2]
ENGINE_INSTALL = ROOT / "sql" / "pgque" / "install.sql"
PACK_INSTALL = ROOT / "sql" / "observability" / "pgque" / "install.sql"
INSTRUMENTATION_INSTALL = PACK_INSTALL.parent / "instrumentation" / "install.sql"

Connection = psycopg.Connection[tuple[Any, ...]]


def installation(server_id: str) -> Postgres:
    """The server of this name, fetched if need be; raises Unavailable or UserError where there is none."""
    if server_id == "pg18":
        return Postgres(embedded_bindir())
    version = int(server_id.removeprefix("pg"))
    return wheel_postgres(version) if version in WHEELS else postgres(version)


def server_programs(server_id: str) -> Path:
    """Folder of its programs."""
    return installation(server_id).bindir


class Database:
    """One database of a cluster. Connections opened by `connect` are closed with it."""

    def __init__(self, cluster: Cluster, name: str) -> None:
        self.cluster = cluster
        self.name = name
        self._connections: list[Connection] = []

    def dsn(self, user: str = "postgres", **extra: str) -> str:
        return self.cluster.dsn(dbname=self.name, user=user, **extra)

    def connect(self, *, user: str = "postgres", autocommit: bool = True) -> Connection:
        """A connection, in autocommit by default, as ticker and consumers want it."""
        connection = psycopg.connect(self.dsn(user=user), autocommit=autocommit)
        self._connections.append(connection)
        return connection

    def install(self, path: Path) -> None:
        """Run a whole SQL file the way a user's migration tool does."""
        run_file(self.dsn(), path)

    def close(self) -> None:
        for connection in self._connections:
            connection.close()


def run_file(dsn: str, path: Path) -> None:
    """Run a SQL file by one call on an autocommit connection."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(path.read_text(encoding="utf-8"))


@contextmanager
def new_database(cluster: Cluster, *, template: str = "template1") -> Iterator[Database]:
    """A fresh database, dropped at the end even when somebody is still connected."""
    database = Database(cluster, f"test_{uuid.uuid4().hex[:12]}")
    name = sql.Identifier(database.name)
    with psycopg.connect(cluster.dsn(), autocommit=True) as admin:
        admin.execute(sql.SQL("create database {} template {}").format(name, sql.Identifier(template)))
        try:
            yield database
        finally:
            database.close()
            admin.execute(sql.SQL("drop database {} with (force)").format(name))


def wait_until(condition: Callable[[], object], *, what: str, timeout: float = 20.0) -> None:
    """Wait for a condition to come true; fail with its description when it never does."""
    deadline = time.monotonic() + timeout
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError(f"never happened: {what}")
        time.sleep(0.01)
