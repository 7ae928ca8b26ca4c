"""`slo`: how each objective was kept, over several windows up to the newest hour."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pgque_pipeline.schemas import SLO
from pgque_pipeline.settings import Objective
from pgque_pipeline.tables.entities import labels
from pgque_pipeline.tables.rollups import HOUR
from pgque_pipeline.tables.runs import floats, in_order, integers, table

# An hour, six, a day, three days, a week, four weeks, a quarter.
WINDOW_HOURS = (1, 6, 24, 72, 168, 672, 2160)


def slo(sli: pa.Table, objectives: Sequence[Objective], as_of: int) -> pa.Table:
    """From the indicators of all days; `as_of` is the end of the newest hour, in microseconds since 1970."""
    wanted = sli.filter(pc.field("objective").isin([one.name for one in objectives]))
    found = [_in_window(wanted, objectives, as_of, hours) for hours in WINDOW_HOURS]
    return pa.concat_tables([SLO.stored.empty_table(), *found])


def _in_window(sli: pa.Table, objectives: Sequence[Objective], as_of: int, hours: int) -> pa.Table:
    rows = sli.filter(pa.array(as_of - integers(sli, "window_start") <= hours * HOUR))
    objective = pc.index_in(rows.column("objective"), pa.array([one.name for one in objectives])).to_numpy()
    entity_id = integers(rows, "entity_id")
    order, runs = in_order(objective, entity_id)
    first = order[runs.first]
    good, total = (runs.total(floats(rows, name)[order]) for name in ("good", "total"))
    target = np.array([one.target for one in objectives])[objective[first]]
    burn = (1 - good / total) / (1 - target)
    return table(
        SLO.stored,
        {
            "as_of": np.full(len(runs), as_of),
            "window_hours": np.full(len(runs), hours),
            "objective": rows.column("objective").take(pa.array(first)),
            **labels(entity_id[first], rows),
            "target": target,
            "good": good,
            "total": total,
            "attainment": good / total,
            "burn": burn,
            "budget_left": 1 - burn,
        },
    )
