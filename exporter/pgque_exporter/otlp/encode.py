"""Snapshots as OTLP export requests, serialised.

Built from the Snapshot directly: the SDK's instruments would keep every series for ever, drop new
ones beyond a limit and stamp old values with the time of the push.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from opentelemetry.exporter.otlp.proto.common.metrics_encoder import encode_metrics
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, InstrumentationScope, KeyValue
from opentelemetry.proto.metrics.v1 import metrics_pb2 as pb
from opentelemetry.proto.resource.v1.resource_pb2 import Resource
from opentelemetry.sdk.metrics.export import MetricsData

from pgque_exporter import __version__
from pgque_exporter.catalogue import Metric, MetricType
from pgque_exporter.snapshot import Family, Labels, Series, Snapshot

MAX_POINTS = 5000
MAX_BYTES = 2 * 1024 * 1024  # gRPC receivers refuse more than 4 MiB by default
_SCOPE = "pgque_exporter"

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
    """A series that the last snapshot had: its point with all attributes, and its counter's past."""

    point: pb.NumberDataPoint
    start: int
    value: float


class SnapshotEncoder:
    """Encodes the snapshots of one database, oldest first. Not for several threads at a time.

    A counter starts when its series is first seen and again when it falls; a series that is missing
    from a snapshot is forgotten.
    """

    def __init__(self, resource: Mapping[str, str], database: str) -> None:
        attributes = {**resource, "db.system.name": "postgresql", "db.namespace": database}
        self._resource = _resource(attributes)
        self._series: dict[str, dict[Labels, _Known]] = {}
        self._last_time = 0

    def encode(self, snapshot: Snapshot) -> tuple[Batch, ...]:
        """The requests that carry the snapshot, all points at the snapshot's own time."""
        now = int(snapshot.taken_at * 1e9)
        known, self._series = self._series, {}
        metrics: list[tuple[Metric, Sequence[pb.NumberDataPoint]]] = []
        for family in snapshot.families:
            series: dict[Labels, _Known] = {}
            before = known.get(family.metric.name, {})
            for one in family.series:
                series[one.labels] = self._update(family.metric, one, before.get(one.labels), now)
            self._series[family.metric.name] = series
            metrics.append((family.metric, [entry.point for entry in series.values()]))
        self._last_time = now
        return tuple(_requests(self._resource, metrics))

    def _update(self, metric: Metric, series: Series, known: _Known | None, now: int) -> _Known:
        if known is None:
            point = pb.NumberDataPoint(attributes=_attributes(series.labels))
            known = _Known(point, now, series.value)
        elif series.value < known.value:
            # It began anew at some moment since the last snapshot.
            known.start = self._last_time
        known.value = series.value
        point = known.point
        point.time_unix_nano = now
        point.as_double = series.value
        if metric.type is MetricType.COUNTER:
            point.start_time_unix_nano = known.start
        return known


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
        metrics.metrics.append(_metric(family.metric, numbers))
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


def _requests(
    resource: Resource, metrics: Sequence[tuple[Metric, Sequence[pb.NumberDataPoint]]]
) -> Iterator[Batch]:
    chunk: list[tuple[Metric, Sequence[pb.NumberDataPoint]]] = []
    room = MAX_POINTS
    for metric, points in metrics:
        rest = points
        while rest:
            part, rest = rest[:room], rest[room:]
            chunk.append((metric, part))
            room -= len(part)
            if not room:
                yield from _sized(resource, chunk)
                chunk, room = [], MAX_POINTS
    if chunk:
        yield from _sized(resource, chunk)


def _sized(resource: Resource, chunk: list[tuple[Metric, Sequence[pb.NumberDataPoint]]]) -> Iterator[Batch]:
    """The chunk as one request, or in halves if its labels are so long that it is too large."""
    request = ExportMetricsServiceRequest()
    scope = request.resource_metrics.add(resource=resource).scope_metrics.add(scope=_scope())
    scope.metrics.extend(_metric(metric, points) for metric, points in chunk)
    payload = request.SerializeToString()
    count = sum(len(points) for _, points in chunk)
    if len(payload) <= MAX_BYTES or count == 1:
        yield Batch(payload, count)
    elif len(chunk) > 1:
        middle = len(chunk) // 2
        yield from _sized(resource, chunk[:middle])
        yield from _sized(resource, chunk[middle:])
    else:
        [(metric, points)] = chunk
        yield from _sized(resource, [(metric, points[: count // 2])])
        yield from _sized(resource, [(metric, points[count // 2 :])])


def _metric(metric: Metric, points: Iterable[pb.NumberDataPoint]) -> pb.Metric:
    message = pb.Metric(name=metric.name, description=metric.help, unit=metric.unit)
    if metric.type is MetricType.COUNTER:
        message.sum.aggregation_temporality = pb.AGGREGATION_TEMPORALITY_CUMULATIVE
        message.sum.is_monotonic = True
        message.sum.data_points.extend(points)
    else:
        message.gauge.data_points.extend(points)
    return message


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
