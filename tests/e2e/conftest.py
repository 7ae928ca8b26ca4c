"""A database with something to see in every metric, and the service that watches it."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import psycopg
import pytest
from psycopg.rows import dict_row

from tests.support.database import Database
from tests.support.observed import Queue
from tests.support.processes import Process


@dataclass(frozen=True)
class Service:
    """A running `pgque-exporter run`."""

    address: str  # host:port
    process: Process

    def get(self, path: str, **headers: str) -> httpx.Response:
        return httpx.get(f"http://{self.address}{path}", headers=headers, timeout=10)


@contextmanager
def run_service(folder: Path, environment: Mapping[str, str]) -> Iterator[Service]:
    """The console script's `run`, configured by environment alone, on a free port."""
    process = Process(
        [Path(sys.executable).with_name("pgque-exporter"), "run"],
        log=folder / "service.log",
        env={"PGQUE_LISTEN": "127.0.0.1:0", "PGQUE_INTERVAL": "1s", **environment},
        cwd=folder,
    )
    with process:
        match = process.wait_for(
            lambda: re.search(r"listening on http://(\S+:\d+)", process.output()), "the service listens"
        )
        assert match
        service = Service(match[1], process)
        process.wait_for(lambda: service.get("/readyz").is_success, "the first poll is done")
        yield service


@pytest.fixture
def watched(pack_database: Database) -> Iterator[Database]:
    """Queues that are healthy, left behind with an open batch, and failing; nothing moves any more."""
    with psycopg.connect(pack_database.dsn(), autocommit=True, row_factory=dict_row) as db:
        queues = {}
        for name in ("orders", "billing", 'web"hooks\\\n'):
            db.execute("select pgque.create_queue(%s)", (name,))
            db.execute("select pgque.set_queue_config(%s, 'ticker_max_count', '1')", (name,))
            db.execute("select pgque.set_queue_config(%s, 'max_retries', '0')", (name,))
            for pace in ("ticker_max_lag", "ticker_idle_period"):  # or the ticker is late on a slow machine
                db.execute("select pgque.set_queue_config(%s, %s, '1 day')", (name, pace))
            queues[name] = Queue(db, name)
            queues[name].subscribe("app")
        orders, billing, webhooks = queues.values()

        orders.subscribe("second app")
        orders.send_and_tick(100)
        orders.wait(10)
        orders.send_and_tick(50)
        orders.consume("app")
        orders.consume("second app")

        billing.send_and_tick(7)
        assert billing.receive("app")
        billing.wait(8000)
        billing.send_and_tick(5)
        billing.send(3)

        webhooks.send_and_tick(4)
        for failed, retries in ((0, "0"), (1, "0"), (2, "5")):
            db.execute("select pgque.set_queue_config(%s, 'max_retries', %s)", (webhooks.name, retries))
            webhooks.nack("app", webhooks.receive("app")[failed])
        webhooks.consume("app")

        # The service is a monitor and nothing more.
        db.execute("drop role if exists watcher")
        db.execute("create role watcher login")
        db.execute("grant pgque_monitor to watcher")
        yield pack_database
        db.execute("drop role watcher")


@dataclass(frozen=True)
class ContractRow:
    """One row of otel_metrics()."""

    name: str
    type: str
    value: float
    labels: tuple[tuple[str, str], ...]  # sorted


def contract_rows(database: Database) -> tuple[float, list[ContractRow]]:
    """Unix time of the database's snapshot and all rows of its contract, as the monitor role."""
    with psycopg.connect(database.dsn(user="watcher"), autocommit=True) as connection:
        rows: list[Any] = connection.execute(
            "select extract(epoch from now())::float8, metric_name, metric_type, value::float8, labels::text"
            " from pgque.otel_metrics()"
        ).fetchall()
    assert rows
    return rows[0][0], [
        ContractRow(name, kind, value, tuple(sorted(json.loads(labels).items())))
        for _, name, kind, value, labels in rows
    ]


def ages(name: str) -> bool:
    """Whether a metric grows by one second a second while nothing happens."""
    return name.endswith(("_age_seconds", "lag_seconds", "idle_seconds"))
