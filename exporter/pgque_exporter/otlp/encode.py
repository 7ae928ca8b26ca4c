"""Snapshots as OTLP export requests, serialised.

Built from the Snapshot directly: the SDK's instruments would keep every series for ever, drop new
ones beyond a limit and stamp old values with the time of the push.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from opentelemetry.exporter.otlp.proto.common.metrics_encoder import encode_metrics
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, InstrumentationScope, KeyValue
from opentelemetry.proto.metrics.v1 import metrics_pb2 as pb
from opentelemetry.proto.resource.v1.resource_pb2 import Resource
from opentelemetry.sdk.metrics.export import MetricsData

from pgque_exporter import __version__
from pgque_exporter.catalogue import Metric, MetricType
from pgque_exporter.snapshot import Family, HistogramSeries, Labels, Snapshot

if TYPE_CHECKING:
    from google.protobuf.internal.containers import RepeatedCompositeFieldContainer

MAX_POINTS = 5000
MAX_BYTES = 2 * 1024 * 1024  # gRPC receivers refuse more than 4 MiB by default
_HEADINGS = 64 * 1024  # room for everything in a request that isn't a point
_NUMBERS = 32  # bytes of a point beside its attributes: times, value, length
_SCOPE = "pgque_exporter"

P = TypeVar("P", pb.NumberDataPoint, pb.HistogramDataPoint)

# The semantic conventions' names for what a contract label says.
_CONVENTIONS = {
    "engine": "messaging.system",
    "queue": "messaging.destination.name",
    "consumer": "messaging.consumer.group.name",
}


@dataclass(frozen=True, slots=True)
class Batch:
    """One serialised request and the number of points in it."""

    payload: bytes
    points: int


def service_resource(instance: str) -> dict[str, str]:
    """Resource attributes of the service itself; `instance` tells it from others of its kind."""
    return {
        "service.name": "pgque-exporter",
        "service.version": __version__,
        "service.instance.id": instance,
    }


@dataclass(slots=True)
class _Known:
    """A series of the last snapshot: its point within a request, and its counter's past."""

    point: pb.NumberDataPoint
    start: int
    value: float


@dataclass(slots=True)
class _KnownHistogram:
    """The same of a histogram."""

    point: pb.HistogramDataPoint
    start: int
    counts: tuple[int, ...]


_Shape = list[tuple[str, list[Labels]]]
_HistogramShape = list[tuple[str, list[tuple[Labels, tuple[float, ...]]]]]


class SnapshotEncoder:
    """Encodes the snapshots of one database, oldest first. Not for several threads at a time.

    A counter or histogram starts when its series is first seen and again when it falls; a series that
    is missing from a snapshot is forgotten.

    The requests of the last snapshot are kept: as long as the series stay the same, only times and
    values are set anew, which takes a tenth of the time.
    """

    def __init__(self, resource: Mapping[str, str], database: str) -> None:
        attributes = {**resource, "db.system.name": "postgresql", "db.namespace": database}
        self._resource = _resource(attributes)
        self._shape: _Shape = []
        self._known: list[list[_Known]] = []
        self._histogram_shape: _HistogramShape = []
        self._known_histograms: list[list[_KnownHistogram]] = []
        self._requests: list[_Request] = []
        self._last_time = 0

    def encode(self, snapshot: Snapshot) -> tuple[Batch, ...]:
        """The requests that carry the snapshot, all points at the snapshot's own time."""
        now = int(snapshot.taken_at * 1e9)
        shape = [(family.metric.name, [one.labels for one in family.series]) for family in snapshot.families]
        histogram_shape = [
            (family.metric.name, [(one.labels, one.bounds) for one in family.series])
            for family in snapshot.histograms
        ]
        if shape != self._shape or histogram_shape != self._histogram_shape:
            self._build(snapshot, now)
            self._shape = shape
            self._histogram_shape = histogram_shape
        for family, known in zip(snapshot.families, self._known, strict=True):
            counter = family.metric.type is MetricType.COUNTER
            for series, entry in zip(family.series, known, strict=True):
                point, value = entry.point, series.value
                point.time_unix_nano = now
                point.as_double = value
                if counter:
                    if value < entry.value:
                        entry.start = self._last_time  # it began anew at some moment since then
                    entry.value = value
                    point.start_time_unix_nano = entry.start
        for histogram, known_histogram in zip(snapshot.histograms, self._known_histograms, strict=True):
            for one, entry_of_one in zip(histogram.series, known_histogram, strict=True):
                self._set_histogram(entry_of_one, one, now)
        self._last_time = now
        return tuple(Batch(request.message.SerializeToString(), request.points) for request in self._requests)

    def _set_histogram(self, entry: _KnownHistogram, series: HistogramSeries, now: int) -> None:
        if any(count < before for count, before in zip(series.counts, entry.counts, strict=True)):
            entry.start = self._last_time
        entry.counts = series.counts
        point = entry.point
        point.time_unix_nano = now
        point.start_time_unix_nano = entry.start
        point.count = sum(series.counts)
        point.sum = series.total
        point.bucket_counts[:] = series.counts

    def _build(self, snapshot: Snapshot, now: int) -> None:
        """Lay out the requests for the snapshot's series; take over what is known about them."""
        before = {
            (name, labels): entry
            for (name, all_labels), known in zip(self._shape, self._known, strict=True)
            for labels, entry in zip(all_labels, known, strict=True)
        }
        layout = _Layout(self._resource)
        self._known = []
        for family in snapshot.families:
            known: list[_Known] = []
            for series in family.series:
                old = before.get((family.metric.name, series.labels))
                point = old.point if old else pb.NumberDataPoint(attributes=_attributes(series.labels))
                placed = layout.add(family.metric, point)
                known.append(_Known(placed, old.start if old else now, old.value if old else series.value))
            self._known.append(known)
        self._build_histograms(snapshot, now, layout)
        self._requests = layout.requests

    def _build_histograms(self, snapshot: Snapshot, now: int, layout: _Layout) -> None:
        before = {
            (name, shape): entry
            for (name, shapes), known in zip(self._histogram_shape, self._known_histograms, strict=True)
            for shape, entry in zip(shapes, known, strict=True)
        }
        self._known_histograms = []
        for family in snapshot.histograms:
            known_histograms: list[_KnownHistogram] = []
            for series in family.series:
                old = before.get((family.metric.name, (series.labels, series.bounds)))
                point = old.point if old else pb.HistogramDataPoint(
                    attributes=_attributes(series.labels),
                    explicit_bounds=series.bounds,
                    bucket_counts=series.counts,
                    sum=series.total,
                )
                placed = layout.add(family.metric, point)
                known_histograms.append(
                    _KnownHistogram(placed, old.start if old else now, old.counts if old else series.counts)
                )
            self._known_histograms.append(known_histograms)


@dataclass(slots=True)
class _Request:
    """A request and the number of points in it."""

    message: ExportMetricsServiceRequest
    points: int = 0


class _Layout:
    """Requests under construction, none of them beyond the limits."""

    def __init__(self, resource: Resource) -> None:
        self.requests: list[_Request] = []
        self._resource = resource
        self._metrics = pb.ScopeMetrics()
        self._metric: Metric | None = None
        self._size = 0

    def add(self, metric: Metric, point: P) -> P:
        """Put a copy of `point` into a request; returns the copy."""
        size = point.ByteSize() + _NUMBERS
        full = not self.requests or self.requests[-1].points == MAX_POINTS
        if full or self._size + size > MAX_BYTES - _HEADINGS:
            message = ExportMetricsServiceRequest()
            resource = message.resource_metrics.add(resource=self._resource)
            self._metrics = resource.scope_metrics.add(scope=_scope())
            self._metric = None
            self._size = 0
            self.requests.append(_Request(message))
        if metric is not self._metric:
            self._metrics.metrics.append(_metric(metric))
            self._metric = metric
        points: RepeatedCompositeFieldContainer[P] = _points(self._metrics.metrics[-1])
        points.append(point)
        self._size += size
        self.requests[-1].points += 1
        return points[-1]


def encode_service(
    resource: Mapping[str, str], families: Iterable[Family], time_ns: int, counted: MetricsData | None
) -> Batch:
    """One request with the service's own metrics: gauges as of `time_ns`, and what the SDK counted."""
    request = ExportMetricsServiceRequest()
    metrics = request.resource_metrics.add(resource=_resource(resource)).scope_metrics.add(scope=_scope())
    points = 0
    for family in families:
        numbers = [
            pb.NumberDataPoint(
                attributes=_attributes(series.labels), time_unix_nano=time_ns, as_double=series.value
            )
            for series in family.series
        ]
        metrics.metrics.append(_metric(family.metric))
        _points(metrics.metrics[-1]).extend(numbers)
        points += len(numbers)
    if counted is not None:
        request.resource_metrics.extend(encode_metrics(counted).resource_metrics)
        points += sum(
            len(metric.data.data_points)
            for resource_metrics in counted.resource_metrics
            for scope in resource_metrics.scope_metrics
            for metric in scope.metrics
        )
    return Batch(request.SerializeToString(), points)


def _metric(metric: Metric) -> pb.Metric:
    message = pb.Metric(name=metric.name, description=metric.help, unit=metric.unit)
    if metric.type is MetricType.COUNTER:
        message.sum.aggregation_temporality = pb.AGGREGATION_TEMPORALITY_CUMULATIVE
        message.sum.is_monotonic = True
    elif metric.type is MetricType.HISTOGRAM:
        message.histogram.aggregation_temporality = pb.AGGREGATION_TEMPORALITY_CUMULATIVE
    else:
        message.gauge.SetInParent()
    return message


def _points(message: pb.Metric) -> RepeatedCompositeFieldContainer[Any]:
    if message.HasField("gauge"):
        return message.gauge.data_points
    return message.sum.data_points if message.HasField("sum") else message.histogram.data_points


def _attributes(labels: Labels) -> list[KeyValue]:
    attributes = [_text(name, value) for name, value in labels]
    attributes += (_text(_CONVENTIONS[name], value) for name, value in labels if name in _CONVENTIONS)
    return attributes


def _resource(attributes: Mapping[str, str]) -> Resource:
    return Resource(attributes=[_text(name, value) for name, value in attributes.items()])


def _scope() -> InstrumentationScope:
    return InstrumentationScope(name=_SCOPE, version=__version__)


def _text(name: str, value: str) -> KeyValue:
    return KeyValue(key=name, value=AnyValue(string_value=value))
