"""Export requests under construction: points in, requests within the limits out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from opentelemetry.proto.common.v1.common_pb2 import AnyValue, InstrumentationScope, KeyValue
from opentelemetry.proto.metrics.v1 import metrics_pb2 as pb
from opentelemetry.proto.resource.v1.resource_pb2 import Resource

from pgque_exporter import __version__
from pgque_exporter.catalogue import Metric, MetricType
from pgque_exporter.otlp import wire
from pgque_exporter.snapshot import Labels

MAX_POINTS = 5000
MAX_BYTES = 2 * 1024 * 1024  # gRPC receivers refuse more than 4 MiB by default
_HEADINGS = 64 * 1024  # room for everything in a request that isn't a point
_LENGTH = 8  # bytes at most before a point, and more than enough

Temporality = Literal["cumulative", "delta"]

# The semantic conventions' names for what a contract label says.
CONVENTIONS = {
    "engine": "messaging.system",
    "queue": "messaging.destination.name",
    "consumer": "messaging.consumer.group.name",
}


@dataclass(frozen=True, slots=True)
class Batch:
    """One serialised request and the number of points in it."""

    payload: bytes
    points: int


@dataclass(frozen=True, slots=True)
class Template:
    """A request whose points may still be written over, and where in it each of them begins."""

    buffer: bytearray
    offsets: list[int]

    def batch(self) -> Batch:
        """The request as it is now."""
        return Batch(bytes(self.buffer), len(self.offsets))


@dataclass(slots=True)
class _Group:
    """Consecutive points of one metric in one request, each with its heading."""

    metric: Metric
    points: bytearray = field(default_factory=bytearray)
    offsets: list[int] = field(default_factory=list)


@dataclass(slots=True)
class _Request:
    groups: list[_Group] = field(default_factory=list)
    points: int = 0
    size: int = 0


class Layout:
    """Requests of one resource, none of them beyond the limits."""

    def __init__(self, resource: bytes, temporality: Temporality) -> None:
        self._resource = resource
        self._temporality = _TEMPORALITIES[temporality]
        self._requests: list[_Request] = []

    def add(self, metric: Metric, point: bytes) -> None:
        """Put a serialised data point into a request, after those before it."""
        size = len(point) + _LENGTH
        last = self._requests[-1] if self._requests else None
        if last is None or last.points == MAX_POINTS or last.size + size > MAX_BYTES - _HEADINGS:
            last = _Request()
            self._requests.append(last)
        if not last.groups or last.groups[-1].metric is not metric:
            last.groups.append(_Group(metric))
        group = last.groups[-1]
        group.points += wire.heading(_DATA_POINTS, len(point))
        group.offsets.append(len(group.points))
        group.points += point
        last.points += 1
        last.size += size

    def templates(self) -> list[Template]:
        """The requests, with the points in the order in which they were added."""
        return [self._template(request) for request in self._requests]

    def batches(self) -> tuple[Batch, ...]:
        """The same for points that nobody will write over."""
        return tuple(template.batch() for template in self.templates())

    def _template(self, request: _Request) -> Template:
        metrics = bytearray(wire.message(1, _SCOPE_MESSAGE))
        offsets: list[int] = []
        for group in request.groups:
            before, after = _around(group.metric, len(group.points), self._temporality)
            metrics += wire.heading(2, len(before) + len(group.points) + len(after))
            metrics += before
            offsets += (len(metrics) + offset for offset in group.offsets)
            metrics += group.points
            metrics += after
        resource = wire.message(1, self._resource) + wire.heading(2, len(metrics))
        start = wire.heading(1, len(resource) + len(metrics)) + resource
        return Template(bytearray(start + metrics), [len(start) + offset for offset in offsets])


_DATA_POINTS = 1  # in a gauge, a sum and a histogram alike
_TEMPORALITIES = {
    "cumulative": pb.AGGREGATION_TEMPORALITY_CUMULATIVE,
    "delta": pb.AGGREGATION_TEMPORALITY_DELTA,
}
_SCOPE_MESSAGE = InstrumentationScope(name="pgque_exporter", version=__version__).SerializeToString()


def _around(metric: Metric, length: int, temporality: int) -> tuple[bytes, bytes]:
    """What stands before and after `length` bytes of points in a metric."""
    name = pb.Metric(name=metric.name, description=metric.help, unit=metric.unit).SerializeToString()
    if metric.type is MetricType.COUNTER:
        kind, after = 7, wire.enum(2, temporality) + wire.enum(3, 1)  # monotonic
    elif metric.type is MetricType.HISTOGRAM:
        kind, after = 9, wire.enum(2, temporality)
    else:
        kind, after = 5, b""
    return name + wire.heading(kind, length + len(after)), after


def resource_message(attributes: Mapping[str, str]) -> bytes:
    """A serialised resource."""
    return Resource(attributes=_texts(attributes.items())).SerializeToString()


def attributes_of(labels: Labels) -> list[KeyValue]:
    """The labels as attributes, and again under the names of the semantic conventions."""
    conventions = ((CONVENTIONS[name], value) for name, value in labels if name in CONVENTIONS)
    return _texts((*labels, *conventions))


def _texts(pairs: Iterable[tuple[str, str]]) -> list[KeyValue]:
    return [KeyValue(key=name, value=AnyValue(string_value=value)) for name, value in pairs]
