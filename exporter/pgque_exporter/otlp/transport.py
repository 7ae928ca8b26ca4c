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
    """A request that did not arrive whole and well. The message holds no secret."""


class Retry(DeliveryError):
    """Trouble that may pass; `after` is how long the collector asked to be left alone, in seconds."""

    def __init__(self, message: str, after: float | None = None) -> None:
        self.after = after
        super().__init__(message)


class Rejected(DeliveryError):
    """The collector has read the request and will not take it, today or tomorrow."""


class Undelivered(DeliveryError):
    """Something answered that isn't an OTLP receiver."""
