"""The push side: snapshots in, requests out, and books that balance.

Every point that comes in is sent, rejected by the collector, or dropped by us for a reason, and
counted as such: polled = sent + rejected + dropped + queued. A slow or dead collector fills the queue,
whose oldest points then go; it never holds up a poll.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import os
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from urllib.parse import urlsplit

from pgque_exporter.config import OtlpConfig
from pgque_exporter.otlp.delivery import Delivery, Pace
from pgque_exporter.otlp.encode import SnapshotEncoder
from pgque_exporter.otlp.gate import Gated, Lead
from pgque_exporter.otlp.layout import Batch
from pgque_exporter.otlp.ledger import Drop, Ledger
from pgque_exporter.otlp.outbox import Outbox, Parcel
from pgque_exporter.otlp.transport import Transport
from pgque_exporter.redaction import Redactor
from pgque_exporter.snapshot import Snapshot

log = logging.getLogger(__name__)

_OWN_STALE_INTERVALS = 4


def make_transport(config: OtlpConfig) -> Transport:
    """The transport that the configuration asks for; only that one's library is loaded."""
    if config.protocol == "grpc":
        # Its core writes to stderr by itself, past every log level and filter of ours.
        os.environ.setdefault("GRPC_VERBOSITY", "NONE")
        from pgque_exporter.otlp.over_grpc import GrpcTransport

        return GrpcTransport(config)
    from pgque_exporter.otlp.over_http import HttpTransport

    return HttpTransport(config)


@dataclass(slots=True)
class _Database:
    """What is known of a database.

    waiting   a snapshot to encode; one place: should encoding fall behind the polls, the older one goes
    stale_at  when the last snapshot is stale, a monotonic time; infinite once its series have ended
    lifetime  seconds from a snapshot's arrival to then
    removed   nothing more will come: its series end
    """

    encoder: SnapshotEncoder
    waiting: Snapshot | None = None
    stale_at: float = math.inf
    lifetime: float = 0.0
    removed: bool = False

    def due(self, clock: float) -> bool:
        """Whether there is something to do at this monotonic time."""
        return self.waiting is not None or self.removed or clock >= self.stale_at


class Pusher:
    """Pushes each snapshot once, and every `interval` seconds the service's own metrics.

    With `lead` only while this replica has it.
    """

    def __init__(
        self,
        config: OtlpConfig,
        resource: Mapping[str, str],
        own_metrics: Callable[[], Iterable[Batch]],
        interval: float,
        count_request: Callable[[str, float], None],
        redact: Redactor,
        pace: Pace | None = None,
        lead: Lead | None = None,
    ) -> None:
        self.ledger = Ledger()
        self._config = config
        self._resource = resource
        self._own_metrics = own_metrics
        self._interval = interval
        redact.add(*config.headers.values())
        transport = make_transport(config)
        self._transport: Transport = transport if lead is None else Gated(transport, lead)
        self._outbox = Outbox(self.ledger, config.queue_points)
        url = urlsplit(config.endpoint)
        self._delivery = Delivery(
            f"{url.scheme}://{url.netloc}",  # a path may hold a key
            self._transport,
            self._outbox,
            self.ledger,
            timeout=config.timeout,
            pace=pace or _pace(interval),
            count_request=count_request,
            redact=redact,
        )
        self._databases: dict[str, _Database] = {}
        self._encoding = 0  # points under way
        self._wake = asyncio.Event()
        self._closing = False
        self._tasks: list[asyncio.Task[None]] = []

    @property
    def queued(self) -> int:
        """Points that wait or are under way, counted where they are."""
        waiting = sum(one.waiting.points for one in self._databases.values() if one.waiting is not None)
        return waiting + self._encoding + self._outbox.points + self._delivery.in_flight

    def start(self) -> None:
        """Begin to deliver."""
        loops = (self._encode_all(), self._delivery.run(), self._own_loop())
        self._tasks = [asyncio.create_task(loop) for loop in loops]

    def push(self, snapshot: Snapshot, stale_at: float) -> None:
        """Take a snapshot for delivery until the monotonic time `stale_at`; returns at once.

        Unless another one of the same database has come by then, its series end.
        """
        name = snapshot.database
        database = self._databases.get(name)
        if database is None:
            database = self._databases[name] = _Database(self._new_encoder(name))
        if database.waiting is not None:
            self.ledger.dropped[Drop.QUEUE_FULL] += database.waiting.points
        self.ledger.polled += snapshot.points
        database.waiting = snapshot
        database.stale_at = stale_at
        database.lifetime = stale_at - time.monotonic()
        database.removed = False
        self._wake.set()

    def remove(self, name: str) -> None:
        """Let the series of a database end, which is polled no more."""
        if name in self._databases:
            self._databases[name].removed = True
            self._wake.set()

    async def close(self, seconds: float) -> None:
        """Deliver what is waiting, for at most `seconds`; what is left then counts as dropped."""
        if self._tasks:
            await self._finish(seconds)
        await self._transport.close()

    async def _finish(self, seconds: float) -> None:
        encode, deliver, own = self._tasks
        own.cancel()
        deadline = time.monotonic() + seconds
        self._closing = True
        self._wake.set()
        await asyncio.wait({encode}, timeout=seconds)
        self._push_own()
        self._delivery.end()
        await asyncio.wait({deliver}, timeout=max(0.0, deadline - time.monotonic()))
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._outbox.clear(Drop.SHUTDOWN)
        for database in self._databases.values():
            if database.waiting is not None:
                self.ledger.dropped[Drop.SHUTDOWN] += database.waiting.points
                database.waiting = None

    # --- own metrics -----------------------------------------------------------------------------

    async def _own_loop(self) -> None:
        while True:
            await asyncio.sleep(self._interval)
            self._push_own()

    def _push_own(self) -> None:
        try:
            batches = self._own_metrics()
        except Exception:  # it costs this push of them, and nothing else
            log.exception("the service's own metrics could not be encoded")
            return
        self._polled_and_put(batches, time.monotonic() + _OWN_STALE_INTERVALS * self._interval)

    # --- snapshots -------------------------------------------------------------------------------

    async def _encode_all(self) -> None:
        while True:
            self._wake.clear()
            clock = time.monotonic()
            due = [(name, one) for name, one in self._databases.items() if one.due(clock)]
            for name, database in due:
                await self._advance(name, database)
            if due:
                continue
            if self._closing:
                return
            next_end = min((one.stale_at for one in self._databases.values()), default=math.inf)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(next_end - clock if next_end < math.inf else None):
                    await self._wake.wait()

    async def _advance(self, name: str, database: _Database) -> None:
        """Encode what waits; else the database was removed or is silent for too long, and its series end."""
        if database.waiting is not None:
            snapshot, database.waiting = database.waiting, None
            await self._encode(database, snapshot, database.stale_at)
            return
        marks = database.encoder.end(time.time_ns())
        self._polled_and_put(marks, time.monotonic() + database.lifetime)
        database.stale_at = math.inf
        if database.removed:
            del self._databases[name]

    async def _encode(self, database: _Database, snapshot: Snapshot, stale_at: float) -> None:
        self._encoding = snapshot.points
        try:
            encoded = await asyncio.to_thread(database.encoder.encode, snapshot)
        except asyncio.CancelledError:
            self.ledger.dropped[Drop.SHUTDOWN] += snapshot.points
            raise
        except Exception:
            log.exception("%s: a snapshot could not be encoded", snapshot.database)
            self.ledger.dropped[Drop.ENCODING] += snapshot.points
            database.encoder = self._new_encoder(snapshot.database)  # who knows in what state the old one is
        else:
            self.ledger.dropped[Drop.FIRST_DELTA] += snapshot.points - sum(b.points for b in encoded.data)
            for batch in encoded.data:
                self._delivery.put(Parcel(batch, stale_at))
            self._polled_and_put(encoded.ended, stale_at)
        finally:
            self._encoding = 0

    def _new_encoder(self, database: str) -> SnapshotEncoder:
        return SnapshotEncoder(self._resource, database, self._config.temporality)

    def _polled_and_put(self, batches: Iterable[Batch], stale_at: float) -> None:
        for batch in batches:
            self.ledger.polled += batch.points
            self._delivery.put(Parcel(batch, stale_at))


def _pace(interval: float) -> Pace:
    """Once the collector is back, what waits shall not wait for longer than a poll's interval."""
    usual = Pace()
    return replace(usual, longest=max(usual.first, min(usual.longest, interval)))
