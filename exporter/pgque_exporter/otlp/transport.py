"""What the two ways to a collector have in common."""

from __future__ import annotations

from typing import Protocol


class Transport(Protocol):
    """A way to deliver one request."""

    async def send(self, payload: bytes, seconds: float) -> int:
        """Deliver a serialised request within `seconds`; returns how many points were rejected.

        Raises Retry, Rejected or Undelivered.
        """

    async def close(self) -> None:
        """Let go of the connection."""


class DeliveryError(Exception):
    """A request that did not arrive whole and well; `hint` says what to do.

    The message may be the collector's own words, of any length and kind.
    """

    hint: str


class Retry(DeliveryError):
    """Trouble that may pass; `after` is how long the collector asked to be left alone, in seconds."""

    hint = "see whether the collector is up and reachable from here"

    def __init__(self, message: str, after: float | None = None) -> None:
        self.after = after
        super().__init__(message)


class Rejected(DeliveryError):
    """The collector has read the request and will not take it, today or tomorrow."""

    hint = "check otlp.endpoint and otlp.headers, and see the collector's log"


class Undelivered(DeliveryError):
    """Something answered that isn't an OTLP receiver."""

    hint = "check otlp.endpoint and otlp.protocol"
