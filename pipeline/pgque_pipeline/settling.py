"""Fresh points into `points` and `series`, a day at a time: each point once, in order.

Spark's Python workers do this from file to file, each a part of a day, since whole columns can be sorted and
compared at once. What has to meet are the points of a series and a day: they are in the folders of the day.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import SparkSession

from pgque_pipeline.parts import Part, all_parts, read
from pgque_pipeline.parts import write as write_part
from pgque_pipeline.schemas import POINTS
from pgque_pipeline.tables.points import ARROW_IDENTITY, settled
from pgque_pipeline.tables.series import series
from pgque_pipeline.workers import spread


@dataclass(frozen=True)
class Day:
    """What a day is made of: folders of fresh points, and those of points and series that stay."""

    day: date
    fresh: Sequence[Path]
    points: Sequence[Path]
    series: Sequence[Path]
    parts: int


def write(spark: SparkSession, days: Sequence[Day], points_folder: Path, series_folder: Path) -> None:
    """Write these days below two folders, each day in its parts."""
    jobs = [(day, part) for day in days for part in all_parts(day.parts)]
    spread(spark, lambda job: settle_part(*job, points_folder, series_folder), jobs)


def settle_part(day: Day, part: Part, points_folder: Path, series_folder: Path) -> None:
    """Write one part of a day below two folders; of a part that no series falls into, files without rows."""
    points = settled(read((*day.fresh, *day.points), POINTS.stored, part))
    told = read(day.fresh, ARROW_IDENTITY, part, only=pc.field("metric").is_valid())
    held = read(day.series, ARROW_IDENTITY, part)
    named = series(points, pa.concat_tables([told, held]))
    for table, folder in ((points, points_folder), (named, series_folder)):
        write_part(table, folder / f"date={day.day}", part)
