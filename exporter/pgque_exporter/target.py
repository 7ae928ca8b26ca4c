"""The poll loop of one database: a fixed grid of times, one connection, one deadline."""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from pgque_exporter.assembly import Assembler
from pgque_exporter.catalogue import Catalogue
from pgque_exporter.config import TargetConfig
from pgque_exporter.connection import (
    Connection,
    FailureKind,
    PollError,
    classified,
    close,
    connect,
    in_time,
    pause,
)
from pgque_exporter.contract import PollResult, poll
from pgque_exporter.limits import SeriesBudget, SeriesLimit
from pgque_exporter.redaction import Redactor
from pgque_exporter.sharding import phase
from pgque_exporter.state import TargetState, failure

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class PollOutcome:
    """A finished poll: `result` for the counters, seconds it took, grid times it ran over."""

    state: TargetState
    result: PollResult | None
    failure: FailureKind | None
    duration: float
    skipped: int


class Target:
    """Polls one database until told to stop and keeps its latest state.

    A database that hangs, vanishes or lies costs its own poll and nothing else: no other target
    waits for this one, and no poll ends the loop.
    """

    def __init__(
        self,
        config: TargetConfig,
        catalogue: Catalogue,
        redact: Redactor,
        publish: Callable[[PollOutcome], None],
        budget: SeriesBudget | None = None,
    ) -> None:
        self.config = config
        self.state = TargetState(config.name, config.interval, config.stale_after, config.labels)
        self._budget = budget if budget is not None else SeriesBudget(config.limits.series)
        self._poller = Poller(config, catalogue, redact, self._budget)
        self._publish = publish
        self._phase = phase(config.name)

    async def run(self, stop: asyncio.Event, delay: float = 0.0) -> None:
        """Poll after `delay` seconds, and from then on a fixed grid of times, until `stop` is set.

        Where the grid lies follows from the name: the polls of a fleet are spread over the interval.
        """
        stopping = asyncio.create_task(stop.wait())
        try:
            await asyncio.wait({stopping}, timeout=delay)
            due = self._grid_number(time.monotonic())
            while not stop.is_set():
                begun = time.monotonic()
                result, error = await self._poll(stopping)
                if stop.is_set():
                    break  # what was cut short by the end says nothing about the database
                ended = time.monotonic()
                passed = max(0, self._grid_number(ended) - due)
                self._conclude(result, error, begun, ended - begun, passed)
                due += passed + 1
                if await pause(self._grid_time(due) - time.monotonic(), error, stopping):
                    due = self._grid_number(time.monotonic())
        finally:
            stopping.cancel()
            self._budget.release(self.config.name)
            await self._poller.close()

    def _grid_number(self, clock: float) -> int:
        """Number of the last time of the grid before `clock`."""
        return math.floor(clock / self.config.interval - self._phase)

    def _grid_time(self, number: int) -> float:
        return (number + self._phase) * self.config.interval

    async def _poll(self, stopping: asyncio.Task[bool]) -> tuple[PollResult | None, PollError | None]:
        try:
            return await self._poller.poll(stopping), None
        except PollError as error:
            return None, error
        except Exception as error:  # a mistake of ours must not end the loop
            log.debug("%s: unexpected", self.config.name, exc_info=True)
            return None, PollError(FailureKind.CONTRACT, f"unexpected {type(error).__name__}")

    def _conclude(
        self, result: PollResult | None, error: PollError | None, begun: float, duration: float, skipped: int
    ) -> None:
        if error is None and result is not None and result.failures:
            error = result.failures[0].error
        trouble = failure(error, self.state.failure) if error is not None else None
        state = replace(self.state, polled=True, failure=trouble)
        if result is not None:
            state = replace(state, snapshot=result.snapshot, snapshot_clock=begun, packs=result.packs)
            if error is None:
                state = replace(state, last_success=result.snapshot.taken_at)
        self._report(self.state, state, error)
        self.state = state
        self._publish(PollOutcome(state, result, error.kind if error else None, duration, skipped))

    def _report(self, before: TargetState, after: TargetState, error: PollError | None) -> None:
        """Write a line when the state changes; the same trouble every 15 seconds helps nobody."""
        if error is not None:
            if before.failure is None or before.failure.kind is not error.kind:
                hint = f"; {error.hint}" if error.hint else ""
                log.warning("%s: %s: %s%s", after.name, error.kind, error.message, hint)
        elif not before.up:
            packs = ", ".join(f"{pack.engine} {pack.engine_version}".strip() for pack in after.packs)
            points = after.snapshot.points if after.snapshot else 0
            log.info("%s: polled, %d series of %s", after.name, points, packs)


class Poller:
    """Polls one database within its deadline over a connection that it keeps.

    `budget` is what it shares with other databases; without one it has its own.
    """

    def __init__(
        self,
        config: TargetConfig,
        catalogue: Catalogue,
        redact: Redactor,
        budget: SeriesBudget | None = None,
    ) -> None:
        self._config = config
        self._redact = redact
        budget = budget if budget is not None else SeriesBudget(config.limits.series)
        limit = SeriesLimit(config.name, config.limits, budget)
        self._assembler = Assembler(config, catalogue, limit)
        self._connection: Connection | None = None

    async def poll(self, stopping: asyncio.Task[bool] | None = None) -> PollResult:
        """One poll. PollError when it fails, misses the deadline, or `stopping` is done first."""
        others = () if stopping is None else (stopping,)
        return await in_time(self._config, self._connect_and_poll(), self._give_up, others)

    async def close(self) -> None:
        """Close the connection; the next poll would open another."""
        await close(self._give_up())

    def _give_up(self) -> Connection | None:
        connection, self._connection = self._connection, None
        return connection

    async def _connect_and_poll(self) -> PollResult:
        connection = self._connection
        kept = connection is not None
        while True:
            if connection is None:
                connection = self._connection = await connect(self._config, self._redact)
            try:
                return await poll(connection, self._config, self._assembler, self._redact)
            except PollError:
                given_up = self._connection is not connection
                if given_up or not connection.broken:
                    raise
                await self.close()
                # A server that restarted or a pooler that tidied up ends an idle connection: that is
                # no failure as long as a new one works.
                if not kept:
                    raise
                kept, connection = False, None


async def poll_once(config: TargetConfig, catalogue: Catalogue, redact: Redactor) -> PollResult:
    """Connect, poll, disconnect. Raises PollError; never takes much longer than the target's timeout."""
    poller = Poller(config, catalogue, redact)
    try:
        return await poller.poll()
    except PollError:
        raise
    except Exception as error:  # noqa: BLE001 - described, redacted, handed on as one kind
        raise classified(error, redact) from None
    finally:
        await poller.close()
