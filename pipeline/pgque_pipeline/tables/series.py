"""`series`: what the ids of a day's rows stand for."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pgque_pipeline.tables.runs import Runs, integers


def series(points: pa.Table, told: pa.Table) -> pa.Table:
    """A row for each series of a day's settled points; `told` says what they are about, some twice."""
    ids = integers(points, "series_id")
    runs = Runs(ids)
    # Of units that differ one has to be chosen, the same one whatever comes first.
    keyed = told.append_column("unit_or_none", pc.fill_null(told.column("unit"), ""))
    ordered = told.take(
        pc.sort_indices(keyed, sort_keys=[("series_id", "ascending"), ("unit_or_none", "descending")])
    )
    place = np.searchsorted(ordered.column("series_id").to_numpy(), ids[runs.first])
    times = points.column("ts")
    seen = {
        "first_seen": times.take(pa.array(runs.first)),
        "last_seen": times.take(pa.array(runs.last)),
        "points": pa.array(runs.lengths),
    }
    found = ordered.take(pa.array(place))
    for name, column in seen.items():
        found = found.append_column(name, column)
    return found


def latest(series_of_days: pa.Table) -> pa.Table:
    """One row for each series, as on its newest day, in the order of ids; the days are given in turn."""
    ids = integers(series_of_days, "series_id")
    order = np.argsort(ids, kind="stable")
    return series_of_days.take(pa.array(order[Runs(ids[order]).last]))
