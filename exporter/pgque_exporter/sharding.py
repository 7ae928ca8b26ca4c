"""Places that follow from a target's name alone: its share of the fleet, and its moment of the interval."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass

from pgque_exporter.errors import UserError

MOST_SHARDS = 1000


@dataclass(frozen=True)
class Shard:
    """One of several services that divide a fleet among them: `number` counts from 1 to `total`."""

    number: int
    total: int

    def owns(self, name: str) -> bool:
        """Whether the target of this name is ours; of all shards exactly one says yes."""
        return _digest(name) % self.total == self.number - 1

    def __str__(self) -> str:
        return f"{self.number}/{self.total}"


def parse_shard(text: str, where: str) -> Shard:
    """The shard of `2/8`; UserError for anything else."""
    match = re.fullmatch(r"(\d{1,4})/(\d{1,4})", text, re.ASCII)
    shard = Shard(int(match[1]), int(match[2])) if match else None
    if shard is None or not 1 <= shard.number <= shard.total <= MOST_SHARDS:
        what = f"{text[:80]!r} is not a shard"
        raise UserError(what, where=where, hint="write 1/8 for the first of eight, 8/8 for the last")
    return shard


def phase(name: str) -> float:
    """Where in its interval a target is polled: from 0 up to 1, spread evenly over many names."""
    return (_digest(name) >> 32) / 2**32  # other bits than those that choose the shard


def _digest(name: str) -> int:
    # Not hash(): that differs from process to process.
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:8])
