"""`flow`: what went through each queue and consumer, by hour."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pgque_pipeline.schemas import FLOW, FLOWS
from pgque_pipeline.tables.entities import labels
from pgque_pipeline.tables.runs import floats, in_order, integers, is_one_of, of_series, table


def flow(rollup_1h: pa.Table, series: pa.Table) -> pa.Table:
    """From a day's rollup by hour and its series."""
    counters = series.filter(pc.field("metric").isin([*FLOWS.values()]))
    rows, place = of_series(rollup_1h.filter(pc.field("increase").is_valid()), counters)
    entity_id, hour = integers(counters, "entity_id")[place], integers(rows, "window_start")
    order, runs = in_order(hour, entity_id)
    increase, covered = (floats(rows, name)[order] for name in ("increase", "covered_seconds"))
    first = order[runs.first]
    found: dict[str, Any] = {"window_start": hour[first], **labels(entity_id[first], counters)}
    for name, metric in FLOWS.items():
        mine = is_one_of(counters.column("metric"), metric)[place][order]
        found[name] = runs.total(np.where(mine, increase, np.nan))
        # Growth of no known time (differences without a start) has no rate.
        timed = mine & ~np.isnan(covered)
        seconds = runs.total(np.where(timed, covered, np.nan))
        with np.errstate(divide="ignore", invalid="ignore"):
            rate = runs.total(np.where(timed, increase, np.nan)) / seconds
        found[f"{name}_per_second"] = np.where(seconds == 0, np.nan, rate)
    return table(FLOW.stored, found)
