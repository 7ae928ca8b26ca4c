"""Every table, worked out in plain Python from lines of OTLP JSON.

Written from what the tables promise and sharing no code with the pipeline. A row is a dict; series and
entities are tuples of their labels instead of hashes; times are microseconds since 1970.
"""

from __future__ import annotations

import json
import math
import statistics
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

MINUTE, HOUR, DAY = 60_000_000, 3_600_000_000, 86_400_000_000
Row = dict[str, Any]
LABELS = ("engine", "database", "queue", "consumer", "check", "state")
CONVENTIONS = {
    "engine": "messaging.system",
    "queue": "messaging.destination.name",
    "consumer": "messaging.consumer.group.name",
}
SENDER = ("service.name", "service.namespace", "service.instance.id")
SEVERITY = {"ok": 0, "unknown": 1, "warning": 2, "critical": 3}


@dataclass(frozen=True)
class Point:
    """One point; `labels` are those of LABELS in order, `rest` all others."""

    metric: str
    kind: str
    unit: str | None
    labels: tuple[str | None, ...]
    rest: tuple[tuple[str, str], ...]
    bounds: tuple[float, ...] | None
    ts: int
    temporality: str | None
    start: int | None
    value: float | None
    count: int | None
    sum: float | None
    counts: tuple[int, ...] | None

    @property
    def series(self) -> tuple[Any, ...]:
        return (self.metric, self.kind, self.labels, self.rest, self.bounds)

    @property
    def entity(self) -> tuple[Any, ...]:
        return (*self.labels[:4], self.rest)

    @property
    def known(self) -> bool:
        return self.value is not None or self.count is not None


def points(lines: Iterable[str]) -> list[Point]:
    """All points of well-formed lines, each once, by series and time."""
    found: dict[tuple[Any, ...], Point] = {}
    for line in lines:
        for resource in json.loads(line)["resourceMetrics"]:
            of_resource = _attributes(resource.get("resource", {}))
            for scope in resource["scopeMetrics"]:
                for metric in scope["metrics"]:
                    for point in _points_of(metric, of_resource):
                        key = (*point.series, point.ts)
                        other = found.get(key)
                        found[key] = point if other is None or _rank(point) > _rank(other) else other
    return sorted(found.values(), key=lambda point: (repr(point.series), point.ts))


def _rank(point: Point) -> tuple[Any, ...]:
    order = (point.value, point.count, point.start, point.sum)
    return tuple((value is not None, value or 0) for value in order)


def _attributes(holder: Mapping[str, Any]) -> dict[str, str]:
    found = {}
    for attribute in holder.get("attributes", ()):
        (value,) = attribute["value"].values()
        found[attribute["key"]] = str(value).lower() if isinstance(value, bool) else str(value)
    return found


def _points_of(metric: Mapping[str, Any], of_resource: Mapping[str, str]) -> Iterable[Point]:
    kind = "histogram" if "histogram" in metric else "gauge" if "gauge" in metric else "counter"
    body = metric.get("histogram") or metric.get("gauge") or metric["sum"]
    if kind == "counter" and not body.get("isMonotonic"):
        kind = "gauge"
    temporality = None if kind == "gauge" else {1: "delta", 2: "cumulative"}[body["aggregationTemporality"]]
    for point in body["dataPoints"]:
        mine = _attributes(point)
        labels = {name: mine.get(name) or mine.get(CONVENTIONS.get(name, "")) for name in LABELS}
        labels["database"] = labels["database"] or of_resource.get("db.namespace")
        dropped = {*LABELS, *CONVENTIONS.values()}
        rest = {name: value for name, value in mine.items() if name not in dropped}
        for name, value in of_resource.items():
            process = name == "service.version" or name.split(".")[0] in (
                "db",
                "telemetry",
                "process",
                "host",
            )
            sender = name in SENDER and labels["database"] is not None
            if not process and not sender and name not in mine:
                rest[name] = value
        ended = point.get("flags", 0) & 1
        histogram = kind == "histogram" and not ended
        start = int(point.get("startTimeUnixNano", 0)) // 1000
        ts = int(point["timeUnixNano"]) // 1000
        number = None if kind == "histogram" or ended else float(point.get("asDouble", point.get("asInt")))
        yield Point(
            metric=metric["name"],
            kind=kind,
            unit=metric.get("unit"),
            labels=tuple(labels[name] for name in LABELS),
            rest=tuple(sorted(rest.items())),
            bounds=tuple(point.get("explicitBounds", ())) if kind == "histogram" else None,
            ts=ts,
            temporality=temporality,
            start=start if kind != "gauge" and 0 < start <= ts else None,
            value=number,
            count=int(point["count"]) if histogram else None,
            sum=point.get("sum") if histogram else None,
            counts=tuple(int(count) for count in point.get("bucketCounts", ())) if histogram else None,
        )


# --- series and rollups --------------------------------------------------------------------------


def series(all_points: Sequence[Point]) -> list[Row]:
    groups: dict[Any, list[Point]] = defaultdict(list)
    for point in all_points:
        groups[point.ts // DAY, point.series].append(point)
    return [
        {
            "date": day_of(day * DAY),
            "series": key,
            "entity": group[0].entity,
            "unit": group[0].unit,
            "first_seen": min(point.ts for point in group),
            "last_seen": max(point.ts for point in group),
            "points": len(group),
        }
        for (day, key), group in groups.items()
    ]


@dataclass(frozen=True)
class Step:
    """A point and what its counter grew by since the one before; None where nobody can tell."""

    point: Point
    increase: float | None
    reset: int | None
    seconds: float | None
    sum: float | None
    buckets: tuple[int, ...] | None


def steps(all_points: Sequence[Point]) -> list[Step]:
    found = []
    previous: Point | None = None
    for point in all_points:
        if not point.known:
            continue
        before = previous if previous is not None and previous.series == point.series else None
        found.append(_step(before, point))
        previous = point
    return found


def _step(before: Point | None, point: Point) -> Step:
    amount = _amount(point)
    if point.kind == "gauge":
        return Step(point, None, None, None, None, None)
    if point.temporality == "delta":
        seconds = None if point.start is None else (point.ts - point.start) / 1e6
        return Step(point, amount, None, seconds, point.sum, point.counts)
    if before is None or before.temporality != "cumulative" or point.ts - before.ts > DAY:
        return Step(point, None, 0, None, None, None)
    seconds = (point.ts - before.ts) / 1e6
    pairs = list(zip(point.counts or (), before.counts or (), strict=True))
    if amount >= _amount(before) and all(now >= then for now, then in pairs):
        total = None if point.sum is None or before.sum is None else point.sum - before.sum
        buckets = None if point.counts is None else tuple(now - then for now, then in pairs)
        return Step(point, amount - _amount(before), 0, seconds, total, buckets)
    if point.start == point.ts:
        buckets = None if point.counts is None else tuple(0 for _ in point.counts)
        nothing = None if point.sum is None else 0.0
        return Step(point, 0.0, 1, seconds, nothing, buckets)
    return Step(point, amount, 1, seconds, point.sum, point.counts)


def _amount(point: Point) -> float:
    return point.value if point.value is not None else float(point.count or 0)


def rollup(all_steps: Sequence[Step], window: int) -> list[Row]:
    groups: dict[Any, list[Step]] = defaultdict(list)
    for step in all_steps:
        groups[step.point.ts // window * window, step.point.series].append(step)
    rows = []
    for (begin, key), group in groups.items():
        members = [step.point for step in group]
        values = [point.value for point in members if point.value is not None]
        buckets = [step.buckets for step in group if step.buckets is not None]
        rows.append(
            {
                "date": day_of(begin),
                "series": key,
                "window_start": begin,
                "samples": len(members),
                "sum": total(values),
                "min": min(values, default=None),
                "max": max(values, default=None),
                "first": members[0].value,
                "last": members[-1].value,
                "first_ts": members[0].ts,
                "last_ts": members[-1].ts,
                "increase": total(step.increase for step in group),
                "resets": total(step.reset for step in group),
                "covered_seconds": total(step.seconds for step in group),
                "sum_increase": total(step.sum for step in group),
                "bucket_increase": [sum(column) for column in zip(*buckets, strict=True)]
                if buckets
                else None,
            }
        )
    return rows


def total(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return math.fsum(known) if known else None


def day_of(micros: int) -> date:
    return datetime.fromtimestamp(micros / 1e6, UTC).date()


def _by_series(rows: Iterable[Row], *metrics: str) -> Iterable[Row]:
    return (row for row in rows if row["series"][0] in metrics)


def _entity(key: tuple[Any, ...]) -> tuple[Any, ...]:
    return (*key[2][:4], key[3])


# --- flow and latency ----------------------------------------------------------------------------


def flow(rollup_1h: Sequence[Row]) -> list[Row]:
    names = ("sent", "acked", "nacked", "redelivered", "dead_lettered")
    column = {f"pgque.message.{name}_total": name for name in names}
    found: dict[Any, Row] = {}
    for row in _by_series(rollup_1h, *column):
        if row["increase"] is None:
            continue
        name = column[row["series"][0]]
        key = (row["window_start"], _entity(row["series"]))
        entry = found.setdefault(
            key,
            {"date": row["date"], "window_start": key[0], "entity": key[1]}
            | dict.fromkeys([*names, *(f"{name}_per_second" for name in names)]),
        )
        entry[name] = row["increase"]
        if row["covered_seconds"]:
            entry[f"{name}_per_second"] = row["increase"] / row["covered_seconds"]
    return list(found.values())


def latency(all_points: Sequence[Point], rollup_1h: Sequence[Row]) -> list[Row]:
    rows = []
    for row in _by_series(rollup_1h, "pgque.processing_latency_seconds"):
        if row["increase"] and row["bucket_increase"] and row["series"][4]:
            entry = {
                "date": row["date"],
                "window_start": row["window_start"],
                "entity": _entity(row["series"]),
                "metric": row["series"][0],
                "source": "histogram",
                "observations": row["increase"],
                "mean": None if row["sum_increase"] is None else row["sum_increase"] / row["increase"],
            }
            for q in (50, 90, 95, 99):
                entry[f"p{q}"] = _bucket_quantile(q / 100, row["series"][4], row["bucket_increase"])
            rows.append(entry)
    groups: dict[Any, list[float]] = defaultdict(list)
    for point in all_points:
        if point.metric == "pgque.consumer.lag_seconds" and point.value is not None:
            groups[point.ts // HOUR * HOUR, point.entity].append(point.value)
    for (begin, entity), values in groups.items():
        entry = {
            "date": day_of(begin),
            "window_start": begin,
            "entity": entity,
            "metric": "pgque.consumer.lag_seconds",
            "source": "samples",
            "observations": float(len(values)),
            "mean": statistics.fmean(values),
        }
        for q in (50, 90, 95, 99):
            entry[f"p{q}"] = _quantile(q / 100, sorted(values))
        rows.append(entry)
    return rows


def _quantile(q: float, ordered: Sequence[float]) -> float:
    place = q * (len(ordered) - 1)
    low, high = ordered[math.floor(place)], ordered[math.ceil(place)]
    return low + (high - low) * (place - math.floor(place))


def _bucket_quantile(q: float, bounds: Sequence[float], counts: Sequence[int]) -> float:
    rank = q * sum(counts)
    below = 0
    for index, count in enumerate(counts):
        if count and below + count >= rank:
            if index == len(bounds):
                return bounds[-1]
            if index == 0 and bounds[0] <= 0:
                return bounds[0]
            low = bounds[index - 1] if index else 0.0
            return low + (bounds[index] - low) * (rank - below) / count
        below += count
    raise AssertionError("no bucket holds the rank")


# --- health and incidents ------------------------------------------------------------------------


def states(all_points: Sequence[Point]) -> dict[Any, list[tuple[int, str]]]:
    """The samples of each (entity, check): time and the worst state given for it."""
    found: dict[Any, dict[int, str]] = defaultdict(dict)
    for point in all_points:
        state = point.labels[5]
        if point.metric == "pgque.queue.health_state" and point.value == 1 and state in SEVERITY:
            samples = found[point.entity, point.labels[4]]
            samples[point.ts] = max(samples.get(point.ts, "ok"), state, key=SEVERITY.__getitem__)
    return {key: sorted(samples.items()) for key, samples in found.items()}


def health(all_points: Sequence[Point], max_gap: int) -> list[Row]:
    rows: list[Row] = []
    for (entity, check), samples in states(all_points).items():
        row: Row = {}
        last = -1
        for ts, state in samples:
            same_day = last // DAY == ts // DAY
            near = same_day and ts - last <= max_gap * 1_000_000
            if near:
                row["ended"] = ts
            if near and row["state"] == state:
                row["samples"] += 1
            else:
                row = {"date": day_of(ts), "entity": entity, "check": check, "state": state}
                row |= {"started": ts, "ended": ts, "samples": 1}
                rows.append(row)
            last = ts
    return rows


def incidents(all_points: Sequence[Point], max_gap: int) -> list[Row]:
    rows: list[Row] = []
    for (entity, check), samples in states(all_points).items():
        row: Row | None = None
        for (ts, state), following in zip(samples, [*samples[1:], None], strict=True):
            if state == "ok":
                if row is not None:
                    row["ended"] = ts
                row = None
                continue
            if row is None:
                if state == "unknown":
                    continue
                row = {"entity": entity, "check": check, "started": ts, "ended": None, "last_seen": ts}
                row |= {"worst": state, "samples": 0}
                row |= {f"{name}_seconds": 0.0 for name in ("warning", "critical", "unknown")}
                rows.append(row)
            bad = state != "unknown"
            if bad:
                row["samples"] += 1
                row["last_seen"] = ts
                row["worst"] = max(row["worst"], state, key=SEVERITY.__getitem__)
            if following is not None:
                seconds = (following[0] - ts) / 1e6
                if seconds > max_gap:
                    row["unknown_seconds"] += seconds
                else:
                    row[f"{state}_seconds"] += seconds
                    if bad:
                        row["last_seen"] = following[0]
    return rows


# --- objectives ----------------------------------------------------------------------------------

# By name the target, and what is measured: a gauge and the most that it may be, or good and bad counters.
Objectives = Mapping[str, tuple[float, str, float | str]]
OBJECTIVES: Objectives = {
    "health": (0.999, "pgque.queue.health_status", 1.0),
    "lag": (0.99, "pgque.consumer.lag_seconds", 60.0),
    "delivery": (0.999, "pgque.message.acked_total", "pgque.message.dead_lettered_total"),
}


def sli(
    all_points: Sequence[Point], rollup_1h: Sequence[Row], objectives: Objectives = OBJECTIVES
) -> list[Row]:
    found: dict[Any, list[float]] = defaultdict(lambda: [0.0, 0.0])
    for name, (_, measured, limit) in objectives.items():
        if isinstance(limit, str):
            for row in _by_series(rollup_1h, measured, limit):
                if row["increase"]:
                    entry = found[row["window_start"], name, _entity(row["series"])]
                    entry[0] += row["increase"] if row["series"][0] == measured else 0
                    entry[1] += row["increase"]
            continue
        for point in all_points:
            if point.metric == measured and point.value is not None:
                entry = found[point.ts // HOUR * HOUR, name, point.entity]
                entry[0] += point.value <= limit
                entry[1] += 1
    return [
        {"date": day_of(begin), "window_start": begin, "objective": name, "entity": entity}
        | {"good": entry[0], "total": entry[1]}
        for (begin, name, entity), entry in found.items()
    ]


def slo(sli_rows: Sequence[Row], objectives: Objectives = OBJECTIVES) -> list[Row]:
    as_of = max(row["window_start"] for row in sli_rows) + HOUR
    rows = []
    for hours in (1, 6, 24, 72, 168, 672, 2160):
        sums: dict[Any, list[float]] = defaultdict(lambda: [0.0, 0.0])
        for row in sli_rows:
            if row["window_start"] >= as_of - hours * HOUR:
                sums[row["objective"], row["entity"]][0] += row["good"]
                sums[row["objective"], row["entity"]][1] += row["total"]
        for (objective, entity), (good, all_) in sums.items():
            target, *_ = objectives[objective]
            burn = (1 - good / all_) / (1 - target)
            row = {"as_of": as_of, "window_hours": hours, "objective": objective, "entity": entity}
            row |= {"target": target, "good": good, "total": all_, "attainment": good / all_}
            rows.append(row | {"burn": burn, "budget_left": 1 - burn})
    return rows


# --- baselines and forecast ----------------------------------------------------------------------

BASELINE_METRICS = (
    "pgque.queue.depth",
    "pgque.queue.oldest_message_age_seconds",
    "pgque.message.sent_total",
    "pgque.message.acked_total",
    "pgque.message.nacked_total",
    "pgque.message.dead_lettered_total",
    "pgque.message.retry_waiting",
    "pgque.consumer.lag_seconds",
    "pgque.consumer.pending_events",
)


def baselines(rollup_1h: Sequence[Row], *, time_zone: str, weeks: int) -> list[Row]:
    as_of = max(row["window_start"] for row in rollup_1h) + HOUR
    zone = ZoneInfo(time_zone)
    groups: dict[Any, list[float]] = defaultdict(list)
    for row in _by_series(rollup_1h, *BASELINE_METRICS):
        if row["window_start"] < as_of - timedelta(weeks=weeks) / timedelta(microseconds=1):
            continue
        if row["series"][1] == "gauge":
            value = row["sum"] / row["samples"]
        elif row["covered_seconds"] and row["increase"] is not None:
            value = row["increase"] / row["covered_seconds"]
        else:
            continue
        wall = datetime.fromtimestamp(row["window_start"] / 1e6, zone)
        groups[row["series"], wall.weekday() * 24 + wall.hour].append(value)
    rows = []
    for (key, hour), values in groups.items():
        if len(values) < 3:
            continue
        median = statistics.median(values)
        mad = statistics.median(abs(value - median) for value in values)
        width = max(3 * 1.4826 * mad, 0.1 * abs(median))
        row = {"series": key, "entity": _entity(key), "hour_of_week": hour, "hours": len(values)}
        rows.append(
            row | {"median": median, "mad": mad, "low": max(0.0, median - width), "high": median + width}
        )
    return rows


def forecast(rollup_1m: Sequence[Row], *, hours: int) -> list[Row]:
    as_of = max(row["last_ts"] for row in rollup_1m)
    recent: dict[Any, list[tuple[float, float]]] = defaultdict(list)
    for row in sorted(rollup_1m, key=lambda row: row["last_ts"]):
        if row["last_ts"] >= as_of - hours * HOUR:
            recent[row["series"]].append(((row["last_ts"] - as_of) / 1e6, row["last"]))
    periods = {
        (*key[2][:3], key[3]): minutes[-1][1]
        for key, minutes in recent.items()
        if key[0] == "pgque.queue.rotation_period_seconds"
    }
    rows = []
    for key, minutes in recent.items():
        period = periods.get((*key[2][:3], key[3]))
        if key[0] != "pgque.consumer.lag_seconds" or period is None or len(minutes) < 10:
            continue
        xs, ys = zip(*minutes, strict=True)
        if xs[-1] - xs[0] < 1800:
            continue
        slope, intercept = statistics.linear_regression(xs, ys)
        residual = math.fsum((y - intercept - slope * x) ** 2 for x, y in minutes)
        spread = math.fsum((x - statistics.fmean(xs)) ** 2 for x in xs)
        error = math.sqrt(residual / (len(xs) - 2) / spread)
        row = {
            "as_of": as_of,
            "entity": _entity(key),
            "lag_seconds": ys[-1],
            "rotation_period_seconds": period,
        }
        row |= {"samples": len(xs), "slope": slope}
        row |= {"slope_low": slope - 1.96 * error, "slope_high": slope + 1.96 * error}
        room = period - ys[-1]
        for name, rate in (("", slope), ("_low", row["slope_high"]), ("_high", row["slope_low"])):
            left = 0.0 if room <= 0 else room / rate if rate > 0 else None
            row[f"seconds_left{name}"] = left
        rows.append(row)
    return rows
