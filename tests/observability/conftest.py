"""A PgQue database with the pack, and a queue to drive."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest
from psycopg.rows import dict_row

from tests.support.database import INSTRUMENTATION_INSTALL, Database
from tests.support.observed import Connection, Queue


@pytest.fixture
def db(pack_database: Database) -> Iterator[Connection]:
    """A superuser's connection to a database with engine and pack."""
    with psycopg.connect(pack_database.dsn(), autocommit=True, row_factory=dict_row) as connection:
        yield connection


@pytest.fixture
def queue(db: Connection) -> Queue:
    """A queue named `q` without consumers, ticked whenever asked with an event waiting."""
    db.execute("select pgque.create_queue('q')")
    db.execute("select pgque.set_queue_config('q', 'ticker_max_count', '1')")
    return Queue(db, "q")


@pytest.fixture
def instrumented(pack_database: Database, db: Connection) -> Connection:
    """A superuser's connection to an instrumented database."""
    pack_database.install(INSTRUMENTATION_INSTALL)
    return db


@pytest.fixture
def counted(instrumented: Connection, queue: Queue) -> Queue:
    """The queue, instrumented, its consumer `app` at its beginning."""
    queue.subscribe("app")
    return queue
