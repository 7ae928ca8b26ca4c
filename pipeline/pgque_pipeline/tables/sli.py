"""`sli`: what counts for and against each objective, by hour."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pgque_pipeline.schemas import SLI
from pgque_pipeline.settings import Objective, Ratio, Threshold
from pgque_pipeline.tables.entities import labels
from pgque_pipeline.tables.rollups import HOUR
from pgque_pipeline.tables.runs import Array, floats, in_order, integers, is_one_of, of_series, table


def sli(
    points: pa.Table, rollup_1h: pa.Table, series: pa.Table, objectives: Sequence[Objective]
) -> pa.Table:
    """From a day's points, rollup by hour and series."""
    samples = points.select(["series_id", "ts", "value"]).filter(pc.field("value").is_valid())
    grown = rollup_1h.filter(pc.field("increase").is_valid())
    tables = [SLI.stored.empty_table()]
    for one in objectives:
        if isinstance(one, Threshold):
            tables.append(_of_samples(samples, series, one))
        else:
            tables.append(_of_events(grown, series, one))
    return pa.concat_tables(tables)


def _of_samples(samples: pa.Table, series: pa.Table, objective: Threshold) -> pa.Table:
    wanted = series.filter(pc.field("metric") == objective.metric)
    rows, place = of_series(samples, wanted)
    good = (floats(rows, "value") <= objective.most).astype(np.float64)
    hour = integers(rows, "ts") // HOUR * HOUR
    return _by_hour(objective.name, wanted, place, hour, good, np.ones(len(good)))


def _of_events(rollup_1h: pa.Table, series: pa.Table, objective: Ratio) -> pa.Table:
    wanted = series.filter(pc.field("metric").isin([objective.good, objective.bad]))
    rows, place = of_series(rollup_1h, wanted)
    total = floats(rows, "increase")
    good = np.where(is_one_of(wanted.column("metric"), objective.good)[place], total, 0.0)
    return _by_hour(objective.name, wanted, place, integers(rows, "window_start"), good, total)


def _by_hour(
    objective: str, series: pa.Table, place: Array, hour: Array, good: Array, total: Array
) -> pa.Table:
    entity_id = integers(series, "entity_id")[place]
    order, runs = in_order(hour, entity_id)
    first = order[runs.first]
    found = table(
        SLI.stored,
        {
            "window_start": hour[first],
            "objective": pa.array([objective] * len(runs), pa.string()),
            **labels(entity_id[first], series),
            "good": runs.total(good[order]),
            "total": runs.total(total[order]),
        },
    )
    return found.filter(pc.field("total") > 0)
