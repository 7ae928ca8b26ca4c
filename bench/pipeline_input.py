"""Metric history of any size for the pipeline's benchmark, in the lines that the service's archive writes.

A database of ten queues with two consumers each makes 270 series, a poll each five minutes 77,760 points
a day; 26 days of it are 2.02 million. Values wander by a seeded generator: counters begin anew when the
exporter does, polls are missed, checks turn bad for a while, lag grows and is worked off.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from pgque_exporter.catalogue import Metric, MetricType, load
from pgque_exporter.otlp.layout import CONVENTIONS

QUEUES = 10
CONSUMERS = 2
CHECKS = ("consumer_lag", "rotation")
STATES = ("ok", "warning", "critical", "unknown")
BOUNDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
INTERVAL = 300  # seconds between polls
DAYS = 26
BEGIN = 1_790_553_600  # a Monday, in seconds
FILE_BYTES = 64 * 1024**2

_RESOURCE = {"service.name": "pgque-exporter", "service.instance.id": "bench", "db.system.name": "postgresql"}
_TIME = "@"


@dataclass(frozen=True)
class Written:
    """What was written."""

    files: int
    points: int
    size: int


def write(folder: Path, databases: int, *, days: int = DAYS, file_points: int | None = None) -> Written:
    """Write the history of so many databases, in files of 64 MiB, or of about so many points each."""
    folder.mkdir(parents=True)
    chance = np.random.default_rng(20261121)
    polls = days * 86400 // INTERVAL
    made = [_Database(f"db{number:04}", polls, chance) for number in range(databases)]
    files = points = size = 0
    open_file: list[bytes] = []
    waiting = waiting_points = 0

    def close() -> None:
        nonlocal files, waiting, waiting_points
        if open_file:
            (folder / f"metrics-{files:06}.json").write_bytes(b"".join(open_file))
            files += 1
            open_file.clear()
            waiting = waiting_points = 0

    for poll in range(polls):
        for database in made:
            line = database.line(poll)
            if line is None:
                continue
            open_file.append(line)
            waiting += len(line)
            waiting_points += database.series
            size += len(line)
            points += database.series
            if waiting_points >= file_points if file_points else waiting >= FILE_BYTES:
                close()
    close()
    return Written(files, points, size)


class _Database:
    """One database's polls as lines: a text with gaps, and a row of values for each poll."""

    def __init__(self, name: str, polls: int, chance: np.random.Generator) -> None:
        self._texts: list[str] = []
        self._values: list[np.ndarray[Any, Any]] = []
        self.series = 0
        self._chance = chance
        self._polls = polls
        self._began = np.where(np.arange(polls) < polls // 2, BEGIN - 3600, BEGIN + polls // 2 * INTERVAL)
        self._missed = {*np.flatnonzero(chance.random(polls) < 0.002).tolist()}
        hours = np.arange(polls) * INTERVAL / 3600
        # Mondays are busy, nights are quiet.
        self._load = 1 + 0.8 * np.sin(hours / 24 * 2 * np.pi) + np.where(hours % 168 < 24, 1.0, 0.0)
        self._metrics = {metric.name: metric for metric in load()}
        queues = [{"engine": "pgque", "database": name, "queue": f"queue_{n}"} for n in range(QUEUES)]
        consumers = [{**queue, "consumer": f"consumer_{n}"} for queue in queues for n in range(CONSUMERS)]
        checks = [{**queue, "check": check} for queue in queues for check in CHECKS]
        metrics = [self._metric(*one) for one in self._layout(queues, consumers, checks)]
        resource = ",".join(_attribute(*pair) for pair in {**_RESOURCE, "db.namespace": name}.items())
        self._text = (
            f'{{"resourceMetrics":[{{"resource":{{"attributes":[{resource}]}},"scopeMetrics":'
            f'[{{"scope":{{"name":"pgque_exporter"}},"metrics":[{",".join(metrics)}]}}]}}]}}\n'
        )
        self._rows = np.concatenate(self._values, axis=1)

    def line(self, poll: int) -> bytes | None:
        """The line of a poll; None where it was missed."""
        if poll in self._missed:
            return None
        text = self._text % tuple(self._rows[poll].tolist())
        return text.replace(_TIME, f"{BEGIN + poll * INTERVAL}{0:09}").encode()

    def _layout(
        self,
        queues: Sequence[dict[str, str]],
        consumers: Sequence[dict[str, str]],
        checks: Sequence[dict[str, str]],
    ) -> Iterator[tuple[str, Sequence[dict[str, str]], np.ndarray[Any, Any]]]:
        """Each metric with its label sets and a column of values for each."""
        yield "pgque.queue.depth", queues, self._gauge(len(queues), 200)
        yield "pgque.queue.oldest_message_age_seconds", queues, self._gauge(len(queues), 30)
        yield "pgque.message.retry_waiting", queues, self._gauge(len(queues), 3)
        yield "pgque.queue.rotation_period_seconds", queues, np.full((self._polls, len(queues)), 7200.0)
        yield "pgque.message.sent_total", queues, self._counter(len(queues), 900)
        states = self._states(len(checks))
        yield (
            "pgque.queue.health_state",
            [{**check, "state": state} for check in checks for state in STATES],
            np.stack([states == n for n in range(len(STATES))], axis=2).reshape(self._polls, -1) * 1.0,
        )
        yield "pgque.queue.health_status", checks, np.minimum(states, 2) * 1.0
        yield "pgque.consumer.lag_seconds", consumers, self._gauge(len(consumers), 25)
        yield "pgque.consumer.pending_events", consumers, self._gauge(len(consumers), 100)
        yield "pgque.message.acked_total", consumers, self._counter(len(consumers), 900)
        yield "pgque.message.nacked_total", consumers, self._counter(len(consumers), 2)
        yield "pgque.message.dead_lettered_total", consumers, self._counter(len(consumers), 0.3)
        yield "pgque.processing_latency_seconds", consumers, self._histograms(len(consumers))

    def _gauge(self, columns: int, around: float) -> np.ndarray[Any, Any]:
        noise = self._chance.gamma(2.0, around / 2, (self._polls, columns))
        return np.round(noise * self._load[:, None], 3)

    def _counter(self, columns: int, rate: float) -> np.ndarray[Any, Any]:
        grown = self._chance.poisson(rate * self._load[:, None], (self._polls, columns))
        return self._anew(np.cumsum(grown, axis=0)) * 1.0

    def _anew(self, total: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """Counted since the exporter began, which it did twice."""
        half = self._polls // 2
        total[half:] -= total[half - 1]
        return total

    def _states(self, columns: int) -> np.ndarray[Any, Any]:
        """0 to 3, as in STATES; bad for a while now and then."""
        states = np.zeros((self._polls, columns), dtype=int)
        for column in range(columns):
            for begin in np.flatnonzero(self._chance.random(self._polls) < 0.001):
                states[begin : begin + self._chance.integers(2, 60), column] = self._chance.integers(1, 4)
        return states

    def _histograms(self, columns: int) -> np.ndarray[Any, Any]:
        """By histogram: count, sum, and a count for each bucket."""
        share = self._chance.dirichlet(np.ones(len(BOUNDS) + 1), columns)
        grown = self._chance.poisson(
            900 * share[None] * self._load[:, None, None], (self._polls, columns, len(BOUNDS) + 1)
        )
        counts = self._anew(np.cumsum(grown, axis=0))
        total = counts.sum(axis=2, keepdims=True)
        return np.concatenate([total, np.round(total * 0.2, 3), counts], axis=2).reshape(self._polls, -1)

    def _metric(self, name: str, labels: Sequence[dict[str, str]], values: np.ndarray[Any, Any]) -> str:
        metric: Metric = self._metrics[name]
        about = json.dumps({"name": name, "description": metric.help, "unit": metric.unit})
        points = []
        for one in labels:
            known = {CONVENTIONS[label]: value for label, value in one.items() if CONVENTIONS.get(label)}
            attributes = ",".join(_attribute(*pair) for pair in {**one, **known}.items())
            points.append(f'{{{self._fields(metric)},"attributes":[{attributes}]}}')
        self.series += len(labels)
        if metric.type is MetricType.GAUGE:
            self._values.append(values)
            return f'{about[:-1]},"gauge":{{"dataPoints":[{",".join(points)}]}}}}'
        began = np.repeat(self._began[:, None], len(labels), axis=1)
        each = values.reshape(self._polls, len(labels), -1)
        self._values.append(np.concatenate([began[:, :, None], each], axis=2).reshape(self._polls, -1))
        kind = "histogram" if metric.type is MetricType.HISTOGRAM else "sum"
        after = ',"isMonotonic":true' if kind == "sum" else ""
        return (
            f'{about[:-1]},"{kind}":{{"dataPoints":[{",".join(points)}],"aggregationTemporality":2{after}}}}}'
        )

    def _fields(self, metric: Metric) -> str:
        time = f'"timeUnixNano":"{_TIME}"'
        if metric.type is MetricType.GAUGE:
            return f'{time},"asDouble":%r'
        start = f'"startTimeUnixNano":"%d000000000",{time}'
        if metric.type is MetricType.COUNTER:
            return f'{start},"asDouble":%r'
        counts = ",".join(['"%d"'] * (len(BOUNDS) + 1))
        bounds = ",".join(map(repr, BOUNDS))
        return f'{start},"count":"%d","sum":%r,"bucketCounts":[{counts}],"explicitBounds":[{bounds}]'


def _attribute(name: str, value: str) -> str:
    return f'{{"key":{json.dumps(name)},"value":{{"stringValue":{json.dumps(value)}}}}}'
