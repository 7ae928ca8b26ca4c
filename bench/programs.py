"""The service and its peer as processes over a database with a pack of so many series."""

from __future__ import annotations

import gzip
import http.client
import os
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psycopg

from pgque_exporter.demo.cluster import Cluster, free_port
from tests.support.debian import find_program
from tests.support.processes import Process

# The smallest pack: a value per queue, another one each millisecond. Three of four are depths, whole numbers;
# the others are ages with fractions. The peer asks the same function, and takes all for depths.
_PACK = """
create schema bench_observability;
create table bench_observability.row as
    select n, (random() * 1000)::bigint as depth from generate_series(1, {series}) n;
create function bench_observability.observability_info()
returns table (engine text, engine_version text, pack_version text)
language sql stable as $$ select 'bench', '1', '1' $$;
create function bench_observability.health_checks()
returns table (check_name text, subject text, meaning text)
language sql stable as $$ select '', '', '' where false $$;
create function bench_observability.queue_health()
returns table (queue_name text, check_name text, status text, detail text)
language sql stable as $$ select '', '', '', '' where false $$;
create function bench_observability.otel_metrics()
returns table (metric_name text, metric_type text, value numeric, labels jsonb)
language sql stable as $$
    select case when n % 4 = 0 then 'pgque.ticker.last_tick_age_seconds' else 'pgque.queue.depth' end,
        'gauge',
        ((depth + (extract(epoch from now()) * 1000)::bigint) % 1000)::numeric
            / case when n % 4 = 0 then 7 else 1 end,
        jsonb_build_object('queue', {queues})
    from bench_observability.row
$$;
vacuum analyze bench_observability.row;
"""
_PEER_QUERIES = """
pgque_queue:
  query: "select labels->>'queue' as queue, value as depth from bench_observability.otel_metrics()"
  cache_seconds: {cache_seconds}
  metrics:
    - queue: {{usage: "LABEL", description: "Queue"}}
    - depth: {{usage: "GAUGE", description: "Depth"}}
"""


@dataclass(frozen=True)
class Program:
    """A program that serves /metrics."""

    process: Process
    port: int

    @property
    def cpu(self) -> float:
        """Milliseconds of processor time so far."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) * 1000 / os.sysconf("SC_CLK_TCK")

    @property
    def megabytes(self) -> float:
        """Resident memory."""
        pages = int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE") / 1e6

    def scrape(self, connection: http.client.HTTPConnection) -> tuple[float, bytes]:
        """Milliseconds of one request, and the compressed page."""
        begin = time.perf_counter()
        connection.request("GET", "/metrics", headers={"Accept-Encoding": "gzip"})
        body = connection.getresponse().read()
        return (time.perf_counter() - begin) * 1000, body

    def page(self) -> bytes:
        """The page as text."""
        return gzip.decompress(self.scrape(self.connect())[1])

    def connect(self) -> http.client.HTTPConnection:
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)


def pack_database(cluster: Cluster, series: int, *, queues: str = "'queue_' || n") -> str:
    """URL of a new database with the pack; `queues` is an expression for the n-th queue's name."""
    name = f"bench_{series}"
    with psycopg.connect(cluster.dsn(), autocommit=True) as admin:
        admin.execute(f"drop database if exists {name}".encode())
        admin.execute(f"create database {name}".encode())
    with psycopg.connect(cluster.dsn(name), autocommit=True) as admin:
        for statement in _PACK.format(series=series, queues=queues).split(";\n"):
            if statement.strip():
                admin.execute(statement.encode())
    return f"postgresql://postgres@127.0.0.1:{cluster.port}/{name}?sslmode=disable"


@contextmanager
def ours(targets: Mapping[str, str], folder: Path, interval: float) -> Iterator[Program]:
    """The service with these databases, URLs by name, and a page to hand out."""
    port = free_port()
    config = folder / "pgque-exporter.yaml"
    lines = [f"listen: 127.0.0.1:{port}", f"interval: {interval}s", f"timeout: {interval}s", "targets:"]
    lines += [f"  - {{name: {name}, dsn: '{dsn}'}}" for name, dsn in targets.items()]
    config.write_text("\n".join(lines))
    argv: list[str | Path] = [sys.executable, "-m", "pgque_exporter", "run", "--config", config]
    with Process(argv, log=folder / "service.log") as process:
        yield _ready(Program(process, port))


@contextmanager
def peer(dsn: str, folder: Path, cache_seconds: int) -> Iterator[Program]:
    """The peer, which has read the rows once."""
    port = free_port()
    queries = folder / f"queries_{cache_seconds}.yaml"
    queries.write_text(_PEER_QUERIES.format(cache_seconds=cache_seconds))
    program = find_program("prometheus-postgres-exporter")
    argv: list[str | Path] = [
        program.path,
        f"--web.listen-address=127.0.0.1:{port}",
        f"--extend.query-path={queries}",
        "--disable-default-metrics",
        "--disable-settings-metrics",
        "--no-collector.database",
        "--no-collector.bgwriter",
    ]
    environment = {**program.env, "DATA_SOURCE_NAME": dsn}
    with Process(argv, log=folder / f"peer_{cache_seconds}.log", env=environment) as process:
        yield _ready(Program(process, port))


def _ready(program: Program) -> Program:
    def serves() -> bool:
        return b"\npgque_queue_depth{" in program.page()

    ignoring = (OSError, http.client.HTTPException)
    program.process.wait_for(serves, "a page with series", timeout=60, ignoring=ignoring)
    return program
