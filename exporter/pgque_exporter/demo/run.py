"""The demo from start to end: database, load and service in one process."""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import sys
import time
from collections.abc import Iterator, Sequence

from pgque_exporter import catalogue, logs
from pgque_exporter.config import Config, Listen, load_environment
from pgque_exporter.connection import PollError
from pgque_exporter.demo import screen
from pgque_exporter.demo.cluster import Cluster, embedded_bindir, free_port
from pgque_exporter.demo.database import DemoDatabase, set_up
from pgque_exporter.demo.load import run_load
from pgque_exporter.demo.signals import Interrupted, Signals, catching
from pgque_exporter.errors import UserError
from pgque_exporter.overview import QueueView, queues
from pgque_exporter.redaction import Redactor
from pgque_exporter.server import bind
from pgque_exporter.service import run_service
from pgque_exporter.target import poll_once
from pgque_exporter.terminal import Paint, supports_colour

_HOST = "127.0.0.1"
_INTERVAL = "2s"  # a quarter of a minute, the service's default, would make a dull minute
_LONGEST_END = 4.0  # seconds for service and load; the rest of the five is for the database


def run(port: int, duration: float | None) -> None:
    """Run until Ctrl-C or SIGTERM, or for `duration` seconds. Nothing stays behind."""
    with catching() as signals:
        try:
            _require_free(port)
            _forget_other_databases()
            print("Starting PostgreSQL, installing the queue engine and the pack ...", flush=True)
            password = secrets.token_urlsafe(12)
            with _cluster(password) as cluster:
                database = set_up(cluster, password)
                asyncio.run(_serve(database, _config(database, port or free_port()), duration, signals))
        except Interrupted:
            print()
        if signals.received is not None:
            print("Stopped; the demo's database is removed.", flush=True)


def _require_free(port: int) -> None:
    try:
        bind(Listen(_HOST, port)).close()
    except UserError as error:
        hint = f"choose another port: PORT={free_port()} make demo"
        raise UserError(error.what, where="demo", hint=hint) from None


def _forget_other_databases() -> None:
    """Drop libpq's variables: PGHOSTADDR alone would lead the demo to a database that isn't its own."""
    for name in [name for name in os.environ if name.startswith("PG")]:
        del os.environ[name]


@contextlib.contextmanager
def _cluster(password: str) -> Iterator[Cluster]:
    # A superuser may run programs: nobody else on this machine shall be one.
    cluster = Cluster(embedded_bindir(), password=password)
    try:
        try:
            cluster.start()
        except RuntimeError as error:
            raise UserError(" ".join(str(error).split()), where="demo") from None
        yield cluster
    finally:
        cluster.remove()


def _config(database: DemoDatabase, port: int) -> Config:
    # A collector named in the environment gets the demo's metrics too, and the screen says so; nothing
    # else there counts.
    environ = {name: value for name, value in os.environ.items() if name.startswith("OTEL_")}
    environ |= {
        "PGQUE_LISTEN": f"{_HOST}:{port}",
        "PGQUE_INTERVAL": _INTERVAL,
        "PGQUE_LOG_LEVEL": "warning",
    }
    return load_environment(environ, dsn=database.dsn("exporter"))


async def _serve(database: DemoDatabase, config: Config, duration: float | None, signals: Signals) -> None:
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    url: asyncio.Future[str] = loop.create_future()
    redact = Redactor()
    logs.set_up(config.log_level, redact)
    started = time.monotonic()
    with signals.telling(lambda: loop.call_soon_threadsafe(stop.set)):
        service = asyncio.create_task(run_service(config, stop=stop, ready=url.set_result, redact=redact))
        load = asyncio.create_task(
            run_load(app_dsn=database.dsn("app"), operator_dsn=database.dsn("operator"))
        )
        show = asyncio.create_task(_show(database, config, url, duration, started))
        ending = asyncio.create_task(stop.wait())
        tasks = {service, load, show}
        await asyncio.wait({*tasks, ending}, timeout=duration, return_when=asyncio.FIRST_COMPLETED)
        over = not stop.is_set() and not any(task.done() for task in tasks)
        if over:
            views = await _look(config)
            print("\n".join(["", *screen.summary(time.monotonic() - started, views)]), flush=True)
        stop.set()
        load.cancel()
        show.cancel()
        ending.cancel()
        await asyncio.wait(tasks, timeout=_LONGEST_END)
    for task in tasks:
        if task.done() and not task.cancelled():
            task.result()  # whatever went wrong is to be seen


async def _show(
    database: DemoDatabase, config: Config, url: asyncio.Future[str], duration: float | None, started: float
) -> None:
    paint = Paint(supports_colour(sys.stdout))
    psql = embedded_bindir() / "psql"
    collector = config.otlp.endpoint if config.otlp is not None else None
    print("\n".join(screen.introduction(database, await url, collector, psql, duration, paint)), flush=True)
    progress = screen.Progress(paint, sys.stdout.isatty())
    while True:
        await asyncio.sleep(progress.interval)
        if views := await _look(config):
            progress.show(time.monotonic() - started, views)


async def _look(config: Config) -> Sequence[QueueView]:
    """The queues at this moment; nothing while the database doesn't answer."""
    with contextlib.suppress(PollError):
        result = await poll_once(config.targets[0], catalogue.load(), Redactor())
        return queues(result.snapshot)
    return ()
