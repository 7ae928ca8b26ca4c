"""The pipeline's `points` by Polars: the same input, the same columns, each point once, sorted.

python bench/peers/pipeline_polars.py points INPUT OUTPUT
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import time
from pathlib import Path

os.environ["POLARS_MAX_THREADS"] = "2"
import polars as pl

_TEXT = pl.Struct({"stringValue": pl.String, "intValue": pl.String})
_ATTRIBUTES = pl.List(pl.Struct({"key": pl.String, "value": _TEXT}))
_POINTS = pl.Struct(
    {
        "dataPoints": pl.List(
            pl.Struct(
                {
                    "attributes": _ATTRIBUTES,
                    "startTimeUnixNano": pl.String,
                    "timeUnixNano": pl.String,
                    "asDouble": pl.Float64,
                    "asInt": pl.String,
                    "count": pl.String,
                    "sum": pl.Float64,
                    "bucketCounts": pl.List(pl.String),
                    "explicitBounds": pl.List(pl.Float64),
                }
            )
        ),
        "aggregationTemporality": pl.Int64,
        "isMonotonic": pl.Boolean,
    }
)
_METRIC = pl.Struct({"name": pl.String, "gauge": _POINTS, "sum": _POINTS, "histogram": _POINTS})
_LINE = pl.List(
    pl.Struct(
        {
            "resource": pl.Struct({"attributes": _ATTRIBUTES}),
            "scopeMetrics": pl.List(pl.Struct({"metrics": pl.List(_METRIC)})),
        }
    )
)


def points(file: Path) -> pl.DataFrame:
    """The points of a file; a series is known by the hash of its resource, metric and attributes."""
    kinds = ("gauge", "sum", "histogram")
    metrics = (
        pl.scan_ndjson(file, schema={"resourceMetrics": _LINE})
        .explode("resourceMetrics")
        .unnest("resourceMetrics")
        .explode("scopeMetrics")
        .unnest("scopeMetrics")
        .explode("metrics")
        .unnest("metrics")
        .select(
            "resource",
            "name",
            pl.coalesce(pl.col(kind).struct.field("aggregationTemporality") for kind in kinds[1:]).alias(
                "temporality"
            ),
            pl.coalesce(pl.col(kind).struct.field("dataPoints") for kind in kinds).alias("point"),
        )
    )
    rows = metrics.explode("point").unnest("point")
    return rows.select(
        pl.struct("resource", "name", "attributes", "explicitBounds").hash().alias("series_id"),
        pl.from_epoch(pl.col("timeUnixNano").cast(pl.Int64) // 1000, "us").alias("ts"),
        "temporality",
        pl.from_epoch(pl.col("startTimeUnixNano").cast(pl.Int64) // 1000, "us").alias("start"),
        pl.coalesce("asDouble", pl.col("asInt").cast(pl.Float64)).alias("value"),
        pl.col("count").cast(pl.Int64),
        "sum",
        pl.col("bucketCounts").cast(pl.List(pl.Int64)).alias("counts"),
    ).collect()


def main() -> int:
    _, given, target = sys.argv[1:]
    shutil.rmtree(target, ignore_errors=True)
    Path(target).mkdir(parents=True)
    began = time.perf_counter()
    # A file at a time: all of them at once take more memory than there is.
    found = pl.concat(points(file) for file in sorted(Path(given).glob("*.json")))
    whole = (
        found.sort("series_id", "ts", "value", descending=[False, False, True], nulls_last=True)
        .unique(["series_id", "ts"], keep="first", maintain_order=True)
        .with_columns(pl.col("ts").dt.date().alias("date"))
    )
    _by_day(whole, target)
    seconds = time.perf_counter() - began
    print(
        json.dumps({"points_seconds": seconds, "rows": {"points": len(whole)}, "sum": whole["value"].sum()})
    )
    return 0


def _by_day(points_of_all: pl.DataFrame, target: str) -> None:
    for (day,), rows in points_of_all.partition_by("date", as_dict=True).items():
        folder = Path(target, f"date={day}")
        folder.mkdir()
        rows.write_parquet(folder / "points.parquet")


if __name__ == "__main__":
    sys.exit(main())
