"""A database with Debian's PgQ and its pack, in place of PgQue's."""

from __future__ import annotations

import pytest

from tests.support.database import Database
from tests.support.observed import Connection
from tests.support.pgq import PACK_INSTALL, SCHEMA, PgqQueue


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
