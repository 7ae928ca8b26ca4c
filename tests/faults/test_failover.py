"""A target with several hosts follows the one that may be written to."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from pgque_exporter.connection import FailureKind
from pgque_exporter.demo.cluster import Cluster, embedded_bindir
from tests.faults.faults import fault
from tests.faults.proxy import Proxy
from tests.faults.stage import DATABASE, USER, Stage
from tests.faults.trial import Record, trial
from tests.support.standby import Standby

pytestmark = pytest.mark.slow


class Pair(Stage):
    """A primary and its standby; `cluster` is the one that may be written to."""

    def __init__(self, primary: Cluster, standby: Standby, proxy: Proxy) -> None:
        super().__init__(primary, proxy)
        self.standby = standby
        self._ports = f"{primary.port},{standby.port}"

    @property
    def dsn(self) -> str:
        return make_conninfo(
            host="127.0.0.1,127.0.0.1",
            port=self._ports,
            dbname=DATABASE,
            user=USER,
            target_session_attrs="read-write",
        )


@pytest.fixture
def pair() -> Iterator[Pair]:
    with (
        Cluster(embedded_bindir()) as primary,
        Standby(primary) as standby,
        Proxy(primary.port) as proxy,
    ):
        both = Pair(primary, standby, proxy)
        standby.catch_up()
        yield both


@contextmanager
def failover(pair: Pair) -> Iterator[None]:
    """The primary dies; some time later the standby takes its place."""
    pair.cluster.stop(immediate=True)
    try:
        yield
    finally:
        pair.cluster = pair.standby
        with psycopg.connect(pair.standby.dsn(), autocommit=True) as admin:
            admin.execute("select pg_promote()")


def test_failover(pair: Pair, bystander: Stage, record_property: Record) -> None:
    trial(fault(failover, FailureKind.CONNECTION), pair, bystander, record_property)
