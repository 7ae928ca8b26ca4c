"""`rollup_1m`, `rollup_1h`, `rollup_1d`: every series by minute, hour and day.

A counter's growth between two points is credited to the window of the later one, so rows of short
windows add up exactly to those of long ones, over midnight too.
"""

from __future__ import annotations

from functools import reduce

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as sf

from pgque_pipeline.schemas import ROLLUP_1M

# Over a longer silence nobody can say when a counter grew. A day's rows need the day before, no more.
MAX_STEP_SECONDS = 86400

# Marks that a series has ended tell nothing of where it stood.
_KNOWN = "value is not null or count is not null"
_KEY = ("date", "series_id", "window_start")
_GROWTH = ("increase", "resets", "covered_seconds", "sum_increase")


def rollup_1m(points: DataFrame, before: DataFrame | None = None, *, parts: int = 1) -> DataFrame:
    """Points by minute. `before` holds points of the days before those of `points`.

    They only tell where counters and histograms stood. Rows come spread as they are to be written: each day
    in so many parts.
    """
    known = points.where(_KNOWN)
    stood = _stood(known if before is None else known.unionByName(before.where(_KNOWN)))
    counting = known.where("temporality is not null").withColumn("own", sf.lit(True))
    counting = counting.unionByName(stood.withColumn("own", sf.lit(False)))
    gauges = _spread(known.where("temporality is null"), parts)
    counters = _counted(_spread(counting.where("count is null"), parts), "value")
    histograms = _counted(_spread(counting.where("count is not null"), parts), "count", "sum", "counts")
    # Each kind has aggregates that the others needn't wait for.
    kinds = (_by_minute(gauges), _by_minute(counters, "increase"), _by_minute(histograms, "buckets"))
    return ROLLUP_1M.shaped(reduce(DataFrame.unionByName, kinds))


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
        *(sf.sum(name).alias(name) for name in _GROWTH),
    ]
    rows = rollup.withColumn("window_start", sf.date_trunc(window, "window_start"))
    # Only histograms have no values. Buckets make a slower aggregate: they are grouped apart.
    numbers = rows.where("sum is not null").groupBy(*_KEY).agg(*totals)
    histograms = rows.where("sum is null").groupBy(*_KEY).agg(*totals, _added_buckets())
    return ROLLUP_1M.shaped(numbers.withColumn("bucket_increase", _no_buckets()).unionByName(histograms))


def _spread(rows: DataFrame, parts: int) -> DataFrame:
    spread = rows.withColumn("part", sf.expr(f"pmod(xxhash64(series_id), {parts})"))
    return spread.repartition("date", "part")


def _stood(known: DataFrame) -> DataFrame:
    """The last point of each day of all that counts, as of the following day: where that one begins."""
    counting = known.where("temporality is not null")
    last = counting.groupBy("date", "series_id").agg(sf.max("ts").alias("ts"))
    return counting.join(last, ["date", "series_id", "ts"]).withColumn("date", sf.date_add("date", 1))


def _counted(points: DataFrame, *columns: str) -> DataFrame:
    """The own ones of `points`, with what each grew by since the point before, and in which time.

    `columns` tell how far a series has counted: value of a counter; count, sum and counts of a histogram.
    """
    in_turn = Window.partitionBy("date", "part", "series_id").orderBy("ts")
    rows = points.withColumn("previous", sf.lag(sf.struct("ts", "temporality", *columns)).over(in_turn))
    seconds = "(unix_micros(ts) - unix_micros({})) / 1e6"
    since = seconds.format("previous.ts")
    follows = f"""
        temporality = 'cumulative' and previous.temporality = 'cumulative'
            and {since} <= {MAX_STEP_SECONDS}"""
    less = {
        "value": "value < previous.value",
        "count": "count < previous.count",
        "counts": "exists(zip_with(counts, previous.counts, (a, b) -> a < b), less -> less)",
    }
    fell = " or ".join(less[name] for name in columns if name in less)
    covered = f"case when temporality = 'delta' then {seconds.format('start')} when follows then {since} end"
    judged = (
        rows.withColumn("follows", sf.expr(f"coalesce({follows}, false)"))
        .withColumn("fell", sf.expr(f"follows and coalesce({fell}, false)"))
        # What is first seen at this very moment had counted before, for nobody knows how long.
        .withColumn("fresh", sf.expr("coalesce(fell and start = ts, false)"))
        .withColumn("covered_seconds", sf.expr(covered))
        .withColumn("increase", _grown("double", columns[0], "now - before", "0d"))
        .withColumn("sum_increase", sf.lit(None).cast("double"))
    )
    if "counts" in columns:
        difference = "zip_with(now, before, (x, y) -> x - y)"
        judged = judged.withColumn(
            "sum_increase", _grown("double", "sum", "now - before", "sum * 0")
        ).withColumn(
            "bucket_increase", _grown("array<bigint>", "counts", difference, "transform(counts, x -> 0L)")
        )
    return judged.where("own")


def _grown(type_: str, column: str, difference: str, nothing: str) -> Column:
    """Growth of a column; `difference` is that between two points of which nothing began anew."""
    now, before = f"cast({column} as {type_})", f"cast(previous.{column} as {type_})"
    grown = difference.replace("now", now).replace("before", before)
    return sf.expr(
        f"""case when temporality = 'delta' then {now} when not follows then null
            when fresh then {nothing} when fell then {now} else {grown} end"""
    )


def _by_minute(rows: DataFrame, grows: str = "") -> DataFrame:
    """Rows by minute; with the growth of counters ("increase"), and that of histograms too ("buckets")."""
    totals = [
        sf.count("*").alias("samples"),
        sf.sum("value").alias("sum"),
        sf.min("value").alias("min"),
        sf.max("value").alias("max"),
        sf.min_by("value", "ts").alias("first"),
        sf.max_by("value", "ts").alias("last"),
        sf.min("ts").alias("first_ts"),
        sf.max("ts").alias("last_ts"),
    ]
    if grows:
        fell = sf.expr("case when temporality = 'cumulative' then cast(fell as bigint) end")
        totals += [
            sf.sum("increase").alias("increase"),
            sf.sum(fell).alias("resets"),
            sf.sum("covered_seconds").alias("covered_seconds"),
            sf.sum("sum_increase").alias("sum_increase"),
        ]
    if grows == "buckets":
        totals.append(_added_buckets())
    minutes = rows.withColumn("window_start", sf.date_trunc("minute", "ts"))
    found = minutes.groupBy("date", "part", "series_id", "window_start").agg(*totals)
    missing = [] if grows else [sf.lit(None).alias(name) for name in _GROWTH]
    buckets = [] if grows == "buckets" else [_no_buckets().alias("bucket_increase")]
    return ROLLUP_1M.shaped(found.select("*", *missing, *buckets))


def _no_buckets() -> Column:
    return sf.lit(None).cast("array<bigint>")


def _added_buckets() -> Column:
    """Buckets added element by element; NULL of no list at all."""
    lists = sf.collect_list("bucket_increase")
    others = sf.slice(lists, sf.lit(2), sf.greatest(sf.size(lists), sf.lit(1)))
    total = sf.aggregate(
        others, sf.get(lists, 0), lambda total, one: sf.zip_with(total, one, lambda a, b: a + b)
    )
    return total.alias("bucket_increase")
