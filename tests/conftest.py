"""Real servers for every test that wants one: no test talks to a pretended database."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from pgque_exporter.demo.cluster import Cluster
from pgque_exporter.errors import UserError
from tests.support.database import ENGINE_INSTALL, PACK_INSTALL, Database, installation, new_database
from tests.support.debian import Unavailable


@pytest.fixture(scope="session", params=["pg18", "pg15"])
def cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """A running server. Tests that use it run once per server installed here."""
    try:
        server = installation(request.param)
    except (UserError, Unavailable) as error:
        pytest.skip(f"{request.param}: {error}")
    with Cluster(server.bindir, env=server.env) as running:
        yield running


@pytest.fixture
def database(cluster: Cluster) -> Iterator[Database]:
    """A fresh, empty database."""
    with new_database(cluster) as fresh:
        yield fresh


@pytest.fixture(scope="session")
def engine_template(cluster: Cluster) -> Iterator[str]:
    """Name of a database with the queue engine installed; copied, never connected to."""
    with new_database(cluster) as template:
        template.install(ENGINE_INSTALL)
        yield template.name


@pytest.fixture
def engine_database(cluster: Cluster, engine_template: str) -> Iterator[Database]:
    """A fresh database with the queue engine installed."""
    with new_database(cluster, template=engine_template) as fresh:
        yield fresh


@pytest.fixture(scope="session")
def pack_template(cluster: Cluster, engine_template: str) -> Iterator[str]:
    """Name of a database with the queue engine and its observability pack; copied, never connected to."""
    with new_database(cluster, template=engine_template) as template:
        template.install(PACK_INSTALL)
        yield template.name


@pytest.fixture
def pack_database(cluster: Cluster, pack_template: str) -> Iterator[Database]:
    """A fresh database with the queue engine and its observability pack installed."""
    with new_database(cluster, template=pack_template) as fresh:
        yield fresh
