"""A database for each test that is as good as new, and sooner there than a new one."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest
from psycopg import sql

from pgque_exporter.demo.cluster import Cluster
from tests.support.database import ENGINE_INSTALL, Database, new_database


@pytest.fixture(scope="session")
def reused_database(cluster: Cluster) -> Iterator[str]:
    """One database per server; a server takes far longer to copy a database than to run the install."""
    with new_database(cluster) as database:
        yield database.name


@pytest.fixture
def engine_database(cluster: Cluster, reused_database: str) -> Iterator[Database]:
    """Everything of the test before thrown out, the engine installed anew: ids start at 1."""
    with psycopg.connect(cluster.dsn(reused_database), autocommit=True) as admin:
        admin.execute(
            "select pg_terminate_backend(pid, 5000) from pg_stat_activity"
            " where datname = current_database() and backend_type = 'client backend'"
            " and pid <> pg_backend_pid()"
        )
        admin.execute("set client_min_messages = warning")
        for (schema,) in admin.execute(
            "select nspname from pg_namespace where nspname !~ '^(pg_|information_schema$)'"
        ).fetchall():
            admin.execute(sql.SQL("drop schema {} cascade").format(sql.Identifier(schema)))
        admin.execute("create schema public")
        admin.execute(ENGINE_INSTALL.read_text(encoding="utf-8"))
    database = Database(cluster, reused_database)
    try:
        yield database
    finally:
        database.close()
