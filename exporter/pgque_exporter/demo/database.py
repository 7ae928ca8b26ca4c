"""The demo's database: engine, pack, queues, and a role of its own for everyone who connects."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import LiteralString

import psycopg
from psycopg import sql

from pgque_exporter import sqlfiles
from pgque_exporter.demo.cluster import Cluster
from pgque_exporter.demo.stories import STORIES

ENGINE = "pgque"
DATABASE = "shop"

# The service gets nothing but the right to monitor: what works here works with least privilege.
_ROLES: tuple[LiteralString, ...] = (
    "create role app login password {password}",
    "grant pgque_writer, pgque_reader to app",
    "create role operator login password {password}",
    "grant pgque_admin to operator",
    "create role exporter login password {password}",
    "grant pgque_monitor to exporter",
)


@dataclass(frozen=True)
class DemoDatabase:
    """Connection strings of the demo's database, one per role; all have the same password."""

    port: int
    server_version: str
    password: str = field(repr=False)

    def dsn(self, user: str) -> str:
        return f"postgres://{user}:{self.password}@127.0.0.1:{self.port}/{DATABASE}"


def set_up(cluster: Cluster, password: str) -> DemoDatabase:
    """Create the database with engine, instrumented pack, roles, queues and consumers."""
    with psycopg.connect(cluster.dsn(), autocommit=True) as admin:
        admin.execute(f"create database {DATABASE}".encode())
    with psycopg.connect(cluster.dsn(DATABASE), autocommit=True) as owner:
        owner.execute(sqlfiles.engine_install_sql(ENGINE).encode())
        owner.execute(sqlfiles.pack_install_sql(ENGINE).encode())
        owner.execute(sqlfiles.instrumentation_install_sql(ENGINE).encode())
        for statement in _ROLES:
            owner.execute(sql.SQL(statement).format(password=password))
        for story in STORIES:
            owner.execute("select pgque.create_queue(%s)", (story.queue,))
            for name, value in story.settings.items():
                owner.execute("select pgque.set_queue_config(%s, %s, %s)", (story.queue, name, value))
            for consumer in story.consumers:
                owner.execute("select pgque.subscribe(%s, %s)", (story.queue, consumer))
        version = owner.info.parameter_status("server_version") or "?"
    return DemoDatabase(cluster.port, version.partition(" ")[0], password)
