"""The tables without days, from those by day: what Spark's Python workers do, each a part of a table."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import SparkSession

from pgque_pipeline import schemas
from pgque_pipeline.parts import Part, all_parts, newest, parts_for, read
from pgque_pipeline.parts import write as write_part
from pgque_pipeline.schemas import Table
from pgque_pipeline.settings import Settings
from pgque_pipeline.tables import baselines, forecast, incidents, slo
from pgque_pipeline.tables.rollups import HOUR
from pgque_pipeline.tables.series import latest
from pgque_pipeline.workers import spread

TABLES: tuple[Table, ...] = (schemas.INCIDENTS, schemas.SLO, schemas.BASELINES, schemas.FORECAST)


@dataclass(frozen=True)
class History:
    """Folders of tables by day, in the order of days, as far as the tables without days look back."""

    health: Sequence[Path]
    sli: Sequence[Path]
    hours: Sequence[Path]
    series_of_hours: Sequence[Path]
    minutes: Sequence[Path]
    days: Sequence[Path]
    series_of_minutes: Sequence[Path]


def write(spark: SparkSession, history: History, folders: Mapping[str, Path], settings: Settings) -> None:
    """Write each table into its folder."""
    jobs = [
        (make, part, folders[table.name])
        for table, (source, make) in makers(history, settings).items()
        for part in all_parts(parts_for(source))
    ]
    spread(spark, lambda job: _make(*job), jobs)


def _make(make: Callable[[Part], pa.Table], part: Part, folder: Path) -> None:
    write_part(make(part), folder, part)


def makers(
    history: History, settings: Settings
) -> dict[Table, tuple[Sequence[Path], Callable[[Part], pa.Table]]]:
    """For each table the largest of what it is made of, and how a part of it is made."""
    last_sli, last_hour = (newest(given, "window_start") for given in (history.sli, history.hours))
    last_minute = newest(history.minutes, "last_ts")
    return {
        schemas.INCIDENTS: (history.health, partial(_incidents, history, settings)),
        schemas.SLO: (history.sli, partial(_slo, history, settings, (last_sli or 0) + HOUR)),
        schemas.BASELINES: (
            history.hours,
            partial(_baselines, history, settings, (last_hour or 0) + HOUR),
        ),
        schemas.FORECAST: (history.minutes, partial(_forecast, history, settings, last_minute or 0)),
    }


def _incidents(history: History, settings: Settings, part: Part) -> pa.Table:
    return incidents.incidents(read(history.health, schemas.HEALTH.stored, part), settings.max_gap)


def _slo(history: History, settings: Settings, as_of: int, part: Part) -> pa.Table:
    return slo.slo(read(history.sli, schemas.SLI.stored, part), settings.objectives, as_of)


def _baselines(history: History, settings: Settings, as_of: int, part: Part) -> pa.Table:
    columns = ("series_id", "window_start", "samples", "sum", "increase", "covered_seconds")
    return baselines.baselines(
        read(history.hours, _only(schemas.ROLLUP_1H, columns), part),
        _series(history.series_of_hours, baselines.METRICS, part),
        time_zone=settings.time_zone,
        weeks=settings.baseline_weeks,
        as_of=as_of,
    )


def _forecast(history: History, settings: Settings, as_of: int, part: Part) -> pa.Table:
    columns = _only(schemas.ROLLUP_1M, ("series_id", "last_ts", "last"))
    # A queue and its consumers are in different parts: the periods of all queues are few.
    everything = Part(0, 1)
    return forecast.forecast(
        read(history.minutes, columns, part),
        read(history.days, columns, everything),
        _series(history.series_of_minutes, (forecast.LAG,), part),
        _series(history.series_of_minutes, (forecast.PERIOD,), everything),
        hours=settings.trend_hours,
        as_of=as_of,
    )


def _series(folders: Sequence[Path], metrics: Sequence[str], part: Part) -> pa.Table:
    return latest(read(folders, schemas.SERIES.stored, part, only=pc.field("metric").isin(metrics)))


def _only(table: Table, columns: Sequence[str]) -> pa.Schema:
    return pa.schema([table.stored.field(name) for name in columns])
