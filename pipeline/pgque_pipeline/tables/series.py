"""`series`: what the ids of a day's rows stand for."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as sf

from pgque_pipeline.schemas import SERIES

_SEEN = ("first_seen", "last_seen", "points")
IDENTITY = tuple(name for name in SERIES.columns if name not in _SEEN)


def series(points: DataFrame, fresh: DataFrame, before: DataFrame | None = None) -> DataFrame:
    """One row for each series of each day of `points`.

    What they are about is told by `fresh` points, and by the series of these days as they were `before`.
    """
    told = fresh.where("metric is not null").select(*IDENTITY)
    if before is not None:
        told = told.unionByName(before.select(*IDENTITY))
    # Of units that differ one has to be chosen, the same one whatever comes first.
    identity = sf.max_by(sf.struct(*IDENTITY), sf.coalesce("unit", sf.lit(""))).alias("identity")
    identities = told.groupBy("date", "series_id").agg(identity).select("identity.*")
    seen = points.groupBy("date", "series_id").agg(
        sf.min("ts").alias("first_seen"), sf.max("ts").alias("last_seen"), sf.count("*").alias("points")
    )
    return SERIES.shaped(seen.join(identities, ["date", "series_id"]))


def latest(series_of_days: DataFrame) -> DataFrame:
    """One row for each series, as on its newest day."""
    newest = sf.max_by(sf.struct(*series_of_days.columns), "date").alias("newest")
    return series_of_days.groupBy("series_id").agg(newest).select("newest.*")
