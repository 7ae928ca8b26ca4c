"""Snapshots as OTLP export requests in JSON, one a line, as a collector's file exporter writes them.

Written by hand: protobuf's own way to JSON takes a quarter of a millisecond a point.
Names, 64-bit integers as strings and enums as numbers follow the OTLP specification's JSON encoding.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from opentelemetry.proto.metrics.v1 import metrics_pb2 as pb

from pgque_exporter import __version__
from pgque_exporter.catalogue import Metric, MetricType
from pgque_exporter.otlp.encode import SnapshotEncoder
from pgque_exporter.otlp.layout import CONVENTIONS, MAX_POINTS
from pgque_exporter.slices import slices
from pgque_exporter.snapshot import Family, HistogramFamily, Labels, Snapshot

_CUMULATIVE = pb.AGGREGATION_TEMPORALITY_CUMULATIVE
_NO_VALUE = pb.DATA_POINT_FLAGS_NO_RECORDED_VALUE_MASK


@dataclass(frozen=True, slots=True)
class Lines:
    """Whole lines, and how many points they carry, marks of ended series among them."""

    data: bytes
    points: int


class LineEncoder:
    """Encodes the snapshots of one database, oldest first. Not for several threads at a time.

    Counters are cumulative and start as in `SnapshotEncoder`. A series that is missing from a snapshot
    ends with a point without a value.
    """

    def __init__(self, resource: Mapping[str, str], database: str) -> None:
        attributes = {**resource, "db.system.name": "postgresql", "db.namespace": database}
        scope = json.dumps({"name": "pgque_exporter", "version": __version__})
        texts = ",".join(_attribute(*pair) for pair in attributes.items())
        self._begin = (
            f'{{"resourceMetrics":[{{"resource":{{"attributes":[{texts}]}},'
            f'"scopeMetrics":[{{"scope":{scope},"metrics":['
        )
        self._starts = SnapshotEncoder(resource, database)
        # The series of the last lines, and of those before them.
        self._before: Mapping[Metric, Sequence[Labels]] = {}
        self._earlier = self._before

    def encode(self, snapshot: Snapshot) -> Lines:
        """The lines of a snapshot, all points at the snapshot's own time."""
        self._starts.encode(snapshot)
        time = f'"timeUnixNano":"{int(snapshot.taken_at * 1e9)}"'
        attributes = _Attributes()
        points = 0
        lines: list[str] = []
        open_line: list[str] = []
        room = MAX_POINTS
        for metric, found in self._points(snapshot, time, attributes):
            for part in found:
                open_line.append(_metric(metric, part))
                points += len(part)
                room -= len(part)
                if room <= 0:
                    lines.append(self._line(open_line))
                    open_line, room = [], MAX_POINTS
        if open_line:
            lines.append(self._line(open_line))
        return Lines("".join(lines).encode(), points)

    def take_back(self) -> None:
        """The last lines came nowhere: the next have to tell which series ended since the ones before."""
        self._before = self._earlier

    def _line(self, metrics: Sequence[str]) -> str:
        return f"{self._begin}{','.join(metrics)}]}}]}}]}}\n"

    def _points(
        self, snapshot: Snapshot, time: str, attributes: _Attributes
    ) -> Iterator[tuple[Metric, Iterator[Sequence[str]]]]:
        """The points of each metric, in slices."""
        now: dict[Metric, Sequence[Labels]] = {}
        for family in snapshot.families:
            now[family.metric] = family.labels
            starts = self._starts.starts(family.metric)
            yield family.metric, _numbers(family, starts, time, attributes)
        for histogram in snapshot.histograms:
            now[histogram.metric] = [series.labels for series in histogram.series]
            starts = self._starts.starts(histogram.metric)
            yield histogram.metric, _histograms(histogram, starts, time, attributes)
        for metric, labels in self._before.items():
            still = now.get(metric, ())
            if still != labels:
                gone = set(labels).difference(still)
                marks = [f'{{{time},"flags":{_NO_VALUE}{attributes(one)}' for one in labels if one in gone]
                yield metric, iter([marks] if marks else [])
        self._before, self._earlier = now, self._before


class _Attributes:
    """The end of a point: its labels as attributes, and again by the names of the semantic conventions.

    For the points of one snapshot, many of which have the same labels.
    """

    def __init__(self) -> None:
        self._texts: dict[tuple[str, str], tuple[str, str | None]] = {}
        self._whole: dict[int, str] = {}  # by the identity of label sets that the snapshot keeps alive

    def __call__(self, labels: Labels) -> str:
        return self._whole.get(id(labels)) or self._join(labels)

    def _join(self, labels: Labels) -> str:
        texts = self._texts
        pairs = [texts.get(pair) or self._add(pair) for pair in labels]
        inside = ",".join([text for text, _ in pairs] + [text for _, text in pairs if text is not None])
        whole = self._whole[id(labels)] = f',"attributes":[{inside}]}}'
        return whole

    def _add(self, pair: tuple[str, str]) -> tuple[str, str | None]:
        name, value = pair
        convention = CONVENTIONS.get(name)
        found = _attribute(name, value), _attribute(convention, value) if convention is not None else None
        self._texts[pair] = found
        return found


def _attribute(name: str, value: str) -> str:
    return f'{{"key":{json.dumps(name)},"value":{{"stringValue":{json.dumps(value)}}}}}'


def _numbers(
    family: Family, starts: Sequence[int], time: str, attributes: Callable[[Labels], str]
) -> Iterator[Sequence[str]]:
    counts = family.metric.type is MetricType.COUNTER
    for part in slices(len(family.labels), MAX_POINTS):
        series = zip(family.labels[part], family.values[part], starts[part], strict=True)
        if counts:
            yield [
                f'{{"startTimeUnixNano":"{start}",{time},"asDouble":{float(value)!r}{attributes(labels)}'
                for labels, value, start in series
            ]
        else:
            yield [f'{{{time},"asDouble":{float(value)!r}{attributes(labels)}' for labels, value, _ in series]


def _histograms(
    family: HistogramFamily, starts: Sequence[int], time: str, attributes: Callable[[Labels], str]
) -> Iterator[Sequence[str]]:
    for part in slices(len(family.series), MAX_POINTS):
        yield [
            f'{{"startTimeUnixNano":"{start}",{time},"count":"{sum(one.counts)}","sum":{float(one.total)!r},'
            f'"bucketCounts":[{_quoted(one.counts)}],"explicitBounds":[{_joined(one.bounds)}]'
            f"{attributes(one.labels)}"
            for one, start in zip(family.series[part], starts[part], strict=True)
        ]


def _quoted(counts: Iterable[int]) -> str:
    return ",".join(f'"{count}"' for count in counts)


def _joined(bounds: Iterable[float]) -> str:
    return ",".join(map(repr, bounds))


def _metric(metric: Metric, points: Sequence[str]) -> str:
    about = json.dumps({"name": metric.name, "description": metric.help, "unit": metric.unit})
    kind, after = "gauge", ""
    if metric.type is not MetricType.GAUGE:
        kind, after = "histogram", f',"aggregationTemporality":{_CUMULATIVE}'
    if metric.type is MetricType.COUNTER:
        kind, after = "sum", f'{after},"isMonotonic":true'
    return f'{about[:-1]},"{kind}":{{"dataPoints":[{",".join(points)}]{after}}}}}'
