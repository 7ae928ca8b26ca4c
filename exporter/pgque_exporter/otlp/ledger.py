"""The books of the OTLP sink: what became of every point."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from enum import StrEnum


class Drop(StrEnum):
    """Why a point was not delivered; the `reason` label of otlp_points_dropped_total."""

    QUEUE_FULL = "queue_full"  # the collector, or encoding, is slower than the polls
    STALE = "stale"  # too old before the collector took it
    UNDELIVERABLE = "undeliverable"  # what answers at the endpoint is no OTLP receiver
    NOT_LEADING = "not_leading"  # another replica has taken the lead, and pushes its own
    ENCODING = "encoding"  # it could not be put into a request
    FIRST_DELTA = "first_delta"  # a counter's first value is no difference yet
    SHUTDOWN = "shutdown"  # the service ended before the collector took it


@dataclass(slots=True)
class Ledger:
    """Points by what became of them, since the start.

    polled    taken in: series of snapshots, marks of series that ended, the service's own metrics
    sent      taken by the collector
    rejected  refused by the collector for good
    dropped   given up by us, by reason
    """

    polled: int = 0
    sent: int = 0
    rejected: int = 0
    dropped: Counter[Drop] = field(default_factory=Counter)

    @property
    def queued(self) -> int:
        """Points taken in and not yet settled; 0 after the end."""
        return self.polled - self.sent - self.rejected - self.dropped.total()

    def as_json(self) -> dict[str, object]:
        """The books at this moment, which balance; to be called from the event loop."""
        return {
            "polled": self.polled,
            "sent": self.sent,
            "rejected": self.rejected,
            "dropped": {reason.value: self.dropped[reason] for reason in Drop},
            "queued": self.queued,
        }
