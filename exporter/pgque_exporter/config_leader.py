"""Where replicas of the service agree on which of them pushes."""

from __future__ import annotations

from dataclasses import dataclass

from pgque_exporter.config_targets import TargetConfig, check_dsn
from pgque_exporter.config_values import Duration, RawModel, Where, readable
from pgque_exporter.errors import UserError

DEFAULT_LEASE = 10.0
_SHORTEST_LEASE = 1.0


@dataclass(frozen=True)
class LeaderConfig:
    """The database that holds the lock; `name` tells one group of replicas from another.

    `lease`, in seconds, is how long a leader that is no longer heard of keeps the lead at most.
    """

    database: TargetConfig
    name: str
    lease: float = DEFAULT_LEASE


class RawLeader(RawModel):
    """The block `leader`."""

    dsn: str
    password_file: str | None = None
    name: str = "pgque-exporter"
    lease: Duration = DEFAULT_LEASE


def build_leader(raw: RawLeader, where: Where) -> LeaderConfig:
    """The block made ready; UserError if it can't be."""
    check_dsn(raw.dsn, where(("leader", "dsn")))
    if raw.lease < _SHORTEST_LEASE:
        what = f"lease is shorter than {_SHORTEST_LEASE:g}s"
        hint = "the lead would be lost at each hiccup of the network"
        raise UserError(what, where=where(("leader", "lease")), hint=hint)
    password_file = None
    if raw.password_file is not None:
        password_file = readable(raw.password_file, where(("leader", "password_file")))
    pause = raw.lease / 4
    database = TargetConfig("leader", raw.dsn, password_file, interval=pause, timeout=pause)
    return LeaderConfig(database, raw.name, raw.lease)
