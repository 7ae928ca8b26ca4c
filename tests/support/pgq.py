"""Debian's PgQ: a server that has it, its ticker, and a queue driven through its own functions."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar, cast

from pgque_exporter.demo.cluster import Cluster
from tests.support.database import ROOT
from tests.support.debian import EXTENSIONS, find_program, postgres
from tests.support.observed import Queue, Row
from tests.support.processes import Process

PACK_INSTALL = ROOT / "sql/observability/pgq/install.sql"
PACK_UNINSTALL = ROOT / "sql/observability/pgq/uninstall.sql"
SCHEMA = "pgq_observability"


class PgqQueue(Queue):
    """One queue of PgQ, with the contract of its pack."""

    engine: ClassVar[str] = "pgq"
    maintained_by: ClassVar[str] = "pgqd"
    times: ClassVar[tuple[tuple[str, str, str], ...]] = tuple(
        time for time in Queue.times if "dead_letter" not in time[0]
    )

    def send(self, count: int = 1) -> None:
        self.run(
            "select count(pgq.insert_event(%s, 'default', '{}')) from generate_series(1, %s)",
            self.name,
            count,
        )

    def force_tick(self) -> None:
        self.run("select pgq.force_tick(%s)", self.name)

    def receive(self, consumer: str) -> list[Row]:
        """The events of the next batch that has any."""
        while batch_id := self.run("select pgq.next_batch(%s, %s) as id", self.name, consumer)[0]["id"]:
            events = self.run(
                "select %s::bigint as batch_id, ev_id as msg_id from pgq.get_batch_events(%s)",
                batch_id,
                batch_id,
            )
            if events:
                return events
            self.run("select pgq.finish_batch(%s)", batch_id)
        return []

    def nack(self, consumer: str, message: Row) -> None:  # noqa: ARG002 (PgQ finds it by the batch)
        """Fail one event of the consumer's open batch; its retry is due in an hour."""
        (row,) = self.run(
            "select pgq.event_retry(%s, %s, 3600) as new", message["batch_id"], message["msg_id"]
        )
        assert cast("int", row["new"]) == 1


def pgq_cluster() -> Cluster:
    """A server that has the extension pgq, not started; raises Unavailable."""
    server = postgres(extensions=EXTENSIONS)
    return Cluster(server.bindir, env=server.env)


def pgqd(
    cluster: Cluster, databases: str, folder: Path, settings: Mapping[str, float] | None = None
) -> Process:
    """PgQ's ticker for these databases, not started: it ticks, brings back retries and rotates.

    `databases` is a comma-separated list; `settings` are periods in seconds.
    """
    program = find_program("pgqd")
    folder.mkdir(exist_ok=True)
    lines = {
        "pidfile": folder / "pgqd.pid",
        "base_connstr": f"host=127.0.0.1 port={cluster.port} user=postgres",
        "initial_database": "postgres",
        "database_list": databases,
        "ticker_period": 0.1,
        "check_period": 1,
        **(settings or {}),
    }
    config = folder / "pgqd.ini"
    config.write_text("[pgqd]\n" + "".join(f"{name} = {value}\n" for name, value in lines.items()))
    return Process([program.path, config], log=folder / "pgqd.log", env=program.env, cwd=folder)
