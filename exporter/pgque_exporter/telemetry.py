"""The service's own metrics: what its targets are like now, and counters by the OpenTelemetry SDK.

The SDK counts the service's own doings only. Rows from databases never pass through it: its
instruments keep every label set they ever saw and drop new ones beyond a limit.
"""

from __future__ import annotations

import platform
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from opentelemetry.metrics import Counter, Histogram, Observation
from opentelemetry.sdk import metrics as sdk
from opentelemetry.sdk.metrics.export import (
    AggregationTemporality,
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
from pgque_exporter.otlp.layout import Temporality
from pgque_exporter.otlp.ledger import Drop, Ledger
from pgque_exporter.snapshot import Family, HistogramFamily, HistogramSeries, Labels, Series
from pgque_exporter.state import TargetState
from pgque_exporter.target import PollOutcome

POLLS = "pgque.exporter.polls_total"
SKIPPED = "pgque.exporter.polls_skipped_total"
DURATION = "pgque.exporter.poll_duration_seconds"
DROPPED = "pgque.exporter.series_dropped_total"
REQUESTS = "pgque.exporter.otlp_request_duration_seconds"
POLLED_POINTS = "pgque.exporter.otlp_points_polled_total"
SENT_POINTS = "pgque.exporter.otlp_points_sent_total"
REJECTED_POINTS = "pgque.exporter.otlp_points_rejected_total"
DROPPED_POINTS = "pgque.exporter.otlp_points_dropped_total"
QUEUED_POINTS = "pgque.exporter.otlp_queue_points"
_OF_THE_LEDGER = (POLLED_POINTS, SENT_POINTS, REJECTED_POINTS, DROPPED_POINTS)

_DURATION_BOUNDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
_OK = "ok"


class Telemetry:
    """Counters and histograms about the polls and pushes of one running service.

    A page always shows them cumulative; `temporality` is that of those that are pushed.
    """

    def __init__(
        self, catalogue: Catalogue, resource: Mapping[str, str], temporality: Temporality = "cumulative"
    ) -> None:
        self._catalogue = catalogue
        self._reader = InMemoryMetricReader()
        self._push_reader = self._reader
        readers = [self._reader]
        if temporality == "delta":
            kinds = (sdk.Counter, sdk.ObservableCounter, sdk.Histogram)
            self._push_reader = InMemoryMetricReader(dict.fromkeys(kinds, AggregationTemporality.DELTA))
            readers.append(self._push_reader)
        # No global provider and no exit hook: two services may run in one process.
        self._provider = sdk.MeterProvider(readers, Resource(resource), shutdown_on_exit=False)
        self._meter = meter = self._provider.get_meter("pgque_exporter", __version__)
        self._counters: dict[str, Counter] = {}
        self._histograms: dict[str, Histogram] = {}
        for metric in catalogue:
            if metric.source is not Source.SERVICE or metric.name in _OF_THE_LEDGER:
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

    def watch_otlp(self, ledger: Ledger, queued: Callable[[], int]) -> None:
        """Show the books of the OTLP sink; `queued` counts the points that it has not settled yet."""

        def show(name: str, read: Callable[[], Iterable[tuple[int, Attributes]]]) -> None:
            metric = self._catalogue[name]
            counter = metric.type is MetricType.COUNTER
            create = self._meter.create_observable_counter if counter else self._meter.create_observable_gauge
            create(name, [lambda _: (Observation(*one) for one in read())], metric.unit, metric.help)

        show(POLLED_POINTS, lambda: [(ledger.polled, None)])
        show(SENT_POINTS, lambda: [(ledger.sent, None)])
        show(REJECTED_POINTS, lambda: [(ledger.rejected, None)])
        show(DROPPED_POINTS, lambda: [(ledger.dropped[one], {"reason": one.value}) for one in Drop])
        show(QUEUED_POINTS, lambda: [(queued(), None)])

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

    def count_request(self, result: str, seconds: float) -> None:
        """Count a request to the collector and the time it took."""
        self._histograms[REQUESTS].record(seconds, {"result": result})

    def collect_for_push(self) -> MetricsData | None:
        """All instruments as they are now, of the temporality to push; None before anything was counted."""
        return self._push_reader.get_metrics_data()

    def instruments(self) -> tuple[tuple[Family, ...], tuple[HistogramFamily, ...]]:
        """All instruments as they are now: families, and histograms."""
        families: list[Family] = []
        histograms: list[HistogramFamily] = []
        for name, points in _points(self._reader.get_metrics_data()):
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
