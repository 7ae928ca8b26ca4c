"""The running service: targets, page, push and web server wired together, started and ended."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import fields

from pgque_exporter import catalogue as catalogue_file
from pgque_exporter.access import Access
from pgque_exporter.archive import Archive
from pgque_exporter.config import Config, TargetConfig
from pgque_exporter.discovery import Discoveries
from pgque_exporter.fleet import Fleet
from pgque_exporter.leader import Leader
from pgque_exporter.limits import SeriesBudget
from pgque_exporter.loop_lag import LoopLag
from pgque_exporter.otlp.layout import Batch
from pgque_exporter.otlp.ledger import Ledger
from pgque_exporter.otlp.own import encode_own, service_resource
from pgque_exporter.otlp.push import Pusher
from pgque_exporter.page import Page
from pgque_exporter.redaction import Redactor
from pgque_exporter.reload import Reloader
from pgque_exporter.server import HttpServer, base_url, bind, serve
from pgque_exporter.state import TargetState
from pgque_exporter.target import PollOutcome, Target
from pgque_exporter.telemetry import (
    LEADER,
    RELOAD_SUCCESS,
    RELOAD_TIME,
    WEB_RELOAD_SUCCESS,
    Telemetry,
    target_families,
)
from pgque_exporter.web import View, create_app, create_health_app
from pgque_exporter.web_config import WatchedWebConfig

log = logging.getLogger(__name__)

# What a reload takes over; the other settings are of things that can't be exchanged under way.
_RELOADED = ("targets", "discoveries", "files", "interval")
_CONFIGURED = ""  # the fleet's source of targets that is the configuration itself; no server has this name

# Together they stay below the 5 s in which the service promises to be gone.
_LAST_ANSWERS = 1  # seconds for requests under way
_LAST_POLLS = 1.5
_LAST_FLUSH = 2.0  # of the OTLP queue and the archive, side by side

_MOST_THREADS = 2000  # started only when needed


async def run_service(
    config: Config,
    *,
    stop: asyncio.Event,
    ready: Callable[[str], None] | None = None,
    redact: Redactor | None = None,
    reloader: Reloader | None = None,
) -> Ledger | None:
    """Run until `stop` is set, then end within 5 seconds.

    `reloader` watches the configuration and has a changed one taken over. `ready` is called with the base
    URL once the web server accepts requests. Returns what became of the points pushed, None without OTLP.
    Raises UserError when the listening address can't be had.
    """
    web = WatchedWebConfig(config.web_config) if config.web_config is not None else None
    with contextlib.ExitStack() as opened:
        sock = opened.enter_context(bind(config.listen))
        health = None
        if config.health_listen is not None:
            health = opened.enter_context(bind(config.health_listen, "health_listen"))
        service = Service(config, sock, health, web, redact or Redactor(), reloader)
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
        reloader: Reloader | None = None,
    ) -> None:
        port = sock.getsockname()[1]
        self._url = base_url(sock, tls=web is not None and web.tls() is not None)
        self._socket = sock
        self._health_socket = health
        self._web = web
        self._budget = SeriesBudget(config.limits.series)
        self._catalogue = catalogue_file.load()
        self._resource = service_resource(f"{socket.gethostname()}:{port}")
        self._temporality = config.otlp.temporality if config.otlp is not None else "cumulative"
        self._telemetry = Telemetry(self._catalogue, self._resource, self._temporality)
        if web is not None:
            web.watch(self._web_reloaded)
        self._redact = redact
        self._fleet = Fleet(self._target, self._left)
        self._discoveries = Discoveries(self._fleet, redact, self._mine)
        self._page = Page(self._catalogue, self.states, self._telemetry)
        self._leader: Leader | None = None
        if config.leader is not None:
            self._leader = Leader(config.leader, config.shard, redact, self._lead_changed)
        self._pusher: Pusher | None = None
        if config.otlp is not None:
            pusher = self._pusher = Pusher(
                config.otlp,
                self._resource,
                self._own_metrics,
                config.interval,
                self._telemetry.count_request,
                redact,
                lead=self._leader,
            )
            self._telemetry.watch_otlp(pusher.ledger, lambda: pusher.queued)
        self._archive: Archive | None = None
        if config.archive is not None:
            self._archive = Archive(config.archive, self._resource)
            self._telemetry.watch_archive(self._archive)
        self._loop_lag = LoopLag(self._telemetry.note_loop_lag)
        self._tasks: list[asyncio.Task[None]] = []
        self._reloader = reloader
        self._config = config
        self._poll_these(config)

    def states(self) -> Sequence[TargetState]:
        """The latest state of every server that is searched, then of every target."""
        return [*self._discoveries.states(), *self._fleet.states()]

    async def run(self, stop: asyncio.Event, ready: Callable[[str], None] | None) -> Ledger | None:
        """See `run_service`."""
        # A name lookup that hangs keeps its thread, through several polls. It must not take the threads
        # in which the other databases' names are looked up and pages are built.
        threads = ThreadPoolExecutor(_MOST_THREADS, "worker")
        asyncio.get_running_loop().set_default_executor(threads)
        if self._archive is not None:
            # Off the loop: the disk may hang, or hold much to be closed; a signal must be heard even then.
            await asyncio.to_thread(self._archive.files.start)
        servers = self._servers()
        serving = asyncio.create_task(serve(servers))
        ending = asyncio.create_task(stop.wait())
        try:
            up = asyncio.create_task(_up(servers))
            await asyncio.wait({serving, up}, return_when=asyncio.FIRST_COMPLETED)
            up.cancel()
            self._loop_lag.start()
            if self._pusher is not None:
                self._pusher.start()
            self._tasks = [asyncio.create_task(self._page.run())]
            if self._archive is not None:
                self._tasks.append(asyncio.create_task(self._archive.run()))
            if self._reloader is not None:
                watch = self._reloader.run(self._reload, self._reloaded)
                self._tasks.append(asyncio.create_task(watch))
            if self._leader is not None:
                self._tasks.append(asyncio.create_task(self._leader.run()))
            self._fleet.start()
            self._discoveries.start()
            if not serving.done():
                log.info("listening on %s, polling %d database(s)", self._url, len(self._fleet.states()))
                if self._health_socket is not None:
                    log.info("health on %s", base_url(self._health_socket))
                if ready is not None:
                    ready(self._url)
            await asyncio.wait({serving, ending}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            ending.cancel()
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
        self._loop_lag.stop()
        for server in servers:
            server.stop()
        await asyncio.gather(self._discoveries.close(_LAST_POLLS), self._fleet.close(_LAST_POLLS))
        sinks = [sink.close(_LAST_FLUSH) for sink in (self._pusher, self._archive) if sink is not None]
        await asyncio.gather(*sinks)
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
        alive = not any(task.done() for task in self._tasks)
        return alive and self._fleet.alive() and self._discoveries.alive()

    def _ledger(self) -> Ledger | None:
        return self._pusher.ledger if self._pusher is not None else None

    def _reload(self, config: Config) -> None:
        """Take over what can be: the databases. One whose settings stay notices nothing."""
        for one in fields(Config):
            if one.name not in _RELOADED and getattr(config, one.name) != getattr(self._config, one.name):
                log.warning("configuration: a change of %s takes effect at the next start", one.name)
        self._poll_these(config)
        log.info("configuration reloaded, polling %d database(s)", len(self._fleet.states()))
        self._page.refresh()

    def _reloaded(self, success: bool, loaded_at: float) -> None:
        if self._config.files is not None:
            self._telemetry.set(RELOAD_SUCCESS, float(success))
            self._telemetry.set(RELOAD_TIME, loaded_at)

    def _web_reloaded(self, success: bool) -> None:
        self._telemetry.set(WEB_RELOAD_SUCCESS, float(success))

    def _poll_these(self, config: Config) -> None:
        self._fleet.put(_CONFIGURED, [target for target in config.targets if self._mine(target.name)])
        self._discoveries.put(config.discoveries)

    def _mine(self, name: str) -> bool:
        shard = self._config.shard
        return shard is None or shard.owns(name)

    def _target(self, config: TargetConfig) -> Target:
        self._telemetry.expect(config.name, config.labels)
        return Target(config, self._catalogue, self._redact, self._polled, self._budget)

    def _left(self, name: str) -> None:
        self._telemetry.forget(name)
        if self._pusher is not None:
            self._pusher.remove(name)
        if self._archive is not None:
            self._archive.forget(name)
        self._page.refresh()

    def _polled(self, outcome: PollOutcome) -> None:
        self._telemetry.count_poll(outcome)
        self._page.refresh()
        if outcome.result is None or not self._leads():
            return
        snapshot = outcome.result.snapshot
        if self._pusher is not None:
            self._pusher.push(snapshot, outcome.state.stale_at)
        if self._archive is not None:
            self._archive.put(snapshot)

    def _leads(self) -> bool:
        return self._leader is None or self._leader.leads()

    def _lead_changed(self, leads: bool) -> None:
        self._telemetry.set(LEADER, float(leads))

    def _own_metrics(self) -> Iterable[Batch]:
        if not self._leads():
            return ()
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
