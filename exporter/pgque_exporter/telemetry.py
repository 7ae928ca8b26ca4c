"""The service's own metrics: what its targets are like now, and counters by the OpenTelemetry SDK.

The SDK counts the service's own doings only. Rows from databases never pass through it: its
instruments keep every label set they ever saw and drop new ones beyond a limit.
"""

from __future__ import annotations

import platform
from collections.abc import Iterable, Iterator, Mapping, Sequence

from opentelemetry.metrics import Counter, Histogram
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import (
    DataPointT,
    HistogramDataPoint,
    InMemoryMetricReader,
    MetricsData,
    NumberDataPoint,
)
from opentelemetry.sdk.resources import Resource
from opentelemetry.util.types import Attributes

from pgque_exporter import __version__
from pgque_exporter.catalogue import Catalogue, Metric, MetricType, Source
from pgque_exporter.connection import FailureKind
from pgque_exporter.contract import DROP_REASONS
from pgque_exporter.snapshot import Family, HistogramFamily, HistogramSeries, Labels, Series
from pgque_exporter.state import TargetState
from pgque_exporter.target import PollOutcome

POLLS = "pgque.exporter.polls_total"
SKIPPED = "pgque.exporter.polls_skipped_total"
DURATION = "pgque.exporter.poll_duration_seconds"
DROPPED = "pgque.exporter.series_dropped_total"
OTLP_POINTS = "pgque.exporter.otlp_points_total"
OTLP_OUTCOMES = ("exported", "rejected", "dropped")

_DURATION_BOUNDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
_OK = "ok"


class Telemetry:
    """Counters and histograms about the polls and pushes of one running service."""

    def __init__(self, catalogue: Catalogue, resource: Mapping[str, str]) -> None:
        self._catalogue = catalogue
        self._reader = InMemoryMetricReader()
        # No global provider and no exit hook: two services may run in one process.
        self._provider = MeterProvider([self._reader], Resource(resource), shutdown_on_exit=False)
        meter = self._provider.get_meter("pgque_exporter", __version__)
        self._counters: dict[str, Counter] = {}
        self._histograms: dict[str, Histogram] = {}
        for metric in catalogue:
            if metric.source is not Source.SERVICE:
                continue
            if metric.type is MetricType.COUNTER:
                self._counters[metric.name] = meter.create_counter(metric.name, metric.unit, metric.help)
            elif metric.type is MetricType.HISTOGRAM:
                self._histograms[metric.name] = meter.create_histogram(
                    metric.name,
                    metric.unit,
                    metric.help,
                    explicit_bucket_boundaries_advisory=_DURATION_BOUNDS,
                )

    def expect(self, database: str) -> None:
        """Begin the counters of a database at 0, so that a first increase is seen as one."""
        for result in (_OK, *FailureKind):
            self._counters[POLLS].add(0, {"database": database, "result": str(result)})
        self._counters[SKIPPED].add(0, {"database": database})
        for reason in DROP_REASONS:
            self._counters[DROPPED].add(0, {"database": database, "reason": reason})

    def expect_otlp(self) -> None:
        """Begin the counters of the OTLP sink at 0."""
        for outcome in OTLP_OUTCOMES:
            self._counters[OTLP_POINTS].add(0, {"outcome": outcome})

    def count_poll(self, outcome: PollOutcome) -> None:
        """Count a finished poll."""
        database = outcome.state.name
        result = str(outcome.failure) if outcome.failure is not None else _OK
        self._counters[POLLS].add(1, {"database": database, "result": result})
        self._histograms[DURATION].record(outcome.duration, {"database": database})
        if outcome.skipped:
            self._counters[SKIPPED].add(outcome.skipped, {"database": database})
        if outcome.result is not None:
            for reason, rows in outcome.result.snapshot.dropped.items():
                if rows:
                    self._counters[DROPPED].add(rows, {"database": database, "reason": reason})

    def count_otlp(self, outcome: str, points: int) -> None:
        """Count points that the OTLP sink is done with."""
        self._counters[OTLP_POINTS].add(points, {"outcome": outcome})

    def collect(self) -> MetricsData | None:
        """All counters and histograms as they are now; None before anything was counted."""
        return self._reader.get_metrics_data()

    def instruments(self) -> tuple[tuple[Family, ...], tuple[HistogramFamily, ...]]:
        """The same as families, and as histograms."""
        families: list[Family] = []
        histograms: list[HistogramFamily] = []
        for name, points in _points(self.collect()):
            metric = self._catalogue[name]
            numbers: list[Series] = []
            buckets: list[HistogramSeries] = []
            for point in points:
                labels = _labels(metric, point.attributes)
                if isinstance(point, NumberDataPoint):
                    numbers.append(Series(labels, point.value))
                elif isinstance(point, HistogramDataPoint):
                    bounds, counts = tuple(point.explicit_bounds), tuple(point.bucket_counts)
                    buckets.append(HistogramSeries(labels, bounds, counts, point.sum))
            if numbers:
                families.append(Family(metric, tuple(numbers)))
            if buckets:
                histograms.append(HistogramFamily(metric, tuple(buckets)))
        return tuple(families), tuple(histograms)

    def close(self) -> None:
        """Release what the SDK holds."""
        self._provider.shutdown()


def _points(data: MetricsData | None) -> Iterator[tuple[str, Iterable[DataPointT]]]:
    for resource in data.resource_metrics if data is not None else ():
        for scope in resource.scope_metrics:
            for metric in scope.metrics:
                yield metric.name, metric.data.data_points


def _labels(metric: Metric, attributes: Attributes) -> Labels:
    given = attributes or {}
    return tuple((name, str(given[name])) for name in metric.labels if name in given)


def target_families(catalogue: Catalogue, states: Sequence[TargetState], clock: float) -> tuple[Family, ...]:
    """The gauges that say how the targets are, at monotonic time `clock`, and what runs here."""
    build = (("version", __version__), ("python_version", platform.python_version()))
    found: dict[str, list[Series]] = {"pgque.exporter.build_info": [Series(build, 1.0)]}
    for state in states:
        labels = (("database", state.name),)
        if state.polled:
            found.setdefault("pgque.up", []).append(Series(labels, float(state.up)))
        if state.last_success is not None:
            found.setdefault("pgque.last_success_timestamp_seconds", []).append(
                Series(labels, state.last_success)
            )
        if (age := state.age(clock)) is not None:
            found.setdefault("pgque.snapshot_age_seconds", []).append(Series(labels, round(age, 3)))
    return tuple(Family(metric, tuple(found[metric.name])) for metric in catalogue if metric.name in found)
