"""A transport that sends only while this replica leads."""

from __future__ import annotations

import asyncio
from typing import Protocol

from pgque_exporter.otlp.ledger import Drop
from pgque_exporter.otlp.transport import Answer, Transport, Undelivered


class Lead(Protocol):
    """Who knows whether this replica leads."""

    def leads(self) -> bool:
        """Whether it does at this moment."""

    async def lost(self) -> None:
        """Wait until it doesn't."""


class Gated:
    """Hands requests on while the lead is ours. When it is lost, a request under way is broken off."""

    def __init__(self, transport: Transport, lead: Lead) -> None:
        self._transport = transport
        self._lead = lead

    async def send(self, payload: bytes, seconds: float) -> Answer:
        """See `Transport`; Undelivered without the lead."""
        if not self._lead.leads():
            raise NotLeading
        sending = asyncio.create_task(self._transport.send(payload, seconds))
        losing = asyncio.create_task(self._lead.lost())
        try:
            await asyncio.wait({sending, losing}, return_when=asyncio.FIRST_COMPLETED)
            if not sending.done():
                raise NotLeading
            return sending.result()
        finally:
            losing.cancel()
            if not sending.done():
                sending.cancel()
                await asyncio.wait({sending})

    async def close(self) -> None:
        """Let go of the connection."""
        await self._transport.close()


class NotLeading(Undelivered):
    """Another replica pushes; what this one has is not wanted."""

    hint = "nothing is to be done: the leader pushes its own"
    drop = Drop.NOT_LEADING

    def __init__(self) -> None:
        super().__init__("this replica does not lead")
