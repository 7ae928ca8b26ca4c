"""Every table: its columns, their types and units, and what they mean.

Times are UTC. What isn't known is NULL, never 0.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf
from pyspark.sql.types import DataType, StructField, StructType

Extent = Literal["day", "file", "whole"]

# The attribute of a series that nothing real has written, so that whoever looks at it can tell.
GENERATED = "pgque.generated"


@dataclass(frozen=True)
class Field:
    """One column. `type` is Spark's DDL, `unit` UCUM or empty."""

    name: str
    type: str
    unit: str
    doc: str


@dataclass(frozen=True)
class Table:
    """One table; `extent` says what is replaced at once: a day, what is told of a file, or the whole.

    `time` is the column that tells a row's day, of tables by day.
    """

    name: str
    doc: str
    extent: Extent
    fields: tuple[Field, ...]
    time: str = ""

    @property
    def columns(self) -> list[str]:
        """Names of the columns, in their order."""
        return [field.name for field in self.fields]

    @property
    def schema(self) -> StructType:
        """The columns as a Spark schema."""
        return StructType([StructField(field.name, DataType.fromDDL(field.type)) for field in self.fields])

    @property
    def stored(self) -> pa.Schema:
        """What a file of the table holds: all columns but the day, which is in the folder's name."""
        return pa.schema([(field.name, _ARROW[field.type]) for field in self.fields if field.name != "date"])

    def shaped(self, rows: DataFrame) -> DataFrame:
        """`rows` with exactly this table's columns, in their order and of their types."""
        return rows.select(*(_typed(field) for field in self.fields))


_ARROW: Mapping[str, pa.DataType] = {
    "bigint": pa.int64(),
    "int": pa.int32(),
    "double": pa.float64(),
    "string": pa.string(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "array<double>": pa.list_(pa.float64()),
    "array<bigint>": pa.list_(pa.int64()),
    "map<string,string>": pa.map_(pa.string(), pa.string()),
}


def _typed(field: Field) -> Column:
    return sf.col(field.name).cast(field.type).alias(field.name)


_DATE = Field("date", "date", "", "Day of the time below, UTC; tables of days are partitioned by it.")
_SERIES = Field("series_id", "bigint", "", "Hash of all that makes a series, as in `series`.")
_ENTITY = Field("entity_id", "bigint", "", "Hash of what is observed: labels without check and state.")
_ENTITY_LABELS = (
    Field("engine", "string", "", "Queue engine."),
    Field("database", "string", "", "Database, by its name in the exporter's configuration."),
    Field("queue", "string", "", "Queue; NULL for what is of a whole database or of the exporter."),
    Field("consumer", "string", "", "Consumer; NULL for what is of a whole queue."),
)
_ATTRIBUTES = Field(
    "attributes", "map<string,string>", "", "All other labels, and the resource's that say what is observed."
)
_IDENTITY = (
    _SERIES,
    _ENTITY,
    Field("metric", "string", "", "OpenTelemetry name, also where the input has Prometheus's."),
    Field("kind", "string", "", "gauge, counter or histogram."),
    Field("unit", "string", "", "UCUM."),
    *_ENTITY_LABELS,
    Field("check", "string", "", "Health check."),
    Field("state", "string", "", "State of the check that this series is about."),
    _ATTRIBUTES,
    Field("bounds", "array<double>", "the metric's", "Upper bounds of a histogram's buckets but the last."),
)

POINTS = Table(
    "points",
    "What was measured, each point once. What a point is about, `series` tells by its id.",
    "day",
    (
        _DATE,
        _SERIES,
        Field("ts", "timestamp", "", "Time of the point, to the microsecond."),
        Field("temporality", "string", "", "cumulative or delta; NULL for gauges."),
        Field("start", "timestamp", "", "Since when a counter or histogram counts; NULL if unknown."),
        Field("value", "double", "the metric's", "NULL for histograms, and where a series ended."),
        Field("count", "bigint", "", "Observations of a histogram."),
        Field("sum", "double", "the metric's", "Sum of a histogram's observations."),
        Field("counts", "array<bigint>", "", "Observations by bucket; one more than `bounds`."),
    ),
    time="ts",
)

# Points as they were read: some twice, and what a series is about only in the first of a day in each file.
FRESH = Table(
    "points",
    "",
    "day",
    (*POINTS.fields, *(field for field in _IDENTITY if field is not _SERIES)),
    time="ts",
)

SERIES = Table(
    "series",
    "The series of each day: what the ids of other tables stand for.",
    "day",
    (
        _DATE,
        *_IDENTITY,
        Field("first_seen", "timestamp", "", "First point of the day."),
        Field("last_seen", "timestamp", "", "Last point of the day."),
        Field("points", "bigint", "", "Points of the day, ends of series included."),
    ),
    time="first_seen",
)

_ROLLUP_FIELDS = (
    _DATE,
    _SERIES,
    Field("window_start", "timestamp", "", "Begin of the window."),
    Field("samples", "bigint", "", "Points with a value in the window."),
    Field("sum", "double", "the metric's", "Sum of the values; with `samples`, their mean."),
    Field("min", "double", "the metric's", "Least value."),
    Field("max", "double", "the metric's", "Greatest value."),
    Field("first", "double", "the metric's", "First value."),
    Field("last", "double", "the metric's", "Last value."),
    Field("first_ts", "timestamp", "", "Time of the first point."),
    Field("last_ts", "timestamp", "", "Time of the last point."),
    Field(
        "increase",
        "double",
        "the metric's",
        "What a counter, or a histogram's number of observations, grew by, resets accounted for. Growth "
        "since the point before the window is in it; NULL where no point within a day before tells.",
    ),
    Field("resets", "bigint", "", "How often a counter or histogram began anew."),
    Field("covered_seconds", "double", "s", "The time in which `increase` came about."),
    Field("sum_increase", "double", "the metric's", "Sum of the observations that `increase` counts."),
    Field("bucket_increase", "array<bigint>", "", "Those observations by bucket."),
)


def _rollup(name: str, window: str) -> Table:
    doc = f"Every series by {window}. Rows merge exactly into those of longer windows."
    return Table(name, doc, "day", _ROLLUP_FIELDS, time="window_start")


ROLLUP_1M = _rollup("rollup_1m", "minute")
ROLLUP_1H = _rollup("rollup_1h", "hour")
ROLLUP_1D = _rollup("rollup_1d", "day")

_HOUR = Field("window_start", "timestamp", "", "Begin of the hour.")
# Column of `flow` -> the counter that it comes from.
FLOWS: Mapping[str, str] = {
    "sent": "pgque.message.sent_total",
    "acked": "pgque.message.acked_total",
    "nacked": "pgque.message.nacked_total",
    "redelivered": "pgque.message.redelivered_total",
    "dead_lettered": "pgque.message.dead_lettered_total",
}

FLOW = Table(
    "flow",
    "What went through each queue and consumer, by hour.",
    "day",
    (
        _DATE,
        _HOUR,
        _ENTITY,
        *_ENTITY_LABELS,
        _ATTRIBUTES,
        *(Field(name, "double", "{event}", f"Increase of `{metric}`.") for name, metric in FLOWS.items()),
        *(
            Field(f"{name}_per_second", "double", "{event}/s", f"Mean rate of `{name}` while it was watched.")
            for name in FLOWS
        ),
    ),
    time="window_start",
)

LATENCY = Table(
    "latency",
    "Percentiles by hour: of processing latency from histograms, of consumer lag from its samples.",
    "day",
    (
        _DATE,
        _HOUR,
        _ENTITY,
        *_ENTITY_LABELS,
        _ATTRIBUTES,
        Field("metric", "string", "", "What the percentiles are of."),
        Field("source", "string", "", "histogram (interpolated within buckets) or samples (exact)."),
        Field("observations", "double", "", "How many observations or samples they rest on."),
        Field("mean", "double", "s", "Mean; NULL where a histogram has no sum."),
        *(Field(f"p{q}", "double", "s", f"{q}th percentile.") for q in (50, 90, 95, 99)),
    ),
    time="window_start",
)

_CHECK = Field("check", "string", "", "Health check.")
HEALTH = Table(
    "health",
    "States of each health check in turn, by day.",
    "day",
    (
        _DATE,
        _ENTITY,
        *_ENTITY_LABELS,
        _CHECK,
        _ATTRIBUTES,
        Field("state", "string", "", "ok, unknown, warning or critical; the worst if several are given."),
        Field("started", "timestamp", "", "First sample in this state."),
        Field(
            "ended", "timestamp", "", "First sample in another state, or the last before a gap or midnight."
        ),
        Field("samples", "bigint", "", "Samples in this state."),
    ),
    time="started",
)

INCIDENTS = Table(
    "incidents",
    "Times in which a check was warning or critical, from the first such sample to the first that is ok.",
    "whole",
    (
        _ENTITY,
        *_ENTITY_LABELS,
        _CHECK,
        _ATTRIBUTES,
        Field("started", "timestamp", "", "First sample that is warning or critical."),
        Field("ended", "timestamp", "", "First sample that is ok again; NULL while none is known."),
        Field("last_seen", "timestamp", "", "Until when it is known to have been warning or critical."),
        Field("worst", "string", "", "warning or critical."),
        Field("warning_seconds", "double", "s", "Time known to be warning."),
        Field("critical_seconds", "double", "s", "Time known to be critical."),
        Field(
            "unknown_seconds",
            "double",
            "s",
            "Time of which nothing is known: gaps in the data, state unknown.",
        ),
        Field("samples", "bigint", "", "Samples that were warning or critical."),
    ),
)

SLI = Table(
    "sli",
    "What counts for and against each objective, by hour.",
    "day",
    (
        _DATE,
        _HOUR,
        Field("objective", "string", "", "Name of the objective."),
        _ENTITY,
        *_ENTITY_LABELS,
        _ATTRIBUTES,
        Field("good", "double", "", "Samples or events that keep to the objective."),
        Field("total", "double", "", "All samples or events that were seen."),
    ),
    time="window_start",
)

SLO = Table(
    "slo",
    "How each objective was kept over several windows up to the newest hour.",
    "whole",
    (
        Field("as_of", "timestamp", "", "End of the newest hour with data: where the windows end."),
        Field("window_hours", "int", "h", "Length of the window."),
        Field("objective", "string", "", "Name of the objective."),
        _ENTITY,
        *_ENTITY_LABELS,
        _ATTRIBUTES,
        Field("target", "double", "1", "Share that has to be good."),
        Field("good", "double", "", "Samples or events that kept to the objective."),
        Field("total", "double", "", "All that were seen; hours without data count for nothing."),
        Field("attainment", "double", "1", "good / total."),
        Field(
            "burn",
            "double",
            "1",
            "Share that was bad over the share that may be; above 1 the promise breaks.",
        ),
        Field("budget_left", "double", "1", "1 - burn: what is left of the window's error budget."),
    ),
)

BASELINES = Table(
    "baselines",
    "What is normal for each series in each hour of the week.",
    "whole",
    (
        _SERIES,
        _ENTITY,
        Field("metric", "string", "", "The metric; of counters, its rate per second."),
        *_ENTITY_LABELS,
        _ATTRIBUTES,
        Field("hour_of_week", "int", "h", "0 is Monday from 0:00 to 1:00, in the time zone of the run."),
        Field("hours", "bigint", "", "Hours with data that it rests on."),
        Field("median", "double", "the metric's", "Median of these hours' means or rates."),
        Field("mad", "double", "the metric's", "Median of their absolute deviations from it."),
        Field("low", "double", "the metric's", "Lower end of the band; never below 0."),
        Field("high", "double", "the metric's", "Upper end of the band."),
    ),
)

FORECAST = Table(
    "forecast",
    "When each consumer's lag passes its queue's rotation period, if it goes on like this.",
    "whole",
    (
        Field("as_of", "timestamp", "", "Newest sample of all: from where it is counted."),
        _ENTITY,
        *_ENTITY_LABELS,
        _ATTRIBUTES,
        Field("lag_seconds", "double", "s", "Newest lag."),
        Field("rotation_period_seconds", "double", "s", "The queue's newest rotation period."),
        Field("samples", "bigint", "", "Minutes that the trend rests on."),
        Field("slope", "double", "1", "Seconds of lag gained per second, by least squares."),
        Field("slope_low", "double", "1", "Lower end of its 95 % interval."),
        Field("slope_high", "double", "1", "Upper end of its 95 % interval."),
        Field(
            "seconds_left",
            "double",
            "s",
            "Until lag passes the period; 0 if it has; NULL if it doesn't grow.",
        ),
        Field("seconds_left_low", "double", "s", "The same for the upper end of the slope; NULL likewise."),
        Field("seconds_left_high", "double", "s", "The same for the lower end of the slope; NULL likewise."),
    ),
)

DEAD_LETTERS = Table(
    "dead_letters",
    "Dead letters that the databases held at the last look, those of one fault together.",
    "whole",
    (
        *_ENTITY_LABELS,
        Field("event_type", "string", "", "Type of the events; its first 200 characters."),
        Field(
            "reason",
            "string",
            "",
            "The consumer's reason, its first 200 characters, with <number>, <uuid>, <hex>, <text>, <url> "
            "and <address> in place of what changes from one event to the next; NULL where none was given.",
        ),
        Field("dead_letters", "bigint", "{event}", "How many there are."),
        Field("first_at", "timestamp", "", "When the first of them was given up."),
        Field("last_at", "timestamp", "", "When the last of them was given up."),
        Field("example", "string", "", "The reason of the last one, as it was given."),
    ),
)

QUARANTINE = Table(
    "quarantine",
    "Input that could not be used, a row for each line or point. Nothing of it is in any other table.",
    "file",
    (
        Field("file", "string", "", "Path of the input file."),
        Field("reason", "string", "", "What is wrong with it."),
        Field("text", "string", "", "The line, or the point as JSON; its first 4,096 characters."),
    ),
)

TABLES: Mapping[str, Table] = {
    table.name: table
    for table in (
        POINTS,
        SERIES,
        ROLLUP_1M,
        ROLLUP_1H,
        ROLLUP_1D,
        FLOW,
        LATENCY,
        HEALTH,
        INCIDENTS,
        SLI,
        SLO,
        BASELINES,
        FORECAST,
        DEAD_LETTERS,
        QUARANTINE,
    )
}
