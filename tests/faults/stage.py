"""A server of its own that may be mistreated in every way, with a pack for the service to poll."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
from psycopg.conninfo import make_conninfo

from pgque_exporter.connection import APPLICATION_NAME
from pgque_exporter.demo.cluster import Cluster, embedded_bindir
from tests.exporter.harness import ToyPack
from tests.faults.proxy import Proxy
from tests.support.database import wait_until

DATABASE, USER, PASSWORD = "shop", "exporter", "correct-horse"
MAX_CONNECTIONS = 15
METRICS = "select * from toy_observability.row"


class Stage:
    """A cluster with a database to poll, reached directly or through a proxy."""

    def __init__(self, cluster: Cluster, proxy: Proxy) -> None:
        self.cluster = cluster
        self.proxy = proxy
        with self.admin("postgres") as admin:
            admin.execute(f"create role {USER} login password '{PASSWORD}'")
            admin.execute(f"create database {DATABASE}")
        with self.admin() as admin:
            toy = ToyPack(admin)
            toy.add("pgque.queue.depth", 1, queue="q")
            admin.execute(f"grant usage on schema toy_observability to {USER}")
            admin.execute(f"grant select on all tables in schema toy_observability to {USER}")

    @property
    def dsn(self) -> str:
        """For the service: through the proxy, as a user without rights."""
        return make_conninfo(self.cluster.dsn(DATABASE, USER, password=PASSWORD), port=self.proxy.port)

    @contextmanager
    def admin(self, database: str = DATABASE) -> Iterator[psycopg.Connection[Any]]:
        """A connection of the superuser, past the proxy."""
        with psycopg.connect(self.cluster.dsn(database), autocommit=True) as connection:
            yield connection

    def run(self, *statements: str, database: str = DATABASE) -> None:
        """Run statements as the superuser."""
        with self.admin(database) as admin:
            for statement in statements:
                admin.execute(statement.encode())

    def sessions(self, columns: str = "pid") -> list[tuple[Any, ...]]:
        """What pg_stat_activity says of the service's sessions."""
        query = f"select {columns} from pg_stat_activity where application_name = %s"
        with self.admin("postgres") as admin:
            return admin.execute(query.encode(), (APPLICATION_NAME,)).fetchall()

    def end_sessions(self) -> None:
        """End the service's sessions from the server's side, and wait until they are gone."""
        with self.admin("postgres") as admin:
            admin.execute(
                "select pg_terminate_backend(pid, 5000) from pg_stat_activity where application_name = %s",
                (APPLICATION_NAME,),
            )

    @contextmanager
    def frozen(self, *pids: int) -> Iterator[None]:
        """Processes of the server that don't move."""
        _signal(pids, signal.SIGSTOP)
        try:
            yield
        finally:
            _signal(pids, signal.SIGCONT)

    def processes(self) -> list[int]:
        """The server's process ids, the postmaster's first."""
        pid = self.cluster.pid
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text()
        return [pid, *map(int, children.split())]

    def kill_postmaster(self) -> None:
        """End the postmaster alone, without a chance to tidy up; the others notice by themselves."""
        pids = self.processes()
        os.kill(pids[0], signal.SIGKILL)
        self.cluster.stop()
        wait_until(
            lambda: not any(Path(f"/proc/{pid}").exists() for pid in pids), what="all of them are gone"
        )


@contextmanager
def stage() -> Iterator[Stage]:
    """A fresh one."""
    settings = {"max_connections": str(MAX_CONNECTIONS), "superuser_reserved_connections": "5"}
    with (
        Cluster(embedded_bindir(), settings=settings, password="superuser's") as cluster,
        Proxy(cluster.port) as proxy,
    ):
        yield Stage(cluster, proxy)


def _signal(pids: Iterable[int], number: signal.Signals) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):  # a session that was just about to end
            os.kill(pid, number)
