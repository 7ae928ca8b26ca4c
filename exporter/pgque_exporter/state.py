"""What is known about a target at one moment; replaced as a whole after each poll."""

from __future__ import annotations

import time
from dataclasses import dataclass

from pgque_exporter.connection import FailureKind, PollError
from pgque_exporter.pack import Pack
from pgque_exporter.snapshot import Labels, Snapshot


@dataclass(frozen=True, slots=True)
class Failure:
    """Why the last poll didn't succeed. `since` is the Unix time at which this trouble began."""

    kind: FailureKind
    message: str
    since: float


def failure(error: PollError, before: Failure | None) -> Failure:
    """What `error` amounts to after the failure `before` it: trouble of the same kind goes on since then."""
    since = before.since if before is not None and before.kind is error.kind else time.time()
    return Failure(error.kind, error.message, since)


@dataclass(frozen=True, slots=True)
class TargetState:
    """One database, as its last poll left it.

    labels           that the configuration adds to all series of the database
    polled           whether a first poll has finished, well or badly
    failure          None after a poll in which every pack gave its rows
    snapshot         the last one, however old; see `fresh`
    snapshot_clock   monotonic time of that snapshot
    last_success     Unix time of the last poll without any failure
    stale_after      seconds after which a snapshot is no longer shown
    """

    name: str
    interval: float
    stale_after: float
    labels: Labels = ()
    polled: bool = False
    failure: Failure | None = None
    snapshot: Snapshot | None = None
    snapshot_clock: float = 0.0
    last_success: float | None = None
    packs: tuple[Pack, ...] = ()

    @property
    def up(self) -> bool:
        """Whether the last poll succeeded."""
        return self.polled and self.failure is None

    @property
    def stale_at(self) -> float:
        """Monotonic time from which on the snapshot is no longer shown."""
        return self.snapshot_clock + self.stale_after

    def age(self, clock: float) -> float | None:
        """Seconds since the snapshot at monotonic time `clock`; None without a snapshot."""
        return None if self.snapshot is None else max(0.0, clock - self.snapshot_clock)

    def fresh(self, clock: float) -> Snapshot | None:
        """The snapshot unless it is stale at monotonic time `clock`."""
        age = self.age(clock)
        return self.snapshot if age is not None and age < self.stale_after else None
