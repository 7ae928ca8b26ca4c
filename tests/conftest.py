"""Real servers for every test that wants one: no test talks to a pretended database."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from pgque_exporter.demo.cluster import Cluster
from pgque_exporter.errors import UserError
from tests.alerts.delays import show_delays
from tests.faults.costs import show_costs
from tests.support.database import ENGINE_INSTALL, PACK_INSTALL, Database, installation, new_database
from tests.support.idle_watch import IdleWatch
from tests.support.pgq import pgq_cluster
from tests.support.tools import Unavailable

# The newest and the oldest are where things differ; the SQL itself must be right on each.
SERVERS = ("pg18", "pg15")
SERVERS_OF_SQL = (*SERVERS, "pg17", "pg16")
SQL_SUITES = ("engine", "history", "observability")
_IDLE_WATCH = pytest.StashKey[IdleWatch]()


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run a test that uses `cluster` on the servers of its folder, or on those of its `servers` mark."""
    if "cluster" not in metafunc.fixturenames:
        return
    mark = metafunc.definition.get_closest_marker("servers")
    in_sql_suite = metafunc.definition.path.parent.name in SQL_SUITES
    servers = mark.args if mark else SERVERS_OF_SQL if in_sql_suite else SERVERS
    metafunc.parametrize("cluster", servers, indirect=True, scope="session")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put last what waits for something that runs beside the others."""
    items.sort(key=lambda item: "idle_watch" in getattr(item, "fixturenames", ()))


def pytest_collection_finish(session: pytest.Session) -> None:
    """Begin the watch, in each process that has its test, as early as can be."""
    if session.items and "idle_watch" in getattr(session.items[-1], "fixturenames", ()):
        session.stash[_IDLE_WATCH] = IdleWatch()
        session.stash[_IDLE_WATCH].start()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say what was measured; here, since a run with several workers reads no other conftest.py itself."""
    show_costs(terminalreporter)
    show_delays(terminalreporter)


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Let no watch outlive the tests."""
    if _IDLE_WATCH in session.stash:
        session.stash[_IDLE_WATCH].stop()


@pytest.fixture(scope="session")
def idle_watch(request: pytest.FixtureRequest) -> IdleWatch:
    """Idle queues, watched since the tests began; see tests/support/idle_watch.py."""
    return request.session.stash[_IDLE_WATCH]


@pytest.fixture(scope="session")
def cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """A running server."""
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
