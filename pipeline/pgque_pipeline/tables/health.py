"""`health`: the states of each health check in turn."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pgque_pipeline.schemas import HEALTH
from pgque_pipeline.tables.entities import labels
from pgque_pipeline.tables.runs import Array, Runs, codes, in_order, integers, of_series, table

METRIC = "pgque.queue.health_state"
# From harmless to bad; of several states at a time the worst counts.
STATES = ("ok", "unknown", "warning", "critical")


def health(points: pa.Table, series: pa.Table, max_gap: int) -> pa.Table:
    """From a day's points and series.

    After `max_gap` seconds without a sample nothing is known of a state.
    """
    states = series.filter((pc.field("metric") == METRIC) & pc.field("state").isin(STATES))
    check, first_of_check = _checks(states)
    samples, place = of_series(
        points.select(["series_id", "ts", "value"]).filter(pc.field("value") == 1), states
    )
    rank = pc.index_in(states.column("state"), pa.array(STATES)).to_numpy()
    of, ts, worst = _worst(check[place], integers(samples, "ts"), rank[place])

    near = np.zeros(len(ts), bool)
    near[1:] = (of[1:] == of[:-1]) & (ts[1:] - ts[:-1] <= max_gap * 1_000_000)
    turns = Runs(of, np.cumsum(~near), worst)
    following = np.minimum(turns.last + 1, len(ts) - 1)
    seen_next = (turns.last + 1 < len(ts)) & near[following]
    mine = first_of_check[of[turns.first]]
    return table(
        HEALTH.stored,
        {
            **labels(integers(states, "entity_id")[mine], states),
            "check": states.column("check").take(pa.array(mine)),
            "state": pa.array(STATES).take(pa.array(worst[turns.first])),
            "started": ts[turns.first],
            "ended": np.where(seen_next, ts[following], ts[turns.last]),
            "samples": turns.lengths,
        },
    )


def _checks(states: pa.Table) -> tuple[Array, Array]:
    """The number of each series' check, and of each check a series; in the order of entities."""
    keys = np.stack([integers(states, "entity_id"), codes(states.column("check"))])
    _, first, number = np.unique(keys, axis=1, return_index=True, return_inverse=True)
    return number.reshape(-1), first


def _worst(check: Array, ts: Array, rank: Array) -> tuple[Array, Array, Array]:
    """The samples of each check in turn, and the worst state of each."""
    order, runs = in_order(check, ts, then=rank)
    last = order[runs.last]
    return check[last], ts[last], rank[last]
