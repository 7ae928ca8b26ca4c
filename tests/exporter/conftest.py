from __future__ import annotations

from collections.abc import Iterator

import pytest

from pgque_exporter.demo.cluster import Cluster
from tests.exporter.harness import ToyPack
from tests.support.database import Database, new_database


@pytest.fixture
def other_database(cluster: Cluster) -> Iterator[Database]:
    """A second fresh, empty database of the same server."""
    with new_database(cluster) as fresh:
        yield fresh


@pytest.fixture
def toy(database: Database) -> ToyPack:
    """A fresh database with the toy pack; its DSN is `database.dsn()`."""
    return ToyPack(database.connect())
