"""`series`: what the ids of a day's rows stand for."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as sf


def latest(series_of_days: DataFrame) -> DataFrame:
    """One row for each series, as on its newest day."""
    newest = sf.max_by(sf.struct(*series_of_days.columns), "date").alias("newest")
    return series_of_days.groupBy("series_id").agg(newest).select("newest.*")
