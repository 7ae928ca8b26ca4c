"""Finding the databases of a server that have a pack, again and again: new ones join, gone ones leave."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from pgque_exporter.config import DiscoveryConfig, TargetConfig
from pgque_exporter.connection import Connection, FailureKind, PollError, briefly, pause
from pgque_exporter.contract import has_pack
from pgque_exporter.fleet import Fleet
from pgque_exporter.redaction import Redactor
from pgque_exporter.state import TargetState, failure

log = logging.getLogger(__name__)

_PARALLEL = 4  # connections to one server at a time, to see whether its databases have a pack

# A template is for copying, and a database that takes no connection, or none of ours, has nothing to
# tell. A limit of -2 marks one whose removal was interrupted.
_DATABASES = """
select d.datname::text
from pg_catalog.pg_database d
where d.datallowconn and not d.datistemplate and d.datconnlimit operator(pg_catalog.<>) -2
  and pg_catalog.has_database_privilege(d.oid, 'connect')
order by 1
"""


@dataclass(frozen=True, slots=True)
class Found:
    """The databases to poll, and for each of the others, by its name as a target, why it isn't polled."""

    targets: Sequence[TargetConfig]
    left_out: Mapping[str, str]


async def find(
    config: DiscoveryConfig,
    redact: Redactor,
    *,
    mine: Callable[[str], bool] = lambda _name: True,
    known: Callable[[str], TargetState | None] = lambda _name: None,
) -> Found:
    """Ask a server for its databases, and each of them whether it has a pack.

    `mine` chooses by name; of a target that is `known` to work, nothing is asked. Raises PollError when
    the server can't be asked for its databases.
    """
    gate = asyncio.Semaphore(_PARALLEL)

    async def excuse(target: TargetConfig) -> str | None:
        state = known(target.name)
        if state is not None and (state.failure is None or state.failure.kind is not FailureKind.CONTRACT):
            return None
        async with gate:
            try:
                found = await briefly(target, redact, lambda connection: has_pack(connection, target))
            except PollError as error:
                # What was polled before is in trouble, and says so itself.
                return None if state is not None else f"{error.kind}: {error.message}"
        return None if found else "it has no pack"

    names = [name for name in await briefly(config.server, redact, _databases) if config.wants(name)]
    targets = [target for name in names if (target := config.target(name)) and mine(target.name)]
    excuses = await asyncio.gather(*(excuse(target) for target in targets))
    left_out = {target.name: why for target, why in zip(targets, excuses, strict=True) if why is not None}
    return Found([target for target in targets if target.name not in left_out], left_out)


async def _databases(connection: Connection) -> list[str]:
    rows = await (await connection.execute(_DATABASES)).fetchall()
    return [name for (name,) in rows]


class Discovery:
    """Looks for the databases of one server until told to stop.

    Its `state` is that of a target without data: down while the server can't be asked. The databases
    found before then stay, and each tells of itself.
    """

    def __init__(
        self,
        config: DiscoveryConfig,
        redact: Redactor,
        mine: Callable[[str], bool],
        known: Callable[[str], TargetState | None],
        found: Callable[[Sequence[TargetConfig]], None],
    ) -> None:
        self.config = config
        server = config.server
        self.state = TargetState(server.name, config.interval, server.stale_after, server.labels)
        self._redact = redact
        self._mine = mine
        self._known = known
        self._found = found
        self._noted: Mapping[str, str] = {}

    async def run(self, stop: asyncio.Event) -> None:
        """Look now and after each interval until `stop` is set."""
        stopping = asyncio.create_task(stop.wait())
        try:
            while not stop.is_set():
                looking = asyncio.create_task(self._look())
                await asyncio.wait({looking, stopping}, return_when=asyncio.FIRST_COMPLETED)
                if not looking.done():
                    looking.cancel()
                    await asyncio.wait({looking})
                    break
                if stop.is_set():
                    break
                found, error = looking.result()
                self._conclude(found, error)
                await pause(self.config.interval, error, stopping)
        finally:
            stopping.cancel()

    async def _look(self) -> tuple[Found | None, PollError | None]:
        try:
            return await find(self.config, self._redact, mine=self._mine, known=self._known), None
        except PollError as error:
            return None, error
        except Exception as error:  # a mistake of ours must not end the search
            log.debug("%s: unexpected", self.config.name, exc_info=True)
            return None, PollError(FailureKind.CONTRACT, f"unexpected {type(error).__name__}")

    def _conclude(self, found: Found | None, error: PollError | None) -> None:
        if error is not None:
            self._failed(error)
        if found is None:
            return
        if not self.state.up:
            log.info("%s: found %d database(s) with a pack", self.config.name, len(found.targets))
        for name, why in found.left_out.items():
            if self._noted.get(name) != why:
                log.info("%s: not polled: %s", name, why)
        self._noted = found.left_out
        self.state = replace(self.state, polled=True, failure=None, last_success=time.time())
        self._found(found.targets)

    def _failed(self, error: PollError) -> None:
        before = self.state.failure
        if before is None or before.kind is not error.kind:
            log.warning("%s: databases not listed: %s: %s", self.config.name, error.kind, error.message)
        self.state = replace(self.state, polled=True, failure=failure(error, before))


@dataclass(slots=True)
class _Running:
    discovery: Discovery
    stop: asyncio.Event = field(default_factory=asyncio.Event)
    task: asyncio.Task[None] | None = None


class Discoveries:
    """Keeps exactly the wanted discoveries running; each is a source of targets for the fleet."""

    def __init__(self, fleet: Fleet, redact: Redactor, mine: Callable[[str], bool]) -> None:
        self._fleet = fleet
        self._redact = redact
        self._mine = mine
        self._running: dict[str, _Running] = {}
        self._leaving: set[asyncio.Task[None]] = set()
        self._started = False

    def states(self) -> list[TargetState]:
        """The latest state of every server."""
        return [running.discovery.state for running in self._running.values()]

    def alive(self) -> bool:
        """Whether every discovery has a task that works."""
        return not any(running.task.done() for running in self._running.values() if running.task is not None)

    def start(self) -> None:
        """Begin to look."""
        self._started = True
        for running in self._running.values():
            self._begin(running)

    def put(self, configs: Sequence[DiscoveryConfig]) -> None:
        """Search these servers and no others. What a removed one found is no longer polled.

        What a changed one found stays until it has looked with its new settings.
        """
        before, self._running = self._running, {}
        for config in configs:
            running = before.get(config.name)
            if running is None or running.discovery.config != config:
                running = _Running(self._make(config))
                if self._started:
                    self._begin(running)
            self._running[config.name] = running
        for name, running in before.items():
            if self._running.get(name) is not running:
                self._retire(running)
            if name not in self._running:
                self._fleet.remove(name)

    async def close(self, seconds: float) -> None:
        """End all of them, for at most `seconds` politely."""
        for running in self._running.values():
            self._retire(running)
        tasks = set(self._leaving)
        if tasks:
            await asyncio.wait(tasks, timeout=seconds)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _make(self, config: DiscoveryConfig) -> Discovery:
        found = partial(self._fleet.put, config.name)
        return Discovery(config, self._redact, self._mine, self._fleet.state, found)

    def _begin(self, running: _Running) -> None:
        running.task = asyncio.create_task(running.discovery.run(running.stop))

    def _retire(self, running: _Running) -> None:
        running.stop.set()
        if running.task is not None:
            self._leaving.add(running.task)
            running.task.add_done_callback(self._leaving.discard)
