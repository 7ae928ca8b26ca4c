"""The tables of a day, from its points: what Spark's Python workers do, each a part of a day.

Points are in order and whole columns at hand, so nothing has to be shuffled and little to be compiled.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import SparkSession

from pgque_pipeline import schemas
from pgque_pipeline.parts import Part, all_parts, read
from pgque_pipeline.parts import write as write_part
from pgque_pipeline.schemas import POINTS, SERIES, Table
from pgque_pipeline.settings import Settings
from pgque_pipeline.tables.flow import flow
from pgque_pipeline.tables.health import health
from pgque_pipeline.tables.latency import latency
from pgque_pipeline.tables.rollups import DAY, HOUR, merged, rollup_1m
from pgque_pipeline.tables.sli import sli
from pgque_pipeline.workers import spread

TABLES: tuple[Table, ...] = (
    schemas.ROLLUP_1M,
    schemas.ROLLUP_1H,
    schemas.ROLLUP_1D,
    schemas.FLOW,
    schemas.LATENCY,
    schemas.HEALTH,
    schemas.SLI,
)


@dataclass(frozen=True)
class Day:
    """Where the points and series of a day are, and the points of the day before."""

    day: date
    points: Sequence[Path]
    series: Sequence[Path]
    before: Sequence[Path]
    parts: int


def write(spark: SparkSession, days: Sequence[Day], folders: Mapping[str, Path], settings: Settings) -> None:
    """Write the tables of these days, each below its folder. A day has no folder of a table without rows."""
    jobs = [(day, part) for day in days for part in all_parts(day.parts)]
    spread(spark, lambda job: make(*job, folders, settings), jobs)


def make(day: Day, part: Part, folders: Mapping[str, Path], settings: Settings) -> None:
    """Write a part of the tables of a day."""
    points = read(day.points, POINTS.stored, part)
    before = read(day.before, POINTS.stored, part, only=pc.field("temporality").is_valid())  # of what counts
    series = read(day.series, SERIES.stored, part)
    for table, rows in tables(points, before, series, settings):
        if len(rows):
            write_part(rows, folders[table.name] / f"date={day.day}", part)


def tables(
    points: pa.Table, before: pa.Table, series: pa.Table, settings: Settings
) -> Iterator[tuple[Table, pa.Table]]:
    """The tables of a day from its points and series and from the points of the day before.

    All are in the order of series and time, as they are stored.
    """
    minutes = rollup_1m(points, before)
    yield schemas.ROLLUP_1M, minutes
    hours = merged(minutes, HOUR)
    yield schemas.ROLLUP_1H, hours
    yield schemas.ROLLUP_1D, merged(hours, DAY)
    yield schemas.FLOW, flow(hours, series)
    yield schemas.LATENCY, latency(points, hours, series)
    yield schemas.HEALTH, health(points, series, settings.max_gap)
    yield schemas.SLI, sli(points, hours, series, settings.objectives)
