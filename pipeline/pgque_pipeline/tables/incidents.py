"""`incidents`: from the first sample that is warning or critical to the first that is ok again.

Between samples too far apart nothing is known: such a gap neither ends an incident nor counts as health.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pgque_pipeline.schemas import INCIDENTS
from pgque_pipeline.tables.entities import labels
from pgque_pipeline.tables.runs import Array, Runs, codes, integers, is_one_of, next_of, table


def incidents(health: pa.Table, max_gap: int) -> pa.Table:
    """From the health of all days; `max_gap` in seconds, as it was for them."""
    health = _in_turn(health)
    check = np.cumsum(_new_check(health))
    started, ended = integers(health, "started"), integers(health, "ended")
    last = next_of(check, 0) != check
    following = next_of(started, 0)
    # A day's last state lasts until the next day's first sample, if that comes in time.
    ended = np.where(~last & (following - ended <= max_gap * 1_000_000), following, ended)
    state = health.column("state")
    bad, ok = is_one_of(state, "warning", "critical"), is_one_of(state, "ok")
    kept = _from_first(bad, Runs(check, np.cumsum(ok)))

    check, started, ended, following, last, bad = (
        column[kept] for column in (check, started, ended, following, last, bad)
    )
    episodes = Runs(check, np.cumsum(ok)[kept])
    seconds = {
        name: np.where(is_one_of(state, name)[kept], (ended - started) / 1e6, 0.0)
        for name in ("warning", "critical", "unknown")
    }
    seconds["unknown"] += np.where(last, 0.0, (following - ended) / 1e6)
    critical = np.logical_or.reduceat(is_one_of(state, "critical")[kept], episodes.first)
    first = np.flatnonzero(kept)[episodes.first]
    return table(
        INCIDENTS.stored,
        {
            **labels(integers(health, "entity_id")[first], health),
            "check": health.column("check").take(pa.array(first)),
            "started": started[episodes.first],
            "ended": pa.array(following[episodes.last], mask=last[episodes.last]),
            "last_seen": np.maximum.reduceat(np.where(bad, ended, 0), episodes.first),
            "worst": pc.if_else(pa.array(critical), "critical", "warning"),
            **{f"{name}_seconds": episodes.total(column) for name, column in seconds.items()},
            "samples": np.add.reduceat(
                np.where(bad, integers(health, "samples")[kept], 0), episodes.first
            ),
        },
    )


def _in_turn(health: pa.Table) -> pa.Table:
    order = np.lexsort(
        [integers(health, "started"), codes(health.column("check")), integers(health, "entity_id")]
    )
    return health.take(pa.array(order))


def _new_check(health: pa.Table) -> Array:
    new = np.zeros(len(health), bool)
    new[Runs(integers(health, "entity_id"), codes(health.column("check"))).first] = True
    return new


def _from_first(bad: Array, turns: Runs) -> Array:
    """The rows of each run from its first bad one on; of a run that begins with health not that."""
    row = np.arange(len(bad))
    first = np.minimum.reduceat(np.where(bad, row, len(bad)), turns.first)
    found: Array = row >= first[turns.of]
    return found
