"""Delivering what waits in the outbox, one request at a time, until the collector has taken it.

A request that may fare better later is sent again after a while: exponentially longer from try to
try, at random so that many services don't come back at once, and not before the collector wants it.
Its points are given up when they are stale, never sent as if they were new.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from pgque_exporter.otlp.ledger import Ledger
from pgque_exporter.otlp.outbox import Outbox, Parcel
from pgque_exporter.otlp.transport import Answer, DeliveryError, Rejected, Retry, Transport, Undelivered
from pgque_exporter.redaction import Redactor, one_line

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Pace:
    """How long to wait before a request is sent again, in seconds.

    longest_asked is for how long a collector may ask to be left alone.
    """

    first: float = 0.5
    longest: float = 5.0
    longest_asked: float = 60.0


class Delivery:
    """Brings parcels from the outbox to one collector, and keeps the ledger."""

    def __init__(
        self,
        collector: str,
        transport: Transport,
        outbox: Outbox,
        ledger: Ledger,
        *,
        timeout: float,
        pace: Pace,
        count_request: Callable[[str, float], None],
        redact: Redactor,
    ) -> None:
        self._collector = collector
        self._transport = transport
        self._outbox = outbox
        self._ledger = ledger
        self._timeout = timeout
        self._pace = pace
        self._count_request = count_request
        self._redact = redact
        self._wake = asyncio.Event()
        self._ending = False
        self._delay = pace.first
        self._not_before = 0.0  # a monotonic time
        self._asked = False  # whether it was the collector that asked for it
        self._trouble: str | None = None
        self.in_flight = 0  # points

    def put(self, parcel: Parcel) -> None:
        """Take a parcel for delivery."""
        self._outbox.put(parcel)
        self._wake.set()

    def end(self) -> None:
        """Nothing more will come: `run` is to return once all is delivered."""
        self._ending = True
        if not self._asked:
            self._not_before = 0.0
            self._delay = self._pace.first
        self._wake.set()

    async def run(self) -> None:
        """Deliver until the end. When cancelled, what was under way is in the outbox again."""
        while True:
            self._wake.clear()
            clock = time.monotonic()
            self._outbox.expire(clock)
            if not self._outbox and self._ending:
                return
            if self._outbox and clock >= self._not_before:
                await self._deliver(self._outbox.take())
            else:
                await self._sleep(clock)

    async def _sleep(self, clock: float) -> None:
        """Until a parcel may be sent again, is stale, or something new has come."""
        until = min(self._not_before, self._outbox.next_expiry()) if self._outbox else math.inf
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(until - clock if until < math.inf else None):
                await self._wake.wait()

    async def _deliver(self, parcels: Sequence[Parcel]) -> None:
        self.in_flight = sum(parcel.batch.points for parcel in parcels)
        # Requests of several databases, one after the other, are by protobuf's rules one request.
        payload = b"".join(parcel.batch.payload for parcel in parcels)
        started = time.monotonic()
        try:
            answer = await self._transport.send(payload, self._timeout)
        except asyncio.CancelledError:
            self.in_flight = 0
            self._outbox.put_back(parcels)
            raise
        except DeliveryError as error:
            result = error.result
            self._failed(parcels, error)
        except Exception as error:  # a mistake of ours must not end the deliveries
            log.debug("unexpected", exc_info=True)
            result = Undelivered.result
            self._failed(parcels, Undelivered(f"unexpected {type(error).__name__}: {error}"))
        else:
            result = "partial" if answer.rejected > 0 else "ok"
            self._taken(answer)
        self.in_flight = 0
        self._count_request(result, time.monotonic() - started)

    def _taken(self, answer: Answer) -> None:
        rejected = min(max(answer.rejected, 0), self.in_flight)
        self._ledger.rejected += rejected
        self._ledger.sent += self.in_flight - rejected
        self._delay, self._not_before, self._asked = self._pace.first, 0.0, False
        if rejected or answer.message:
            what = f"{rejected} of {self.in_flight} points rejected" if rejected else "it warns"
            self._report("partial", f"{what}: {answer.message}", "see the collector's log")
        elif self._trouble is not None:
            self._trouble = None
            log.info("%s takes metrics again", self._collector)

    def _failed(self, parcels: Sequence[Parcel], error: DeliveryError) -> None:
        if isinstance(error, Retry):
            self._wait(error.after)
            self._outbox.put_back(parcels)
        elif isinstance(error, Undelivered):
            self._ledger.dropped[error.drop] += self.in_flight
        elif isinstance(error, Rejected) and error.content and len(parcels) > 1:
            # One of them is to blame. The others shall not suffer for it.
            self._outbox.put_back([replace(parcel, alone=True) for parcel in parcels])
            return
        else:
            self._ledger.rejected += self.in_flight
        self._report(error.result, error, error.hint)

    def _wait(self, asked: float | None) -> None:
        wait = self._delay * random.uniform(0.5, 1.0)
        self._delay = min(self._delay * 2, self._pace.longest)
        self._asked = asked is not None and asked > wait
        if asked is not None:
            wait = max(wait, min(asked, self._pace.longest_asked))
        self._not_before = time.monotonic() + wait

    def _report(self, trouble: str, what: object, hint: str) -> None:
        """Write a line when the kind of trouble changes; the same one every few seconds helps nobody."""
        if self._trouble != trouble:
            self._trouble = trouble
            text = one_line(what, self._redact)
            log.warning("metrics not delivered to %s: %s; %s", self._collector, text, hint)
