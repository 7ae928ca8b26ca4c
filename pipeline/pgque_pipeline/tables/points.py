"""`points`: OTLP lines, flat and typed, each point once.

A point that a database's name stands on is that database's, whichever exporter sent it: after a restart
elsewhere, or a change of leader, its series go on. All others belong to their sender.
"""

from __future__ import annotations

from datetime import date, datetime, timedelta

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as sf

from pgque_exporter import catalogue
from pgque_pipeline.otlp import BAD_LINE, NO_RECORDED_VALUE
from pgque_pipeline.schemas import POINTS, QUARANTINE

_TEXT_LIMIT = 4096
_EARLIEST = datetime(2000, 1, 1)  # noqa: DTZ001 - the session's time zone is UTC
_FUTURE = timedelta(days=1)

# Column -> the attributes that it is taken from, the first that is there. All the others are `attributes`.
_LABELS = {
    "engine": ("engine", "messaging.system"),
    "database": ("database",),
    "queue": ("queue", "messaging.destination.name"),
    "consumer": ("consumer", "messaging.consumer.group.name"),
    "check": ("check",),
    "state": ("state",),
}
_TAKEN = sorted({name for names in _LABELS.values() for name in names})
# Of a resource: what tells the process, and what tells the sender but not what it observes.
_PROCESS = r"^(service\.version|db\..*|(telemetry|process|host|os|container|k8s\.pod)\..*)$"
_SENDER = ("service.name", "service.namespace", "service.instance.id")


def flat(lines: DataFrame, *, now: datetime, earliest: date | None = None) -> DataFrame:
    """A row per data point of `lines` (file, resourceMetrics, bad_line), the columns of `points` and more.

    `reason` says why a point can't be used, and `json` what it was; both are NULL otherwise. Points of
    more than a day after `now` are refused, as are those of days before `earliest`.
    """
    metrics = (
        lines.where(_line_reason().isNull())
        .select("file", sf.explode("resourceMetrics").alias("r"))
        .select("file", *_resource(), sf.explode("r.scopeMetrics").alias("s"))
        .select("file", "process", "sender", "namespace", sf.explode("s.metrics").alias("m"))
    )
    points = metrics.select(
        "file",
        "process",
        "sender",
        "namespace",
        _canonical_name().alias("metric"),
        sf.expr(_KIND).alias("kind"),
        sf.expr(_TEMPORALITY).alias("temporality"),
        sf.expr("m.unit").alias("unit"),
        sf.expr(_METRIC_REASON).alias("metric_reason"),
        sf.explode(sf.expr(_DATA_POINTS)).alias("p"),
    ).select(
        "*",
        sf.expr("try_cast(p.timeUnixNano as bigint)").alias("time_ns"),
        sf.expr("try_cast(p.startTimeUnixNano as bigint)").alias("start_ns"),
        sf.expr(f"coalesce(p.flags, 0) & {NO_RECORDED_VALUE} = 1").alias("mark"),
        sf.expr("coalesce(p.asDouble, try_cast(p.asInt as double))").alias("number"),
        sf.expr("try_cast(p.count as bigint)").alias("n"),
        sf.when(
            sf.col("kind") == "histogram",
            sf.expr("transform(coalesce(p.bucketCounts, array()), c -> try_cast(c as bigint))"),
        ).alias("buckets"),
        sf.expr(_entries("p.attributes")).alias("entries"),
    )
    labelled = points.select("*", sf.map_from_entries("entries").alias("labels")).select(
        "*", *(_label(name, sources) for name, sources in _LABELS.items())
    )
    return (
        labelled.withColumn("rest", sf.expr(_REST))
        .select(
            "file",
            "metric",
            "kind",
            "unit",
            *_LABELS,
            "temporality",
            sf.coalesce("metric_reason", _point_reason(now, earliest)).alias("reason"),
            sf.expr("to_json(struct(metric, p as point))").alias("json"),
            sf.when(sf.col("kind") == "histogram", sf.expr("coalesce(p.explicitBounds, array())")).alias(
                "bounds"
            ),
            sf.expr("timestamp_micros(time_ns div 1000)").alias("ts"),
            sf.expr(
                "case when kind <> 'gauge' and start_ns > 0 and start_ns <= time_ns "
                "then timestamp_micros(start_ns div 1000) end"
            ).alias("start"),
            sf.expr("case when not mark and kind <> 'histogram' then number end").alias("value"),
            sf.expr("case when not mark and kind = 'histogram' then n end").alias("count"),
            sf.expr("case when not mark and kind = 'histogram' then p.sum end").alias("sum"),
            sf.expr("case when not mark and kind = 'histogram' then buckets end").alias("counts"),
            "rest",
        )
        .withColumn("date", sf.to_date("ts"))
        .withColumn("attributes", sf.map_from_entries("rest"))
        .withColumn("entity_id", _hash("engine", "database", "queue", "consumer", "rest"))
        .withColumn("series_id", _hash("metric", "kind", *_LABELS, "rest", "bounds"))
    )


def points(flat_rows: DataFrame) -> DataFrame:
    """The usable ones of `flat()`, in the shape of the table; the same point may be there twice."""
    return POINTS.shaped(flat_rows.where("reason is null"))


def rejected(lines: DataFrame, flat_rows: DataFrame) -> DataFrame:
    """`quarantine`: lines that are no OTLP metrics, and points that can't be used."""
    bad_lines = lines.withColumn("reason", _line_reason()).where("reason is not null")
    return QUARANTINE.shaped(
        bad_lines.select("file", "reason", _text(sf.coalesce(BAD_LINE, sf.lit("{}")))).unionByName(
            flat_rows.where("reason is not null").select("file", "reason", _text(sf.col("json")))
        )
    )


def bad_line_count() -> Column:
    """Aggregate over lines: how many of them are no OTLP metrics."""
    return sf.count(sf.when(_line_reason().isNotNull(), 1))


def deduplicated(rows: DataFrame, buckets: int) -> DataFrame:
    """Each point once, sorted as it is to be written, in `buckets` parts for every day.

    Of points of a series and a time that differ the one of the largest value stays.
    """
    key = ("date", "bucket", "metric", "series_id", "ts")
    order = [
        sf.col(name).desc_nulls_last() for name in ("value", "count", "start", "sum", "temporality", "counts")
    ]
    best = Window.partitionBy(*key).orderBy(*order)
    spread = rows.withColumn("bucket", sf.expr(f"pmod(series_id, {buckets})")).repartition("date", "bucket")
    return POINTS.shaped(spread.withColumn("rank", sf.row_number().over(best)).where("rank = 1"))


# --- lines and resources -------------------------------------------------------------------------


def _line_reason() -> Column:
    return sf.when(sf.col(BAD_LINE).isNotNull(), "not a line of OTLP JSON").when(
        sf.col("resourceMetrics").isNull(), "a line without resourceMetrics"
    )


def _resource() -> list[Column]:
    entries = _entries("r.resource.attributes")
    sender = ", ".join(f"'{name}'" for name in _SENDER)
    return [
        sf.expr(f"filter({entries}, e -> e.key not in ({sender}) and not e.key rlike r'{_PROCESS}')").alias(
            "process"
        ),
        sf.expr(f"filter({entries}, e -> e.key in ({sender}))").alias("sender"),
        sf.expr(f"get(filter({entries}, e -> e.key = 'db.namespace'), 0).value").alias("namespace"),
    ]


def _entries(attributes: str) -> str:
    value = ", ".join(
        f"a.value.{kind}Value" for kind in ("string", "int", "double", "bool", "array", "kvlist", "bytes")
    )
    return (
        f"transform(filter(coalesce({attributes}, array()), a -> a.key is not null), "
        f"a -> struct(a.key as key, coalesce({value}, '') as value))"
    )


# --- metrics -------------------------------------------------------------------------------------


def _canonical_name() -> Column:
    """OpenTelemetry's name also where a collector has taken the metric from a Prometheus page."""
    names = {metric.prometheus_name: metric.name for metric in catalogue.load()}
    known = sf.create_map(*(sf.lit(text) for pair in names.items() for text in pair))
    name = sf.expr("m.name")
    return sf.when(sf.instr(name, ".") == 0, sf.coalesce(known[name], name)).otherwise(name)


_KIND = """
    case when m.histogram is not null then 'histogram'
        when m.sum.isMonotonic then 'counter'
        else 'gauge' end"""
_GIVEN = "coalesce(m.sum.aggregationTemporality, m.histogram.aggregationTemporality)"
_TEMPORALITY = f"""
    case when m.sum is not null and not coalesce(m.sum.isMonotonic, false) then null
        when {_GIVEN} in ('1', 'AGGREGATION_TEMPORALITY_DELTA') then 'delta'
        when {_GIVEN} in ('2', 'AGGREGATION_TEMPORALITY_CUMULATIVE') then 'cumulative' end"""
_METRIC_REASON = f"""
    case when m.exponentialHistogram is not null then 'exponential histograms are not read'
        when m.summary is not null then 'summaries are not read'
        when m.gauge is null and m.sum is null and m.histogram is null then 'a metric without data'
        when coalesce(m.name, '') = '' then 'a metric without a name'
        when m.gauge is null and not coalesce({_GIVEN}, '') in
            ('1', '2', 'AGGREGATION_TEMPORALITY_DELTA', 'AGGREGATION_TEMPORALITY_CUMULATIVE')
            then 'no aggregation temporality'
        when not coalesce(m.sum.isMonotonic, m.sum is null)
            and {_GIVEN} in ('1', 'AGGREGATION_TEMPORALITY_DELTA')
            then 'differences of a sum that may fall are not read' end"""
_DATA_POINTS = """
    coalesce(m.gauge.dataPoints, m.sum.dataPoints, m.histogram.dataPoints, m.exponentialHistogram.dataPoints,
        m.summary.dataPoints,
        case when m.gauge is null and m.sum is null and m.histogram is null and m.exponentialHistogram is null
            and m.summary is null then array(null) end)"""


# --- points --------------------------------------------------------------------------------------


def _label(name: str, sources: tuple[str, ...]) -> Column:
    found = [sf.expr(f"nullif(labels['{source}'], '')") for source in sources]
    if name == "database":
        found.append(sf.expr("nullif(namespace, '')"))
    return sf.coalesce(*found).alias(name)


_REST = f"""
    array_sort(concat(
        filter(process, e -> not map_contains_key(labels, e.key)),
        filter(sender, e -> database is null and not map_contains_key(labels, e.key)),
        filter(entries, e -> e.key not in ({", ".join(f"'{name}'" for name in _TAKEN)}))))"""


def _point_reason(now: datetime, earliest: date | None) -> Column:
    future = _nanoseconds(now + _FUTURE)
    reasons = f"""
        case when coalesce(time_ns, 0) <= 0 then 'no time'
            when time_ns > {future} then 'a time in the future'
            when time_ns < {_nanoseconds(_EARLIEST)} then 'a time before 2000'
            {_late(earliest)}
            when mark then null
            when kind <> 'histogram' then
                case when number is null then 'no value'
                    when isnan(number) or abs(number) = double('infinity') then 'not a finite value'
                    when kind = 'counter' and number < 0 then 'a counter below 0' end
            when n is null or n < 0 then 'no count'
            when exists(buckets, c -> c is null or c < 0) then 'a bucket without a count'
            when size(buckets) > 0 and size(buckets) <> size(coalesce(p.explicitBounds, array())) + 1
                or size(buckets) = 0 and size(coalesce(p.explicitBounds, array())) > 0
                then 'buckets that do not fit their bounds'
            when size(buckets) > 0 and aggregate(buckets, 0L, (a, c) -> a + c) <> n
                then 'buckets that do not add up to the count'
            when isnan(p.sum) or abs(p.sum) = double('infinity') then 'not a finite sum'
            when not forall(
                    zip_with(p.explicitBounds, slice(p.explicitBounds, 2, size(p.explicitBounds)),
                        (a, b) -> b is null or a < b), ascending -> ascending)
                then 'bounds that do not ascend' end"""
    return sf.expr(reasons)


def _late(earliest: date | None) -> str:
    if earliest is None:
        return ""
    begin = _nanoseconds(datetime.combine(earliest, datetime.min.time()))
    return f"when time_ns < {begin} then 'too late: older than the watermark'"


def _nanoseconds(moment: datetime) -> int:
    """Of a moment in UTC, with or without its time zone."""
    return int((moment.replace(tzinfo=None) - datetime(1970, 1, 1)) / timedelta(microseconds=1)) * 1000  # noqa: DTZ001


def _hash(*columns: str) -> Column:
    """A hash that tells NULL in one column from NULL in another."""
    texts = [name if name in ("rest", "bounds") else f"coalesce({name}, char(0))" for name in columns]
    return sf.expr(f"xxhash64({', '.join(texts)})")


def _text(column: Column) -> Column:
    return sf.substring(column, 1, _TEXT_LIMIT).alias("text")
