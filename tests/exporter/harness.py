"""What the service's tests share: a pack of a queue engine that doesn't exist, and running services."""

from __future__ import annotations

import asyncio
import json
import re
import socket
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from email.message import Message
from pathlib import Path
from typing import Any

import psycopg
from psycopg import sql

from pgque_exporter import catalogue
from pgque_exporter.config import Config, Listen, OtlpConfig, TargetConfig, load_file
from pgque_exporter.connection import PollError
from pgque_exporter.contract import PollResult
from pgque_exporter.redaction import Redactor
from pgque_exporter.reload import Reloader
from pgque_exporter.service import run_service
from pgque_exporter.snapshot import Family, Labels, Series, Snapshot
from pgque_exporter.target import poll_once

CATALOGUE = catalogue.load()
DEPTH = CATALOGUE["pgque.queue.depth"]
SENT = CATALOGUE["pgque.message.sent_total"]

# The smallest thing that keeps the contract. That the service works with it shows that it knows no engine.
_PACK = """
create schema {schema};
create table {schema}.row (metric_name text, metric_type text default 'gauge', value numeric, labels jsonb);
create table {schema}.health (queue_name text, check_name text, status text, detail text);
create function {schema}.observability_info()
returns table (engine text, engine_version text, pack_version text)
language sql stable as $$ select {engine}, '7.1', '0.2' $$;
create function {schema}.health_checks()
returns table (check_name text, subject text, meaning text)
language sql stable as $$ values ('lag', 'queue', ''), ('ticker', 'queue', ''), ('stuck', 'consumer', '') $$;
create function {schema}.otel_metrics()
returns table (metric_name text, metric_type text, value numeric, labels jsonb)
language sql stable as $$ select * from {schema}.row $$;
create function {schema}.queue_health()
returns table (queue_name text, check_name text, status text, detail text)
language sql stable as $$ select * from {schema}.health $$;
"""


class ToyPack:
    """A pack whose rows a test writes."""

    def __init__(
        self, connection: psycopg.Connection[Any], schema: str = "toy_observability", engine: str = "toy"
    ) -> None:
        self._connection = connection
        self._schema = sql.Identifier(schema)
        connection.execute(sql.SQL(_PACK).format(schema=self._schema, engine=sql.Literal(engine)))

    def add(self, name: str | None, value: str | float | None, **labels: str) -> None:
        """A row with ordinary labels."""
        self.add_raw(name, value, json.dumps(labels))

    def add_raw(self, name: str | None, value: str | float | None, labels: str | None) -> None:
        """A row with whatever stands in `labels`."""
        statement = sql.SQL("insert into {}.row (metric_name, value, labels) values (%s, %s, %s)")
        self._connection.execute(statement.format(self._schema), (name, value, labels))

    def add_health(self, queue: str, check: str, status: str, detail: str) -> None:
        """A health check, as a metric row and in words."""
        self.add("pgque.queue.health_state", 1, queue=queue, check=check, state=status)
        statement = sql.SQL("insert into {}.health values (%s, %s, %s, %s)")
        self._connection.execute(statement.format(self._schema), (queue, check, status, detail))

    def clear(self) -> None:
        """Remove all rows."""
        for table in ("row", "health"):
            self._connection.execute(sql.SQL("delete from {}.{}").format(self._schema, sql.Identifier(table)))

    def replace_metrics(self, body: str, labels: str = "jsonb") -> None:
        """Give otel_metrics() another body, and its labels another type."""
        self._connection.execute(
            sql.SQL(
                "drop function {0}.otel_metrics(); create function {0}.otel_metrics() returns table "
                "(metric_name text, metric_type text, value numeric, labels {1}) language sql as {2}"
            ).format(self._schema, sql.Identifier(labels), sql.Literal(body))
        )


def target(dsn: str, name: str = "shop", **options: Any) -> TargetConfig:
    options = {"interval": 0.2, "timeout": 5.0, "stale_after": 60.0, **options}
    return TargetConfig(name, dsn, **options)


def config(
    *targets: TargetConfig, otlp: OtlpConfig | None = None, interval: float = 0.2, **options: Any
) -> Config:
    return Config(Listen("127.0.0.1", 0), interval, targets, otlp, "info", **options)


def poll(dsn: str, **options: Any) -> PollResult:
    return asyncio.run(poll_once(target(dsn, **options), CATALOGUE, Redactor()))


def poll_error(dsn: str, **options: Any) -> PollError:
    try:
        poll(dsn, **options)
    except PollError as error:
        return error
    raise AssertionError("the poll succeeded")


def labels(**given: str) -> Labels:
    return (("engine", "toy"), ("database", "shop"), *given.items())


def snapshot(
    *values: float, metric: Any = DEPTH, taken_at: float = 1000.0, name: str = "shop", **options: Any
) -> Snapshot:
    """A snapshot with one series per value, of queues q0, q1, ..."""
    series = tuple(Series(labels(queue=f"q{number}"), value) for number, value in enumerate(values))
    given: dict[str, Any] = {"checks": (), "checks_ok": 0, "dropped": {}, **options}
    return Snapshot(name, taken_at, 0.01, (Family.of(metric, series),), **given)


@dataclass(frozen=True)
class Answer:
    status: int
    headers: Message
    body: bytes

    @property
    def text(self) -> str:
        return self.body.decode()

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass(frozen=True)
class Running:
    """A service that runs in a thread of this process."""

    url: str
    reload: Callable[[], object]

    def get(self, path: str, **headers: str) -> Answer:
        return get(self.url + path, **headers)

    def databases(self) -> set[str]:
        """The values of the label `database` on /metrics."""
        return set(re.findall(r'[{,]database="([^"]*)"', self.get("/metrics").text))

    def sample(self, start: str) -> float | None:
        """Value of the first sample of /metrics whose line begins so."""
        for line in self.get("/metrics").text.splitlines():
            if line.startswith(start):
                return float(line.rpartition(" ")[2])
        return None


def get(url: str, **headers: str) -> Answer:
    given = {name.replace("_", "-"): value for name, value in headers.items()}
    request = urllib.request.Request(url, headers=given)  # noqa: S310 - our own service
    try:
        with urllib.request.urlopen(request, timeout=10) as response:  # noqa: S310
            return Answer(response.status, response.headers, response.read())
    except urllib.error.HTTPError as error:
        with error:
            return Answer(error.code, error.headers, error.read())


@contextmanager
def running_file(path: Path) -> Iterator[Running]:
    """Run a service with a configuration file, which it watches."""
    with running(load_file(path), lambda: load_file(path)) as service:
        yield service


@contextmanager
def running(configured: Config, load: Callable[[], Config] | None = None) -> Iterator[Running]:
    """Run a service until the block ends; whatever it raised is raised here."""
    loop = asyncio.new_event_loop()
    reloader = Reloader(configured, load or (lambda: configured))
    stop = asyncio.Event()
    started = threading.Event()
    url: list[str] = []
    failed: list[BaseException] = []

    def ready(base: str) -> None:
        url.append(base)
        started.set()

    def work() -> None:
        try:
            loop.run_until_complete(run_service(configured, stop=stop, ready=ready, reloader=reloader))
            loop.run_until_complete(loop.shutdown_default_executor())
        except BaseException as error:  # noqa: BLE001 - raised again in the test's own thread
            failed.append(error)
        finally:
            started.set()
            loop.close()

    thread = threading.Thread(target=work)
    thread.start()
    started.wait(20)
    try:
        if url:
            yield Running(url[0], lambda: loop.call_soon_threadsafe(reloader.wish))
    finally:
        if not loop.is_closed():
            loop.call_soon_threadsafe(stop.set)
        thread.join(20)
    if failed:
        raise failed[0]


@contextmanager
def silent_server() -> Iterator[int]:
    """A TCP port that accepts connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]
