"""What the two ways to a collector have in common."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Protocol

from pgque_exporter.otlp.ledger import Drop


@dataclass(frozen=True, slots=True)
class Answer:
    """The collector has taken a request.

    rejected  points of it that it did not take
    message   what it says about them, or a warning; empty if all is well
    """

    rejected: int = 0
    message: str = ""


class Transport(Protocol):
    """A way to deliver one request."""

    async def send(self, payload: bytes, seconds: float) -> Answer:
        """Deliver a serialised request, all of it done within `seconds`.

        Raises Retry, Rejected or Undelivered.
        """

    async def close(self) -> None:
        """Let go of the connection."""


class DeliveryError(Exception):
    """A request that did not arrive whole and well; `hint` says what to do.

    The message may be the collector's own words, of any length and kind.
    """

    result: str  # in own telemetry
    hint: str


class Retry(DeliveryError):
    """Trouble that may pass; `after` is how long the collector asked to be left alone, in seconds."""

    result = "retry"
    hint = "see whether the collector is up and reachable from here"

    def __init__(self, message: str, after: float | None = None) -> None:
        self.after = after
        super().__init__(message)


class Rejected(DeliveryError):
    """The collector has read the request and will not take it, today or tomorrow.

    `content` tells whether that is for what is in it, so that another request may fare better.
    """

    result = "rejected"
    hint = "check otlp.endpoint and otlp.headers, and see the collector's log"

    def __init__(self, message: str, *, content: bool = False) -> None:
        self.content = content
        super().__init__(message)


class Undelivered(DeliveryError):
    """Something answered that isn't an OTLP receiver."""

    result = "undelivered"
    hint = "check otlp.endpoint and otlp.protocol"
    drop: ClassVar[Drop] = Drop.UNDELIVERABLE
