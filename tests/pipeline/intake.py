"""Files of input as `points` and `series`, by what a run does first."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from pgque_pipeline import intake, reading, settling
from pgque_pipeline.schemas import FRESH, POINTS, QUARANTINE, SERIES
from pgque_pipeline.warehouse.store import open_warehouse
from tests.pipeline import compare


def taken_and_refused(
    spark: SparkSession, folder: Path, files: Sequence[Path], now: datetime
) -> tuple[list[compare.Row], list[compare.Row]]:
    """Fresh points of these files, which may be there twice, and what is refused of them."""
    warehouse = open_warehouse(folder, create=True)
    taken = intake.take(warehouse, reading.lines(spark, files), intake.Rules(now))
    refused = [taken.quarantine] if taken.quarantine else []
    points, rest = (
        compare.rows(warehouse.read_folders(spark, table, folders))
        for table, folders in ((FRESH, [*taken.folders.values()]), (QUARANTINE, refused))
    )
    assert (taken.points, taken.refused) == (len(points), len(rest))
    return points, rest


def points_and_series(
    spark: SparkSession, folder: Path, files: Sequence[Path], now: datetime
) -> tuple[DataFrame, DataFrame]:
    """The tables of these files, made in `folder`."""
    warehouse = open_warehouse(folder, create=True)
    taken = intake.take(warehouse, reading.lines(spark, files), intake.Rules(now))
    days = [settling.Day(day, [folder / fresh], [], [], 1) for day, fresh in taken.folders.items()]
    points, series = warehouse.write_settled(spark, days)
    return (
        warehouse.read_folders(spark, POINTS, [*points.values()]),
        warehouse.read_folders(spark, SERIES, [*series.values()]),
    )
