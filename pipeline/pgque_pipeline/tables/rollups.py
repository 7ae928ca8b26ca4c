"""`rollup_1m`, `rollup_1h`, `rollup_1d`: every series by minute, hour and day.

A counter's growth between two points is credited to the window of the later one, so rows of short
windows add up exactly to those of long ones, over midnight too.
"""

from __future__ import annotations

import re

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as sf

from pgque_pipeline.schemas import ROLLUP_1M

# Over a longer silence nobody can say when a counter grew. A day's rows need the day before, no more.
MAX_STEP_SECONDS = 86400

_KEY = ("date", "series_id", "window_start")


def rollup_1m(points: DataFrame, before: DataFrame | None = None) -> DataFrame:
    """Points by minute. `before` holds points of the days before those of `points`.

    They only tell where counters and histograms stood.
    """
    known = points.where("value is not null or count is not null").withColumn("own", sf.lit(True))
    if before is not None:
        stood = before.where("kind <> 'gauge' and (value is not null or count is not null)")
        known = known.unionByName(stood.withColumn("own", sf.lit(False)))
    steps = _steps(known).where("own").withColumn("window_start", sf.date_trunc("minute", "ts"))
    totals = [
        sf.count("*").alias("samples"),
        sf.sum("value").alias("sum"),
        sf.min("value").alias("min"),
        sf.max("value").alias("max"),
        sf.min_by("value", "ts").alias("first"),
        sf.max_by("value", "ts").alias("last"),
        sf.min("ts").alias("first_ts"),
        sf.max("ts").alias("last_ts"),
        sf.sum("increase").alias("increase"),
        sf.sum(sf.expr("case when temporality = 'cumulative' then cast(fell as bigint) end")).alias("resets"),
        sf.sum("covered_seconds").alias("covered_seconds"),
        sf.sum("sum_increase").alias("sum_increase"),
    ]
    return _by_kind(steps, "kind = 'histogram'", totals)


def merged(rollup: DataFrame, window: str) -> DataFrame:
    """Rows of a rollup by a longer window: "hour" or "day"."""
    totals = [
        sf.sum("samples").alias("samples"),
        sf.sum("sum").alias("sum"),
        sf.min("min").alias("min"),
        sf.max("max").alias("max"),
        sf.min_by("first", "first_ts").alias("first"),
        sf.max_by("last", "last_ts").alias("last"),
        sf.min("first_ts").alias("first_ts"),
        sf.max("last_ts").alias("last_ts"),
        sf.sum("increase").alias("increase"),
        sf.sum("resets").alias("resets"),
        sf.sum("covered_seconds").alias("covered_seconds"),
        sf.sum("sum_increase").alias("sum_increase"),
    ]
    rows = rollup.withColumn("window_start", sf.date_trunc(window, "window_start"))
    return _by_kind(rows, "sum is null", totals)  # only histograms have no values


def _by_kind(rows: DataFrame, is_histogram: str, totals: list[Column]) -> DataFrame:
    """The totals of all rows by series and window, and for histograms those of the buckets.

    Buckets make a slower aggregate of a group, and few series have any: these are grouped apart.
    """
    plain = rows.where(f"not ({is_histogram})").groupBy(*_KEY).agg(*totals)
    buckets = _added(sf.collect_list("bucket_increase")).alias("bucket_increase")
    histograms = rows.where(is_histogram).groupBy(*_KEY).agg(*totals, buckets)
    without = plain.withColumn("bucket_increase", sf.lit(None).cast("array<bigint>"))
    return ROLLUP_1M.shaped(without.unionByName(histograms))


def _added(lists: Column) -> Column:
    """Element by element; NULL of no list at all."""
    others = sf.slice(lists, sf.lit(2), sf.greatest(sf.size(lists), sf.lit(1)))
    return sf.aggregate(
        others, sf.get(lists, 0), lambda total, one: sf.zip_with(total, one, lambda a, b: a + b)
    )


def _steps(points: DataFrame) -> DataFrame:
    """Each point with what its counter grew by since the point before, and in which time."""
    in_turn = Window.partitionBy("series_id").orderBy("ts")
    values = sf.struct("ts", "temporality", "value", "count", "sum", "counts")
    seconds = "(unix_micros(ts) - unix_micros({})) / 1e6"
    since = seconds.format("previous.ts")
    follows = f"""
        temporality = 'cumulative' and previous.temporality = 'cumulative'
            and {since} <= {MAX_STEP_SECONDS}"""
    fell = """
        value < previous.value or count < previous.count or
        exists(zip_with(counts, previous.counts, (a, b) -> a < b), less -> less)"""
    covered = f"case when temporality = 'delta' then {seconds.format('start')} when follows then {since} end"
    return (
        points.withColumn("previous", sf.lag(values).over(in_turn))
        .withColumn("follows", sf.expr(f"coalesce({follows}, false)"))
        .withColumn("fell", sf.expr(f"follows and coalesce({fell}, false)"))
        # What is first seen at this very moment had counted before, for nobody knows how long.
        .withColumn("fresh", sf.expr("coalesce(fell and start = ts, false)"))
        .withColumn("increase", _grown("coalesce({0}value, cast({0}count as double))", "a - b", "0d"))
        .withColumn("sum_increase", _grown("{0}sum", "a - b", "sum * 0"))
        .withColumn(
            "bucket_increase",
            _grown("{0}counts", "zip_with(a, b, (x, y) -> x - y)", "transform(counts, x -> 0L)"),
        )
        .withColumn("covered_seconds", sf.expr(covered))
    )


def _grown(value: str, difference: str, nothing: str) -> Column:
    """Growth since the previous point. `difference` is of a, this point's value, and b, that one's."""
    now, then = value.format(""), value.format("previous.")
    less = re.sub(r"\b[ab]\b", lambda name: now if name.group() == "a" else then, difference)
    return sf.expr(
        f"""case when temporality = 'delta' then {now} when not follows then null
            when fresh then {nothing} when fell then {now} else {less} end"""
    )
