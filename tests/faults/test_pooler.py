"""Behind PgBouncer in transaction mode the service polls as well, whatever happens to the pooler."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from pgque_exporter.connection import FailureKind
from tests.faults.faults import Cost, Fault, fault, server_restarted, server_stopped
from tests.faults.stage import DATABASE, PASSWORD, USER, Stage
from tests.faults.trial import Record, trial
from tests.support.pgbouncer import PgBouncer, pgbouncer
from tests.support.processes import wait_for
from tests.support.tools import Unavailable

pytestmark = pytest.mark.slow


class Pooled(Stage):
    """A stage that the service reaches through the pooler only."""

    def __init__(self, stage: Stage, pooler: PgBouncer) -> None:
        self.cluster, self.proxy, self.pooler = stage.cluster, stage.proxy, pooler

    @property
    def dsn(self) -> str:
        return make_conninfo(host="127.0.0.1", port=self.pooler.port, dbname=DATABASE, user=USER)


@pytest.fixture
def pooled(victim: Stage, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pooled]:
    upstream = {
        "host": "127.0.0.1",
        "port": victim.proxy.port,
        "dbname": DATABASE,
        "user": USER,
        "password": PASSWORD,
    }
    try:
        with pgbouncer(tmp_path_factory.mktemp("pooler"), DATABASE, upstream) as pooler:
            yield Pooled(victim, pooler)
    except Unavailable as error:
        pytest.skip(f"pgbouncer: {error}")


@contextmanager
def _nothing(_stage: Pooled) -> Iterator[None]:
    yield


@contextmanager
def _killed(stage: Pooled) -> Iterator[None]:
    stage.pooler.process.send_signal(signal.SIGKILL)
    stage.pooler.process.wait(10)
    try:
        yield
    finally:
        stage.pooler.start()


@contextmanager
def _frozen(stage: Pooled) -> Iterator[None]:
    with stage.frozen(stage.pooler.process.pid):
        yield


@contextmanager
def _server_stopped(stage: Pooled) -> Iterator[None]:
    try:
        with server_stopped(stage):
            yield
    finally:
        # The pooler repeats its last refusal for a moment: until then the fault isn't over.
        wait_for(lambda: _logs_in(stage), "the pooler reaches its server", ignoring=(psycopg.Error,))


def _logs_in(stage: Pooled) -> bool:
    with psycopg.connect(stage.dsn, autocommit=True) as connection:
        return connection.execute("select 1").fetchone() == (1,)


FAULTS: dict[str, Fault] = {
    "pooler at work": fault(_nothing),
    "pooler killed": fault(_killed, FailureKind.CONNECTION),
    "pooler frozen": fault(_frozen, FailureKind.TIMEOUT),
    # A pooler lets its clients wait while it can't log in.
    "pooler's server restarted": fault(
        server_restarted, FailureKind.CONNECTION, FailureKind.TIMEOUT, cost=Cost.LITTLE
    ),
    "pooler's server stopped": fault(_server_stopped, FailureKind.CONNECTION, FailureKind.TIMEOUT),
}


@pytest.mark.parametrize("fault", FAULTS.values(), ids=list(FAULTS))
def test_a_fault_costs_its_own_polls_only(
    fault: Fault, pooled: Pooled, bystander: Stage, record_property: Record
) -> None:
    trial(fault, pooled, bystander, record_property)
