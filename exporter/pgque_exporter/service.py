"""The running service: targets, page, push and web server wired together, started and ended."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import socket
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import fields

import uvicorn

from pgque_exporter import catalogue as catalogue_file
from pgque_exporter.config import Config, Listen, TargetConfig
from pgque_exporter.discovery import Discoveries
from pgque_exporter.errors import UserError
from pgque_exporter.fleet import Fleet
from pgque_exporter.leader import Leader
from pgque_exporter.otlp.layout import Batch
from pgque_exporter.otlp.ledger import Ledger
from pgque_exporter.otlp.own import encode_own, service_resource
from pgque_exporter.otlp.push import Pusher
from pgque_exporter.page import Page
from pgque_exporter.redaction import Redactor
from pgque_exporter.reload import Reloader
from pgque_exporter.state import TargetState
from pgque_exporter.target import PollOutcome, Target
from pgque_exporter.telemetry import LEADER, RELOAD_SUCCESS, RELOAD_TIME, Telemetry, target_families
from pgque_exporter.web import View, create_app

log = logging.getLogger(__name__)

# What a reload takes over; the other settings are of things that can't be exchanged under way.
_RELOADED = ("targets", "discoveries", "files", "interval")
_CONFIGURED = ""  # the fleet's source of targets that is the configuration itself; no server has this name

# Together they stay below the 5 s in which the service promises to be gone.
_LAST_ANSWERS = 1  # seconds for requests under way
_LAST_POLLS = 1.5
_LAST_FLUSH = 2.0

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
    sock = bind(config.listen)
    try:
        service = Service(config, sock, redact or Redactor(), reloader)
    except BaseException:
        sock.close()
        raise
    return await service.run(stop, ready)


class Service:
    """One service with its own state; several can live in one process."""

    def __init__(
        self, config: Config, sock: socket.socket, redact: Redactor, reloader: Reloader | None = None
    ) -> None:
        host, port = sock.getsockname()[:2]
        self._url = f"http://{_reachable(host)}:{port}"
        self._socket = sock
        self._catalogue = catalogue_file.load()
        self._resource = service_resource(f"{socket.gethostname()}:{port}")
        self._temporality = config.otlp.temporality if config.otlp is not None else "cumulative"
        self._telemetry = Telemetry(self._catalogue, self._resource, self._temporality)
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
        view = View(self._page, self.states, self._alive, self._ledger)
        server = _Server(_server_config(view))
        serving = asyncio.create_task(server.serve([self._socket]))
        ending = asyncio.create_task(stop.wait())
        try:
            up = asyncio.create_task(server.up.wait())
            await asyncio.wait({serving, up}, return_when=asyncio.FIRST_COMPLETED)
            up.cancel()
            if self._pusher is not None:
                self._pusher.start()
            self._tasks = [asyncio.create_task(self._page.run())]
            if self._reloader is not None:
                watch = self._reloader.run(self._reload, self._reloaded)
                self._tasks.append(asyncio.create_task(watch))
            if self._leader is not None:
                self._tasks.append(asyncio.create_task(self._leader.run()))
            self._fleet.start()
            self._discoveries.start()
            if not serving.done():
                log.info("listening on %s, polling %d database(s)", self._url, len(self._fleet.states()))
                if ready is not None:
                    ready(self._url)
            await asyncio.wait({serving, ending}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            ending.cancel()
            await self._end(server, serving)
        return self._ledger()

    async def _end(self, server: uvicorn.Server, serving: asyncio.Task[None]) -> None:
        server.should_exit = True
        await asyncio.gather(self._discoveries.close(_LAST_POLLS), self._fleet.close(_LAST_POLLS))
        if self._pusher is not None:
            await self._pusher.close(_LAST_FLUSH)
        for task in self._tasks:
            task.cancel()
        await asyncio.wait({serving}, timeout=_LAST_ANSWERS)
        server.force_exit = True
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

    def _poll_these(self, config: Config) -> None:
        self._fleet.put(_CONFIGURED, [target for target in config.targets if self._mine(target.name)])
        self._discoveries.put(config.discoveries)

    def _mine(self, name: str) -> bool:
        shard = self._config.shard
        return shard is None or shard.owns(name)

    def _target(self, config: TargetConfig) -> Target:
        self._telemetry.expect(config.name, config.labels)
        return Target(config, self._catalogue, self._redact, self._polled)

    def _left(self, name: str) -> None:
        self._telemetry.forget(name)
        if self._pusher is not None:
            self._pusher.remove(name)
        self._page.refresh()

    def _polled(self, outcome: PollOutcome) -> None:
        self._telemetry.count_poll(outcome)
        self._page.refresh()
        if self._pusher is not None and self._leads() and outcome.result is not None:
            self._pusher.push(outcome.result.snapshot, outcome.state.stale_at)

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


class _Server(uvicorn.Server):
    """A web server inside of our event loop: signals are ours, and `up` tells when it accepts requests."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.up = asyncio.Event()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave them alone: uvicorn would raise them again at the end, and the last flush be lost."""
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start to listen."""
        await super().startup(sockets)
        self.up.set()


def _server_config(view: View) -> uvicorn.Config:
    return uvicorn.Config(
        create_app(view),
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        # Longer than between two scrapes, so that a scraper can keep its connection.
        timeout_keep_alive=75,
        timeout_graceful_shutdown=_LAST_ANSWERS,
    )


def bind(listen: Listen) -> socket.socket:
    """A socket that listens there; UserError if that can't be."""
    hint = "choose another address with `listen` or PGQUE_LISTEN"
    place = f"{listen.host}:{listen.port}"
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            listen.host, listen.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
    except (socket.gaierror, UnicodeError):
        raise UserError(f"{listen.host} is no address of this machine", where="listen", hint=hint) from None
    sock = socket.socket(family, kind, protocol)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind(address)
        sock.listen(128)
        sock.setblocking(False)
    except OSError as error:
        sock.close()
        if error.errno == errno.EADDRINUSE:
            what = f"{place} is in use by another program"
            raise UserError(what, where="listen", hint=f"stop it, or {hint}") from None
        raise UserError(f"can't listen on {place}: {error.strerror}", where="listen", hint=hint) from None
    return sock


def _reachable(host: str) -> str:
    if host in ("0.0.0.0", "::"):  # noqa: S104 - compared, not listened on
        return "localhost"
    return f"[{host}]" if ":" in host else host
