"""The running service: targets, page, push and web server wired together, started and ended."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor

from pgque_exporter import catalogue as catalogue_file
from pgque_exporter.access import Access
from pgque_exporter.config import Config
from pgque_exporter.limits import SeriesBudget
from pgque_exporter.otlp.layout import Batch
from pgque_exporter.otlp.ledger import Ledger
from pgque_exporter.otlp.own import encode_own, service_resource
from pgque_exporter.otlp.push import Pusher
from pgque_exporter.page import Page
from pgque_exporter.redaction import Redactor
from pgque_exporter.server import HttpServer, base_url, bind, serve
from pgque_exporter.state import TargetState
from pgque_exporter.target import PollOutcome, Target
from pgque_exporter.telemetry import Telemetry, target_families
from pgque_exporter.web import View, create_app, create_health_app
from pgque_exporter.web_config import WatchedWebConfig

log = logging.getLogger(__name__)

# Together they stay below the 5 s in which the service promises to be gone.
_LAST_ANSWERS = 1  # seconds for requests under way
_LAST_POLLS = 1.5
_LAST_FLUSH = 2.0

_THREADS = 8  # started only when needed
_THREADS_PER_TARGET = 4


async def run_service(
    config: Config,
    *,
    stop: asyncio.Event,
    ready: Callable[[str], None] | None = None,
    redact: Redactor | None = None,
) -> Ledger | None:
    """Run until `stop` is set, then end within 5 seconds.

    `ready` is called with the base URL once the web server accepts requests. Returns what became of the
    points pushed, None without OTLP. Raises UserError when the listening address can't be had.
    """
    web = WatchedWebConfig(config.web_config) if config.web_config is not None else None
    with contextlib.ExitStack() as opened:
        sock = opened.enter_context(bind(config.listen))
        health = None
        if config.health_listen is not None:
            health = opened.enter_context(bind(config.health_listen, "health_listen"))
        service = Service(config, sock, health, web, redact or Redactor())
        return await service.run(stop, ready)


class Service:
    """One service with its own state; several can live in one process."""

    def __init__(
        self,
        config: Config,
        sock: socket.socket,
        health: socket.socket | None,
        web: WatchedWebConfig | None,
        redact: Redactor,
    ) -> None:
        port = sock.getsockname()[1]
        self._url = base_url(sock, tls=web is not None and web.tls() is not None)
        self._socket = sock
        self._health_socket = health
        self._web = web
        self._catalogue = catalogue_file.load()
        self._resource = service_resource(f"{socket.gethostname()}:{port}")
        self._temporality = config.otlp.temporality if config.otlp is not None else "cumulative"
        self._telemetry = Telemetry(self._catalogue, self._resource, self._temporality)
        budget = SeriesBudget(config.limits.series)
        self._targets = [
            Target(target, self._catalogue, redact, self._polled, budget) for target in config.targets
        ]
        for target in config.targets:
            self._telemetry.expect(target.name)
        self._page = Page(self._catalogue, self.states, self._telemetry)
        self._pusher: Pusher | None = None
        if config.otlp is not None:
            pusher = self._pusher = Pusher(
                config.otlp,
                self._resource,
                self._own_metrics,
                config.interval,
                self._telemetry.count_request,
                redact,
            )
            self._telemetry.watch_otlp(pusher.ledger, lambda: pusher.queued)
        self._tasks: list[asyncio.Task[None]] = []

    def states(self) -> Sequence[TargetState]:
        """The latest state of every target, in the order of the configuration."""
        return [target.state for target in self._targets]

    async def run(self, stop: asyncio.Event, ready: Callable[[str], None] | None) -> Ledger | None:
        """See `run_service`."""
        # A name lookup that hangs keeps its thread, through several polls. It must not take the threads
        # in which the other databases' names are looked up and pages are built.
        threads = ThreadPoolExecutor(_THREADS + _THREADS_PER_TARGET * len(self._targets), "worker")
        asyncio.get_running_loop().set_default_executor(threads)
        servers = self._servers()
        serving = asyncio.create_task(serve(servers))
        ending = asyncio.create_task(stop.wait())
        enough = asyncio.Event()  # ends the polls, also when the server dies before `stop`
        try:
            up = asyncio.create_task(_up(servers))
            await asyncio.wait({serving, up}, return_when=asyncio.FIRST_COMPLETED)
            up.cancel()
            if self._pusher is not None:
                self._pusher.start()
            page = asyncio.create_task(self._page.run())
            self._tasks = [page, *(asyncio.create_task(target.run(enough)) for target in self._targets)]
            if not serving.done():
                log.info("listening on %s, polling %d database(s)", self._url, len(self._targets))
                if self._health_socket is not None:
                    log.info("health on %s", base_url(self._health_socket))
                if ready is not None:
                    ready(self._url)
            await asyncio.wait({serving, ending}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            ending.cancel()
            enough.set()
            await self._end(servers, serving)
        return self._ledger()

    def _servers(self) -> list[HttpServer]:
        view = View(self._page, self.states, self._alive, self._ledger)
        if self._web is None:
            servers = [HttpServer(create_app(view), self._socket)]
        else:
            app = create_app(view, Access(self._web.current))
            servers = [HttpServer(app, self._socket, tls=self._web.tls)]
        if self._health_socket is not None:
            servers.append(HttpServer(create_health_app(view), self._health_socket))
        return servers

    async def _end(self, servers: Sequence[HttpServer], serving: asyncio.Task[None]) -> None:
        for server in servers:
            server.stop()
        polls = set(self._tasks[1:])
        if polls:
            await asyncio.wait(polls, timeout=_LAST_POLLS)
        if self._pusher is not None:
            await self._pusher.close(_LAST_FLUSH)
        for task in self._tasks:
            task.cancel()
        await asyncio.wait({serving}, timeout=_LAST_ANSWERS)
        for server in servers:
            server.stop_now()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._telemetry.close()
        if serving.done():
            serving.result()  # if it failed, that is what went wrong
        log.info("ended")

    def _alive(self) -> bool:
        return not any(task.done() for task in self._tasks)

    def _ledger(self) -> Ledger | None:
        return self._pusher.ledger if self._pusher is not None else None

    def _polled(self, outcome: PollOutcome) -> None:
        self._telemetry.count_poll(outcome)
        self._page.refresh()
        if self._pusher is not None and outcome.result is not None:
            self._pusher.push(outcome.result.snapshot, outcome.state.stale_at)

    def _own_metrics(self) -> Iterable[Batch]:
        return encode_own(
            self._catalogue,
            self._resource,
            target_families(self._catalogue, self.states(), time.monotonic()),
            time.time_ns(),
            self._telemetry.collect_for_push(),
            self._temporality,
        )


async def _up(servers: Sequence[HttpServer]) -> None:
    for server in servers:
        await server.up()
