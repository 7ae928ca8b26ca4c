"""A database with Debian's PgQ and its pack, in place of PgQue's."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from pgque_exporter.demo.cluster import Cluster
from tests.support.database import Database, new_database
from tests.support.observed import Connection
from tests.support.pgq import PACK_INSTALL, SCHEMA, PgqQueue, pgq_cluster
from tests.support.tools import Unavailable


@pytest.fixture(scope="session")
def pgq_server() -> Iterator[Cluster]:
    """A running server that has PgQ."""
    try:
        server = pgq_cluster()
    except Unavailable as error:
        pytest.skip(f"PgQ: {error}")
    with server as running:
        yield running


@pytest.fixture(scope="session")
def pgq_template(pgq_server: Cluster) -> Iterator[str]:
    """Name of a database with PgQ; copied, never connected to."""
    with new_database(pgq_server) as template:
        template.connect().execute("create extension pgq")
        template.close()
        yield template.name


@pytest.fixture
def pgq_database(pgq_server: Cluster, pgq_template: str) -> Iterator[Database]:
    """A fresh database with PgQ, without a pack."""
    with new_database(pgq_server, template=pgq_template) as fresh:
        yield fresh


@pytest.fixture
def pack_database(pgq_database: Database) -> Database:
    """The same with the pack."""
    pgq_database.install(PACK_INSTALL)
    return pgq_database


@pytest.fixture
def queue(db: Connection) -> PgqQueue:
    """A queue named `q` without consumers, ticked whenever asked with an event waiting."""
    queue = PgqQueue(db, "q", SCHEMA)
    queue.run("select pgq.create_queue('q')")
    queue.configure("ticker_max_count", "1")
    return queue
