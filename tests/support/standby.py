"""A hot standby of a throw-away cluster, by streaming replication."""

from __future__ import annotations

from typing import LiteralString

import psycopg

from pgque_exporter.demo.cluster import Cluster
from tests.support.database import wait_until


class Standby(Cluster):
    """A second server that replays what the first one writes, and answers queries meanwhile."""

    def __init__(self, primary: Cluster) -> None:
        super().__init__(primary._bindir, env=primary._env)
        self._primary = primary

    def catch_up(self) -> None:
        """Wait until all is replayed that the primary has committed so far."""
        with psycopg.connect(self._primary.dsn(), autocommit=True) as primary:
            primary.execute("set synchronous_commit = on")  # send it now, not when the writer wakes up
            row = primary.execute("insert into replayed default values returning id").fetchone()
        with psycopg.connect(self.dsn(), autocommit=True) as standby:
            query: LiteralString = "select count(*) from replayed where id = %s"
            wait_until(lambda: standby.execute(query, row).fetchone() == (1,), what="the standby catches up")

    def _make_data(self) -> None:
        with psycopg.connect(self._primary.dsn(), autocommit=True) as primary:
            primary.execute("create table if not exists replayed (id bigserial)")
        options = ("--write-recovery-conf", "--checkpoint=fast", "--no-sync", "--wal-method=stream")
        self._run("pg_basebackup", "-D", str(self.pgdata), "-d", self._primary.dsn(), *options)
