from __future__ import annotations

import pytest

from tests.exporter.harness import ToyPack
from tests.support.database import Database


@pytest.fixture
def toy(database: Database) -> ToyPack:
    """A fresh database with the toy pack; its DSN is `database.dsn()`."""
    return ToyPack(database.connect())
