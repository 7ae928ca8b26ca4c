"""Snapshots as OTLP export requests, serialised.

Built from the Snapshot directly: the SDK's instruments would keep every series for ever, drop new
ones beyond a limit and stamp old values with the time of the push.
"""

from __future__ import annotations

import struct
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from opentelemetry.proto.metrics.v1 import metrics_pb2 as pb

from pgque_exporter.catalogue import Metric, MetricType
from pgque_exporter.otlp import wire
from pgque_exporter.otlp.layout import Batch, Layout, Template, Temporality, attributes_of, resource_message
from pgque_exporter.snapshot import Family, HistogramFamily, HistogramSeries, Labels, Series, Snapshot


@dataclass(frozen=True, slots=True)
class Encoded:
    """A snapshot's points, and marks for the series that the one before it had and this one hasn't."""

    data: tuple[Batch, ...]
    ended: tuple[Batch, ...]


@dataclass(slots=True)
class _Known:
    """A series of the last snapshot: its place in a request, and what it counted so far.

    attributes  serialised, as the end of its point
    start       Unix nanoseconds
    value       of a number; the sum of a histogram
    counts      of a histogram's buckets
    buffer      empty for a series that makes no point yet
    """

    attributes: bytes
    start: int
    value: float
    counts: tuple[int, ...] = ()
    buffer: bytearray = field(default_factory=bytearray)
    offset: int = 0


# What tells the series of a metric apart: their labels, and the bounds of a histogram's buckets.
_Shape = list[tuple[Metric, list[Hashable]]]
_AllKnown = dict[Metric, dict[Hashable, _Known]]

# The first fields of a point in their order, with the tag before each: start time, time, value.
_START, _TIME, _VALUE = (wire.tag(field, wire.FIXED64) for field in (2, 3, 4))
_GAUGE = struct.Struct("<BQBd")
_COUNTER = struct.Struct("<BQBQBd")
# And of a histogram's: start time, time, count, sum; then the counts of its buckets.
_COUNT, _SUM = (wire.tag(field, wire.FIXED64) for field in (4, 5))
_TOTALS = struct.Struct("<BQBQBQBd")
_BUCKET_COUNTS, _BOUNDS = 6, 7


class SnapshotEncoder:
    """Encodes the snapshots of one database, oldest first. Not for several threads at a time.

    A counter or histogram starts when its series is first seen, when it falls, and when the server is
    replaced by another. What it had counted before it was first seen is nobody's increase: as a delta,
    that value makes no point. A series that is missing from a snapshot ends with a point without a
    value, and is forgotten.

    The requests of the last snapshot are kept. As long as the series stay the same, times and values
    are written over the old ones and nothing else is done.
    """

    def __init__(
        self, resource: Mapping[str, str], database: str, temporality: Temporality = "cumulative"
    ) -> None:
        attributes = {**resource, "db.system.name": "postgresql", "db.namespace": database}
        self._resource = resource_message(attributes)
        self._temporality = temporality
        self._delta = temporality == "delta"
        self._known: _AllKnown = {}
        self._templates: list[Template] = []
        self._complete = True  # whether every series makes a point
        self._ended = True  # whether the series known have been marked as ended
        self._last_time = 0
        self._origin: str | None = None

    def encode(self, snapshot: Snapshot) -> Encoded:
        """The requests that carry the snapshot, all points at the snapshot's own time."""
        now = int(snapshot.taken_at * 1e9)
        shape = _shape(snapshot)
        # A clock that was set back would have counters start after the time of their points.
        anew = self._replaced(snapshot.origin) or now < self._last_time
        ended: tuple[Batch, ...] = ()
        if (
            anew
            or not self._complete
            or shape != [(metric, [*known]) for metric, known in self._known.items()]
        ):
            ended = self._build(snapshot, shape, now, anew=anew)
        known = iter(known.values() for known in self._known.values())
        for family in snapshot.families:
            if family.metric.type is MetricType.COUNTER:
                self._write_counters(family, next(known), now)
            else:
                _write_gauges(family, next(known), now)
        for histogram in snapshot.histograms:
            self._write_histograms(histogram, next(known), now)
        self._last_time = now
        self._ended = False
        return Encoded(tuple(template.batch() for template in self._templates), ended)

    def end(self, time_ns: int) -> tuple[Batch, ...]:
        """Marks that all series end at `time_ns`; nothing if they have ended before.

        Should they be back in the next snapshot, their counters go on as if never away.
        """
        if self._ended:
            return ()
        self._ended = True
        return self._marks(self._known, time_ns)

    def starts(self, metric: Metric) -> Sequence[int]:
        """When each series of a metric of the last snapshot began, in its order; Unix nanoseconds."""
        return [known.start for known in self._known[metric].values()]

    def _replaced(self, origin: str | None) -> bool:
        """Whether another server answers than before; an unknown one is taken for the same."""
        if origin is None:
            return False
        before, self._origin = self._origin, origin
        return before is not None and before != origin

    # --- layout ----------------------------------------------------------------------------------

    def _build(self, snapshot: Snapshot, shape: _Shape, now: int, *, anew: bool) -> tuple[Batch, ...]:
        """Lay out the requests for the snapshot's series; marks for those that it hasn't any more."""
        before, self._known = self._known, {}
        layout = Layout(self._resource, self._temporality)
        placed: list[_Known] = []
        serialised: dict[tuple[bool, Labels], bytes] = {}  # most label sets are those of many metrics
        self._complete = True
        everything: list[Iterable[Series | HistogramSeries]] = [
            *(family.series for family in snapshot.families),
            *(histogram.series for histogram in snapshot.histograms),
        ]
        for all_series, (metric, keys) in zip(everything, shape, strict=True):
            old = before.get(metric, {})
            known = self._known[metric] = {}
            for series, key in zip(all_series, keys, strict=True):
                entry = old.pop(key, None)
                new = entry is None or anew
                if entry is None or new:
                    attributes = entry.attributes if entry else _attributes(metric, series.labels, serialised)
                    entry = _first_seen(series, attributes, now)
                known[key] = entry
                if new and self._delta and metric.type is not MetricType.GAUGE:
                    self._complete = False
                else:
                    layout.add(metric, _blank(metric, series) + entry.attributes)
                    placed.append(entry)
        self._templates = layout.templates()
        places = ((one.buffer, offset) for one in self._templates for offset in one.offsets)
        for entry, (buffer, offset) in zip(placed, places, strict=True):
            entry.buffer, entry.offset = buffer, offset
        return () if self._ended else self._marks(before, now)

    def _marks(self, ended: _AllKnown, time_ns: int) -> tuple[Batch, ...]:
        layout = Layout(self._resource, self._temporality)
        for metric, known in ended.items():
            if metric.type is MetricType.GAUGE or not self._delta:  # a difference ends by itself
                for entry in known.values():
                    layout.add(metric, _mark(metric, entry, time_ns))
        return layout.batches()

    # --- values ----------------------------------------------------------------------------------

    def _write_counters(self, family: Family, known: Iterable[_Known], now: int) -> None:
        last, delta, pack = self._last_time, self._delta, _COUNTER.pack_into
        for value, entry in zip(family.values, known, strict=True):
            fell = value < entry.value
            if fell:
                entry.start = last  # it began anew at some moment since then
            if entry.buffer:
                start, shown = entry.start, value
                if delta:
                    start, shown = last, value if fell else value - entry.value
                pack(entry.buffer, entry.offset, _START, start, _TIME, now, _VALUE, shown)
            entry.value = value

    def _write_histograms(self, family: HistogramFamily, known: Iterable[_Known], now: int) -> None:
        for series, entry in zip(family.series, known, strict=True):
            fell = any(count < before for count, before in zip(series.counts, entry.counts, strict=True))
            if fell:
                entry.start = self._last_time
            start, counts, total = entry.start, series.counts, series.total
            if self._delta:
                start = self._last_time
                if not fell:
                    counts = tuple(count - before for count, before in zip(counts, entry.counts, strict=True))
                    total -= entry.value
            if entry.buffer:
                _write_histogram(entry.buffer, entry.offset, start, now, counts, total)
            entry.counts, entry.value = series.counts, series.total


def _write_gauges(family: Family, known: Iterable[_Known], now: int) -> None:
    pack = _GAUGE.pack_into
    for value, entry in zip(family.values, known, strict=True):
        pack(entry.buffer, entry.offset, _TIME, now, _VALUE, value)


def _write_histogram(
    buffer: bytearray, offset: int, start: int, now: int, counts: tuple[int, ...], total: float
) -> None:
    count = sum(counts)
    _TOTALS.pack_into(buffer, offset, _START, start, _TIME, now, _COUNT, count, _SUM, total)
    after = offset + _TOTALS.size + len(wire.heading(_BUCKET_COUNTS, 8 * len(counts)))
    struct.pack_into(f"<{len(counts)}Q", buffer, after, *counts)


# --- points --------------------------------------------------------------------------------------


def _shape(snapshot: Snapshot) -> _Shape:
    shape: _Shape = [(family.metric, [*family.labels]) for family in snapshot.families]
    shape += (
        (family.metric, [(one.labels, one.bounds) for one in family.series]) for family in snapshot.histograms
    )
    return shape


def _first_seen(series: Series | HistogramSeries, attributes: bytes, now: int) -> _Known:
    if isinstance(series, HistogramSeries):
        return _Known(attributes, now, series.total, series.counts)
    return _Known(attributes, now, series.value)


def _attributes(metric: Metric, labels: Labels, serialised: dict[tuple[bool, Labels], bytes]) -> bytes:
    key = (metric.type is MetricType.HISTOGRAM, labels)
    attributes = serialised.get(key)
    if attributes is None:
        attributes = serialised[key] = _kind(metric)(attributes=attributes_of(labels)).SerializeToString()
    return attributes


def _kind(metric: Metric) -> type[pb.HistogramDataPoint] | type[pb.NumberDataPoint]:
    return pb.HistogramDataPoint if metric.type is MetricType.HISTOGRAM else pb.NumberDataPoint


def _blank(metric: Metric, series: Series | HistogramSeries) -> bytes:
    """The beginning of a point, with room for what is written later."""
    if isinstance(series, HistogramSeries):
        counts = bytes(8 * len(series.counts))
        bounds = wire.doubles(_BOUNDS, series.bounds)
        return bytes(_TOTALS.size) + wire.message(_BUCKET_COUNTS, counts) + bounds
    return bytes(_COUNTER.size if metric.type is MetricType.COUNTER else _GAUGE.size)


def _mark(metric: Metric, entry: _Known, time_ns: int) -> bytes:
    """A point that says that there is no value any more."""
    flags = pb.DATA_POINT_FLAGS_NO_RECORDED_VALUE_MASK
    start = 0 if metric.type is MetricType.GAUGE else entry.start
    point = _kind(metric)(start_time_unix_nano=start, time_unix_nano=time_ns, flags=flags)
    return point.SerializeToString() + entry.attributes
