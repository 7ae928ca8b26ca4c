"""OTLP metrics in JSON: a line to the points that it holds, or to the reason why they can't be used.

Written for speed where a line is as collectors write it. Most of a line is attributes, and nearly all of them
have been seen before: those are taken out of the text by what they look like, and what a point is about is
worked out once for each that is new. All else takes the longer way.
"""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from itertools import pairwise
from math import isfinite
from typing import Any, NamedTuple

import orjson

from pgque_exporter import catalogue

# Column -> the attributes that it is taken from, the first that is there. All the others are `attributes`.
LABELS = {
    "engine": ("engine", "messaging.system"),
    "database": ("database",),
    "queue": ("queue", "messaging.destination.name"),
    "consumer": ("consumer", "messaging.consumer.group.name"),
    "check": ("check",),
    "state": ("state",),
}
_TAKEN = frozenset(name for names in LABELS.values() for name in names)
# Of a resource: what tells the process, and what tells the sender but not what it observes.
_PROCESS = re.compile(r"(service\.version|db\..*|(telemetry|process|host|os|container|k8s\.pod)\..*)\Z")
_SENDER = ("service.name", "service.namespace", "service.instance.id")
_DELTA = ("1", "AGGREGATION_TEMPORALITY_DELTA")
_CUMULATIVE = ("2", "AGGREGATION_TEMPORALITY_CUMULATIVE")
# A data point's flag that says that there is no value.
_NO_RECORDED_VALUE = 1
_EARLIEST_NS = 946_684_800_000_000_000  # 2000
_BIGGEST = 2**63 - 1
_TEXT_LIMIT = 4096
_KNOWN_LIMIT = 100_000  # label sets and times that are remembered
_KINDS = ("gauge", "sum", "histogram", "exponentialHistogram", "summary")

# Of the 64 bits of a series' id; those before them are its entity's.
BITS_OF_SERIES = 40

_ATTRIBUTES, _END = b'"attributes":[', b"}}]"

_LATE = "too late: older than the watermark"
NOT_OTLP = "not a line of OTLP JSON"


class Identity(NamedTuple):
    """What tells a series from all others."""

    series_id: int
    entity_id: int
    metric: str
    kind: str
    unit: str | None
    labels: tuple[str | None, ...]
    attributes: tuple[tuple[str, str], ...]
    bounds: tuple[float, ...] | None


@dataclass
class Columns:
    """Points by column, all of the same length; times in microseconds since 1970, NULLs as None.

    series  index into the parser's `identities`; None where `reason` says why there is no point, unless that
            is that it comes too late
    """

    series: list[int | None] = field(default_factory=list)
    ts: list[int | None] = field(default_factory=list)
    temporality: list[str | None] = field(default_factory=list)
    start: list[int | None] = field(default_factory=list)
    value: list[float | None] = field(default_factory=list)
    count: list[int | None] = field(default_factory=list)
    sum: list[float | None] = field(default_factory=list)
    counts: list[Sequence[int] | None] = field(default_factory=list)
    reason: list[str | None] = field(default_factory=list)
    text: list[str | None] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.series)

    def all(self) -> tuple[list[Any], ...]:
        """The columns in their order."""
        return (
            self.series, self.ts, self.temporality, self.start, self.value,
            self.count, self.sum, self.counts, self.reason, self.text,
        )  # fmt: skip


_Bounds = tuple[tuple[float, ...], str | None]


@dataclass
class _Metric:
    """What the points of one metric of one resource have in common, and which series came last time."""

    name: str
    kind: str
    unit: str | None
    resource: _Resource
    series: dict[tuple[Any, tuple[float, ...] | None], int] = field(default_factory=dict)
    last_attributes: list[Any] = field(default_factory=list)
    last_series: list[int] = field(default_factory=list)
    last_bounds: tuple[Any, _Bounds] = (None, ((), None))

    def bounds_of(self, given: Any) -> _Bounds:
        """Bounds of buckets, which seldom change, and why they can't be used."""
        if given != self.last_bounds[0]:
            bounds = tuple(_numbers(given))
            self.last_bounds = given, (bounds, _fault_of(bounds))
        return self.last_bounds[1]


@dataclass
class _Resource:
    """What a resource adds to its points; metrics by name, kind and unit."""

    process: dict[str, str]
    sender: dict[str, str]
    namespace: str | None
    metrics: dict[tuple[str, str, str | None], _Metric] = field(default_factory=dict)


class _Refused(Exception):
    """Why a point can't be used."""


class _Malformed(Exception):
    """The line isn't in the shape of OTLP."""


class Parser:
    """Takes lines; `columns` holds their points until `taken()`.

    latest  points of later times, in nanoseconds since 1970, are refused
    late    tells whether a point of a time comes too late
    """

    def __init__(self, latest: int, late: Callable[[int], bool]) -> None:
        self._latest, self._late = latest, late
        self._names = {metric.prometheus_name: metric.name for metric in catalogue.load()}
        self.columns = Columns()
        self.forget()

    def forget(self) -> None:
        """Begin anew with what is remembered from line to line. No column may hold anything."""
        self.identities: list[Identity] = []
        self._resources: dict[Any, _Resource] = {}
        # By numbers that nobody can guess: a line that has numbers of its own there is none of ours.
        self._attributes: dict[int, bytes] = {}
        self._next = secrets.randbits(62)
        self._known: dict[bytes, bytes] = {}
        self._times: dict[Any, tuple[int, str | None]] = {}

    def taken(self) -> None:
        """Empty the columns: they are where they are needed."""
        self.columns = Columns()
        if max(len(self.identities), len(self._times), len(self._known)) > _KNOWN_LIMIT:
            self.forget()

    def line(self, text: bytes) -> None:
        """Take the points of a line, or the line as refused."""
        before = len(self.columns)
        try:
            reason = self._line(orjson.loads(self._shortened(text)))
        except (ValueError, TypeError, AttributeError, _Malformed):
            for column in self.columns.all():
                del column[before:]
            reason = NOT_OTLP
        if reason is not None:
            self._refuse(reason, text.decode("utf-8", errors="replace"))

    def _shortened(self, text: bytes) -> bytes:
        """The line with a number in place of each array of attributes; as it is where that can't be done.

        In a JSON text these bytes can only begin a member, since a quote within a string is escaped. What
        follows and is an array by itself is all of the array that stands there.
        """
        begin, *rest = text.split(_ATTRIBUTES)
        parts = [begin]
        known = self._known
        for piece in rest:
            end = piece.find(_END) + len(_END)
            if end < len(_END):
                return text
            found = known.get(piece[:end])
            if found is None:
                array = b"[" + piece[:end]
                try:
                    orjson.loads(array)
                except ValueError:
                    return text
                self._next += 1
                self._attributes[self._next] = array
                found = known[piece[:end]] = b'"attributes":%d' % self._next
            parts += found, piece[end:]
        return b"".join(parts)

    # --- lines and resources ---------------------------------------------------------------------

    def _line(self, request: Any) -> str | None:
        if not isinstance(request, dict):
            raise _Malformed
        resources = request.get("resourceMetrics")
        if resources is None:
            return "a line without resourceMetrics"
        for given in _list(resources):
            resource = self._resource((given.get("resource") or {}).get("attributes"))
            for scope in _list(given.get("scopeMetrics")):
                for metric in _list(scope.get("metrics")):
                    self._metric(resource, metric)
        return None

    def _resource(self, attributes: Any) -> _Resource:
        key = attributes if isinstance(attributes, int) else orjson.dumps(attributes)
        found = self._resources.get(key)
        if found is None:
            given = _attributes(self._whole(attributes))
            found = self._resources[key] = _Resource(
                process={
                    name: value
                    for name, value in given.items()
                    if name not in _SENDER and not _PROCESS.match(name)
                },
                sender={name: given[name] for name in _SENDER if name in given},
                namespace=given.get("db.namespace") or None,
            )
        return found

    # --- metrics ---------------------------------------------------------------------------------

    def _metric(self, resource: _Resource, given: Mapping[str, Any]) -> None:
        bodies: dict[str, Any] = {kind: body for kind in _KINDS if (body := given.get(kind)) is not None}
        name, unit = _text_or_none(given.get("name")) or "", _text_or_none(given.get("unit"))
        points: list[Any] = [None]
        if bodies:
            points = _list(next(iter(bodies.values())).get("dataPoints"))
        reason, kind, temporality = _judged(name, bodies)
        if reason is not None:
            for point in points:
                self._refuse(reason, self._shown(name, point))
            return
        key = (name, kind, unit)
        metric = resource.metrics.get(key)
        if metric is None:
            canonical = name if "." in name else self._names.get(name, name)
            metric = resource.metrics[key] = _Metric(canonical, kind, unit, resource)
        if kind == "histogram" or not self._plain(metric, points, temporality):
            for point in points:
                self._point(metric, point, temporality)

    def _plain(self, metric: _Metric, points: list[dict[str, Any]], temporality: str | None) -> bool:
        """Take points that are all as collectors write numbers; False, and none taken, if one isn't."""
        try:
            attributes = [point["attributes"] for point in points]
            times = [point["timeUnixNano"] for point in points]
            values = [point["asDouble"] for point in points]
        except KeyError:
            return False
        starts = [point.get("startTimeUnixNano") for point in points]
        sizes = {*map(len, points)}
        if sizes != {3 if None in starts else 4} or {*map(type, values)} != {float}:
            return False
        if not all(map(isfinite, values)) or (metric.kind == "counter" and min(values) < 0):
            return False
        moments = self._moments(metric, times, starts)
        if moments is None:
            return False
        ts, begun = moments
        series = self._series_of_all(metric, attributes)
        count, nothing = len(points), [None] * len(points)
        columns = self.columns
        columns.series += series
        columns.ts += ts
        columns.temporality += [temporality] * count
        columns.start += begun
        columns.value += values
        for column in (columns.count, columns.sum, columns.counts, columns.reason, columns.text):
            column += nothing
        return True

    def _moments(
        self, metric: _Metric, times: list[Any], starts: list[Any]
    ) -> tuple[list[int], list[int | None]] | None:
        """When points were taken and since when they count; None where one isn't to be taken.

        Mostly all were taken at once.
        """
        count = len(times)
        # Of texts only: Python calls 1, 1.0 and true equal.
        of_texts = isinstance(times[0], str) and isinstance(starts[0], str | None)
        if of_texts and times.count(times[0]) == count and starts.count(starts[0]) == count:
            ns, reason = self._time(times[0])
            start = self._start(starts[0], ns) if metric.kind == "counter" else None
            return None if reason else ([ns // 1000] * count, [start] * count)
        stamps = [self._time(time) for time in times]
        if any(reason for _, reason in stamps):
            return None
        begun: list[int | None] = [None] * count
        if metric.kind == "counter":
            begun = [self._start(start, ns) for start, (ns, _) in zip(starts, stamps, strict=True)]
        return [ns // 1000 for ns, _ in stamps], begun

    def _series_of_all(self, metric: _Metric, attributes: list[Any]) -> list[int]:
        if attributes == metric.last_attributes:
            return metric.last_series
        series = [self._series(metric, one, None) for one in attributes]
        # Python calls some attributes equal that aren't, such as 1 and 1.0; numbers of ours never.
        if {*map(type, attributes)} == {int}:
            metric.last_attributes, metric.last_series = attributes, series
        return series

    # --- points ----------------------------------------------------------------------------------

    def _point(self, metric: _Metric, point: Any, temporality: str | None) -> None:
        if not isinstance(point, dict):
            raise _Malformed
        try:
            ns, reason = self._time(point.get("timeUnixNano"))
            if reason not in (None, _LATE):
                raise _Refused(reason)
            histogram = metric.kind == "histogram"
            buckets = _integers(point.get("bucketCounts")) if histogram else None
            bounds, fault = metric.bounds_of(point.get("explicitBounds")) if histogram else (None, None)
            number, total = _number(point.get("asDouble")), _number(point.get("sum"))
            if number is None:
                number = _cast(point.get("asInt"))
            count = _integer(point.get("count"))
            if _flags(point) & _NO_RECORDED_VALUE:
                number = count = total = buckets = None
            elif histogram:
                _check_histogram(count, total, buckets or [], bounds or ())
                if fault is not None:
                    raise _Refused(fault)
                number = None
            else:
                _check_number(metric.kind, number)
                count = total = None
            start = None
            if metric.kind != "gauge":
                start = self._start(point.get("startTimeUnixNano"), ns)
            series = self._series(metric, point.get("attributes"), bounds)
        except _Refused as refused:
            self._refuse(str(refused), self._shown(metric.name, point))
            return
        text = None if reason is None else self._shown(metric.name, point)
        row = (series, ns // 1000, temporality, start, number, count, total, buckets, reason, text)
        for column, value in zip(self.columns.all(), row, strict=True):
            column.append(value)

    def _refuse(self, reason: str, text: str) -> None:
        row = (*(None,) * 8, reason, text[:_TEXT_LIMIT])
        for column, value in zip(self.columns.all(), row, strict=True):
            column.append(value)

    def _shown(self, name: str, point: Any) -> str:
        if isinstance(point, dict) and "attributes" in point:
            point = {**point, "attributes": self._whole(point["attributes"])}
        return orjson.dumps({"metric": name, "point": point}).decode()[:_TEXT_LIMIT]

    def _time(self, given: Any) -> tuple[int, str | None]:
        """Nanoseconds, and why they aren't taken."""
        if not isinstance(given, str):  # Python calls 1, 1.0 and true equal
            ns = _integer(given) or 0
            return ns, self._refusal(ns)
        found = self._times.get(given)
        if found is None:
            ns = _integer(given) or 0
            found = self._times[given] = (ns, self._refusal(ns))
        return found

    def _refusal(self, ns: int) -> str | None:
        if ns <= 0:
            return "no time"
        if ns > self._latest:
            return "a time in the future"
        if ns < _EARLIEST_NS:
            return "a time before 2000"
        return _LATE if self._late(ns) else None

    def _start(self, given: Any, ns: int) -> int | None:
        if given is None:
            return None
        start, _ = self._time(given)
        return start // 1000 if 0 < start <= ns else None

    def _series(self, metric: _Metric, attributes: Any, bounds: tuple[float, ...] | None) -> int:
        key = (attributes if isinstance(attributes, int) else orjson.dumps(attributes), bounds)
        found = metric.series.get(key)
        if found is None:
            found = metric.series[key] = len(self.identities)
            self.identities.append(_identity(metric, _attributes(self._whole(attributes)), bounds))
        return found

    def _whole(self, attributes: Any) -> Any:
        """The array that a number stands for."""
        array = self._attributes.get(attributes) if isinstance(attributes, int) else None
        return attributes if array is None else orjson.loads(array)


def _identity(metric: _Metric, given: Mapping[str, str], bounds: tuple[float, ...] | None) -> Identity:
    resource = metric.resource
    found = {name: next(filter(None, map(given.get, names)), None) for name, names in LABELS.items()}
    found["database"] = found["database"] or resource.namespace
    # A point that a database's name stands on is that database's; all others belong to their sender.
    around = resource.process if found["database"] else {**resource.process, **resource.sender}
    rest = {name: value for name, value in around.items() if name not in given}
    rest |= {name: value for name, value in given.items() if name not in _TAKEN}
    labels, attributes = tuple(found.values()), tuple(sorted(rest.items()))
    entity_id = _hash(labels[:4], attributes)
    own = _hash(metric.name, metric.kind, labels, attributes, bounds)
    return Identity(
        # In the order of ids all of an entity is together.
        series_id=(entity_id >> BITS_OF_SERIES << BITS_OF_SERIES) + own % 2**BITS_OF_SERIES,
        entity_id=entity_id,
        metric=metric.name,
        kind=metric.kind,
        unit=metric.unit,
        labels=labels,
        attributes=attributes,
        bounds=bounds,
    )


def _hash(*parts: Any) -> int:
    """64 bits of what tells things apart, as PostgreSQL and Spark hold them: with a sign."""
    return int.from_bytes(blake2b(json.dumps(parts).encode(), digest_size=8).digest(), signed=True)


# --- checks --------------------------------------------------------------------------------------


def _judged(name: str, bodies: Mapping[str, Any]) -> tuple[str | None, str, str | None]:
    """Why nothing of a metric can be used, its kind, its temporality."""
    total, histogram = bodies.get("sum"), bodies.get("histogram")
    monotonic = total is not None and bool(total.get("isMonotonic"))
    kind = "histogram" if histogram is not None else "counter" if monotonic else "gauge"
    holder = total if total is not None else histogram
    given = None if holder is None else holder.get("aggregationTemporality")
    word = None if given is None else str(given)
    temporality = "delta" if word in _DELTA else "cumulative" if word in _CUMULATIVE else None
    reason = None
    if "exponentialHistogram" in bodies:
        reason = "exponential histograms are not read"
    elif "summary" in bodies:
        reason = "summaries are not read"
    elif not bodies:
        reason = "a metric without data"
    elif not name:
        reason = "a metric without a name"
    elif "gauge" not in bodies and temporality is None:
        reason = "no aggregation temporality"
    elif kind == "gauge" and temporality == "delta":
        reason = "differences of a sum that may fall are not read"
    return reason, kind, None if kind == "gauge" else temporality


def _check_number(kind: str, number: float | None) -> None:
    if number is None:
        raise _Refused("no value")
    if not isfinite(number):
        raise _Refused("not a finite value")
    if kind == "counter" and number < 0:
        raise _Refused("a counter below 0")


def _check_histogram(
    count: int | None, total: float | None, buckets: Sequence[int | None], bounds: Sequence[float]
) -> None:
    if count is None or count < 0:
        raise _Refused("no count")
    known = [one for one in buckets if one is not None]
    if len(known) < len(buckets) or min(known, default=0) < 0:
        raise _Refused("a bucket without a count")
    if len(buckets) != (len(bounds) + 1 if buckets else 0) or (bounds and not buckets):
        raise _Refused("buckets that do not fit their bounds")
    if buckets and sum(known) != count:
        raise _Refused("buckets that do not add up to the count")
    if total is not None and not isfinite(total):
        raise _Refused("not a finite sum")


def _fault_of(bounds: Sequence[float]) -> str | None:
    if not all(map(isfinite, bounds)):
        return "a bound that is not finite"
    if any(not a < b for a, b in pairwise(bounds)):
        return "bounds that do not ascend"
    return None


# --- JSON ----------------------------------------------------------------------------------------


def _list(given: Any) -> list[Any]:
    if given is None:
        return []
    if not isinstance(given, list):
        raise _Malformed
    return given


def _text_or_none(given: Any) -> str | None:
    if given is None or isinstance(given, str):
        return given
    raise _Malformed


def _attributes(given: Any) -> dict[str, str]:
    """Attributes by name, each value as text; of names that stand twice the last one counts."""
    found = {}
    for attribute in _list(given):
        name = attribute.get("key")
        if name is not None:
            values: Iterable[Any] = (attribute.get("value") or {}).values()
            found[_text_or_none(name) or ""] = next(
                (_text(value) for value in values if value is not None), ""
            )
    return found


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, bool) or not isinstance(value, int | float):
        return orjson.dumps(value).decode()
    return str(value)


def _integer(given: Any) -> int | None:
    """A 64-bit integer, which OTLP's JSON writes as text; None where there is none."""
    if isinstance(given, str):
        if not (given.isascii() and given.removeprefix("-").isdecimal()):
            return None
        given = int(given) if len(given) <= 20 else None
    if given is None or isinstance(given, bool | float):
        return None
    if not isinstance(given, int):
        raise _Malformed
    return given if abs(given) <= _BIGGEST else None


def _integers(given: Any) -> list[int | None]:
    counts = _list(given)
    if {*map(type, counts)} <= {str}:
        try:
            return [*map(int, counts)]
        except ValueError:
            pass
    return [_integer(count) for count in counts]


def _number(given: Any) -> float | None:
    """A double, of which OTLP's JSON writes those that aren't finite as text."""
    if given is None or isinstance(given, float):
        return given
    if isinstance(given, int) and not isinstance(given, bool):
        return float(given)
    if given in ("NaN", "Infinity", "-Infinity"):
        return float(given)
    raise _Malformed


def _numbers(given: Any) -> Iterable[float]:
    for one in _list(given):
        number = _number(one)
        if number is None:
            raise _Malformed
        yield number


def _cast(given: Any) -> float | None:
    whole = _integer(given)
    return None if whole is None else float(whole)


def _flags(point: Mapping[str, Any]) -> int:
    return int(point.get("flags") or 0)
