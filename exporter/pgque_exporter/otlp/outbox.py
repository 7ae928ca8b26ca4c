"""The queue in front of the collector: bounded, and free of stale data."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from pgque_exporter.otlp.layout import MAX_BYTES, MAX_POINTS, Batch
from pgque_exporter.otlp.ledger import Drop, Ledger

MAX_QUEUED_BYTES = 64 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Parcel:
    """A batch to deliver before it is stale.

    stale_at    monotonic time
    alone       not to be put into one request with others
    """

    batch: Batch
    stale_at: float
    alone: bool = False


class Outbox:
    """Parcels, oldest first. What has to go is counted in the ledger.

    Parcels that were taken out for a delivery don't count towards the limit, and can't be dropped.
    """

    def __init__(self, ledger: Ledger, most_points: int) -> None:
        self._ledger = ledger
        self._most_points = most_points
        self._parcels: deque[Parcel] = deque()
        self._bytes = 0
        self.points = 0

    def __bool__(self) -> bool:
        return bool(self._parcels)

    def put(self, parcel: Parcel) -> None:
        """Add a parcel at the end; the oldest go if that is too much."""
        self._parcels.append(parcel)
        self._count(parcel, +1)
        self._make_room()

    def put_back(self, parcels: Sequence[Parcel]) -> None:
        """Put parcels that weren't delivered where they came from."""
        for parcel in reversed(parcels):
            self._parcels.appendleft(parcel)
            self._count(parcel, +1)
        self._make_room()

    def take(self) -> Sequence[Parcel]:
        """The oldest parcels, as many as fit into one request; none if there are none."""
        taken: list[Parcel] = []
        points = size = 0
        while self._parcels:
            parcel = self._parcels[0]
            points += parcel.batch.points
            size += len(parcel.batch.payload)
            too_much = points > MAX_POINTS or size > MAX_BYTES
            if taken and (too_much or parcel.alone or taken[0].alone):
                break
            taken.append(self._parcels.popleft())
            self._count(parcel, -1)
        return taken

    def expire(self, clock: float) -> None:
        """Drop what is stale at monotonic time `clock`."""
        if self.next_expiry() > clock:
            return
        parcels, self._parcels = self._parcels, deque()
        for parcel in parcels:
            if parcel.stale_at > clock:
                self._parcels.append(parcel)
            else:
                self._drop(parcel, Drop.STALE)

    def clear(self, reason: Drop) -> None:
        """Drop all that is left."""
        while self._parcels:
            self._drop(self._parcels.popleft(), reason)

    def next_expiry(self) -> float:
        """When the first parcel will be stale, a monotonic time."""
        return min((parcel.stale_at for parcel in self._parcels), default=math.inf)

    def _make_room(self) -> None:
        while self.points > self._most_points or self._bytes > MAX_QUEUED_BYTES:
            self._drop(self._parcels.popleft(), Drop.QUEUE_FULL)

    def _drop(self, parcel: Parcel, reason: Drop) -> None:
        self._count(parcel, -1)
        self._ledger.dropped[reason] += parcel.batch.points

    def _count(self, parcel: Parcel, sign: int) -> None:
        self._bytes += sign * len(parcel.batch.payload)
        self.points += sign * parcel.batch.points
