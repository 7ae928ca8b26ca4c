"""The push side: a bounded queue, one delivery at a time, and books that balance.

Every point that comes in is exported, rejected by the collector, or dropped by us, and counted as
such: polled = exported + rejected + dropped + (on its way). A slow or dead collector fills the
queue, whose oldest batches then go; it never holds up a poll.
"""

from __future__ import annotations

import asyncio
import logging
import os
import random
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

from pgque_exporter.config import OtlpConfig
from pgque_exporter.otlp.encode import Batch, SnapshotEncoder
from pgque_exporter.otlp.gate import Gated, Lead
from pgque_exporter.otlp.transport import DeliveryError, Rejected, Retry, Transport, Undelivered
from pgque_exporter.redaction import Redactor, one_line
from pgque_exporter.snapshot import Snapshot

log = logging.getLogger(__name__)

MAX_QUEUED_BYTES = 32 * 1024 * 1024
_FIRST_DELAY, _LONGEST_DELAY = 0.5, 5.0


@dataclass(slots=True)
class Ledger:
    """Points by what became of them, since the start."""

    polled: int = 0
    exported: int = 0
    rejected: int = 0
    dropped: int = 0

    @property
    def on_the_way(self) -> int:
        """Points taken in and not yet settled; 0 after the end."""
        return self.polled - self.exported - self.rejected - self.dropped


def make_transport(config: OtlpConfig) -> Transport:
    """The transport that the configuration asks for; only that one's library is loaded."""
    if config.protocol == "grpc":
        # Its core writes to stderr by itself, past every log level and filter of ours.
        os.environ.setdefault("GRPC_VERBOSITY", "NONE")
        from pgque_exporter.otlp.over_grpc import GrpcTransport

        return GrpcTransport(config)
    from pgque_exporter.otlp.over_http import HttpTransport

    return HttpTransport(config)


class Pusher:
    """Pushes each snapshot once, and every `interval` seconds the service's own metrics.

    With `lead` only while this replica has it.
    """

    def __init__(
        self,
        config: OtlpConfig,
        resource: Mapping[str, str],
        own_metrics: Callable[[], Batch],
        interval: float,
        count: Callable[[str, int], None],
        redact: Redactor,
        lead: Lead | None = None,
    ) -> None:
        self.ledger = Ledger()
        url = urlsplit(config.endpoint)
        self._collector = f"{url.scheme}://{url.netloc}"  # a path may hold a key
        self._timeout = config.timeout
        transport = make_transport(config)
        self._transport = transport if lead is None else Gated(transport, lead)
        self._resource = resource
        self._own_metrics = own_metrics
        self._interval = interval
        self._count = count
        self._redact = redact
        redact.add(*config.headers.values())
        self._snapshots: dict[str, Snapshot] = {}
        self._encoders: dict[str, SnapshotEncoder] = {}
        self._queue: deque[Batch] = deque()
        self._queued_bytes = 0
        self._arrived = asyncio.Event()  # a snapshot to encode, or the end
        self._queued = asyncio.Event()  # a batch to deliver, or the end
        self._closing = False
        self._encoded_all = False
        self._trouble: type[DeliveryError] | None = None
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        """Begin to deliver."""
        loops = (self._encode_all(), self._deliver_all(), self._own_loop())
        self._tasks = [asyncio.create_task(loop) for loop in loops]

    def push(self, snapshot: Snapshot) -> None:
        """Take a snapshot for delivery; returns at once."""
        self.ledger.polled += snapshot.points
        # One place per database: should encoding ever fall behind the polls, the older one goes.
        overtaken = self._snapshots.pop(snapshot.database, None)
        if overtaken is not None:
            self._settle("dropped", overtaken.points)
        self._snapshots[snapshot.database] = snapshot
        self._arrived.set()

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
        self._arrived.set()
        await asyncio.wait({encode}, timeout=seconds)
        self._push_own()
        self._encoded_all = True
        self._queued.set()
        await asyncio.wait({deliver}, timeout=max(0.0, deadline - time.monotonic()))
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._settle("dropped", self.ledger.on_the_way)

    async def _own_loop(self) -> None:
        while True:
            await asyncio.sleep(self._interval)
            self._push_own()

    def _push_own(self) -> None:
        batch = self._own_metrics()
        if batch.points:
            self.ledger.polled += batch.points
            self._enqueue(batch)

    def _enqueue(self, batch: Batch) -> None:
        self._queue.append(batch)
        self._queued_bytes += len(batch.payload)
        while self._queued_bytes > MAX_QUEUED_BYTES and len(self._queue) > 1:
            oldest = self._queue.popleft()
            self._queued_bytes -= len(oldest.payload)
            self._settle("dropped", oldest.points)
        self._queued.set()

    async def _encode_all(self) -> None:
        while self._snapshots or not self._closing:
            self._arrived.clear()
            while self._snapshots:
                snapshot = self._snapshots.pop(next(iter(self._snapshots)))
                try:
                    batches = await asyncio.to_thread(self._encoder(snapshot.database).encode, snapshot)
                except Exception:
                    log.exception("%s: a snapshot could not be encoded", snapshot.database)
                    self._settle("dropped", snapshot.points)
                    continue
                for batch in batches:
                    self._enqueue(batch)
            if not self._closing:
                await self._arrived.wait()

    def _encoder(self, database: str) -> SnapshotEncoder:
        encoder = self._encoders.get(database)
        if encoder is None:
            encoder = self._encoders[database] = SnapshotEncoder(self._resource, database)
        return encoder

    async def _deliver_all(self) -> None:
        while self._queue or not self._encoded_all:
            self._queued.clear()
            while self._queue:
                batch = self._queue.popleft()
                self._queued_bytes -= len(batch.payload)
                await self._deliver(batch)
            if not self._encoded_all:
                await self._queued.wait()

    async def _deliver(self, batch: Batch) -> None:
        deadline = time.monotonic() + self._timeout
        delay = _FIRST_DELAY
        while True:
            try:
                rejected = await self._transport.send(batch.payload, max(0.001, deadline - time.monotonic()))
            except Retry as trouble:
                wait = trouble.after if trouble.after is not None else delay * random.uniform(0.5, 1.0)
                if time.monotonic() + wait >= deadline:
                    self._give_up(batch, trouble)
                    return
                await asyncio.sleep(wait)
                delay = min(delay * 2, _LONGEST_DELAY)
            except DeliveryError as trouble:
                self._give_up(batch, trouble)
                return
            except Exception as error:  # a mistake of ours must not end the deliveries
                log.debug("unexpected", exc_info=True)
                self._give_up(batch, Undelivered(f"unexpected {type(error).__name__}: {error}"))
                return
            else:
                rejected = min(max(rejected, 0), batch.points)
                self._settle("rejected", rejected)
                self._settle("exported", batch.points - rejected)
                if self._trouble is not None:
                    self._trouble = None
                    log.info("%s takes metrics again", self._collector)
                return

    def _give_up(self, batch: Batch, trouble: DeliveryError) -> None:
        self._settle("rejected" if isinstance(trouble, Rejected) else "dropped", batch.points)
        if self._trouble is not type(trouble):
            self._trouble = type(trouble)
            text = one_line(trouble, self._redact)
            log.warning("metrics not delivered to %s: %s; %s", self._collector, text, trouble.hint)

    def _settle(self, outcome: str, points: int) -> None:
        if points:
            setattr(self.ledger, outcome, getattr(self.ledger, outcome) + points)
            self._count(outcome, points)
