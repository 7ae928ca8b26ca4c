"""Random histories of one database's queue and consumer, as lines of OTLP JSON.

What goes wrong in them: polls that fail for minutes or hours, lines that come twice, late or with another
value, restarts of the exporter and of the database, counters that fall, a change of temporality.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from tests.pipeline import otlp_lines as otlp

SECOND = 1_000_000
HOUR = 3600 * SECOND
BOUNDS = [0.125, 0.5, 2.0, 8.0]
STATES = ("ok", "unknown", "warning", "critical")
COUNTERS = ("sent", "acked", "nacked", "dead_lettered")


@dataclass
class _Counter:
    """What the database has counted, and since when the exporter has known it."""

    value: float = 0
    start: int = 0
    told: float = 0
    told_at: int = 0


@dataclass
class _Histogram:
    counts: list[int] = field(default_factory=lambda: [0] * (len(BOUNDS) + 1))
    sum: float = 0
    start: int = 0
    told: tuple[list[int], float] = field(default_factory=lambda: ([0] * (len(BOUNDS) + 1), 0.0))
    told_at: int = 0


def history(seed: int, begin: int, hours: int) -> list[str]:
    """Lines of a database named after the seed, from `begin` on, in microseconds."""
    return _History(random.Random(seed), f"db{seed}", begin).lines(hours)


class _History:
    def __init__(self, chance: random.Random, database: str, begin: int) -> None:
        self._chance = chance
        self._queue = {"engine": "pgque", "database": database, "queue": "orders"}
        self._queue |= {"messaging.system": "pgque", "messaging.destination.name": "orders"}
        self._consumer = {**self._queue, "consumer": "billing", "messaging.consumer.group.name": "billing"}
        self._resource = dict(otlp.RESOURCE)
        self._begin = begin
        self._counters = {name: _Counter(float(chance.randint(0, 1000)), begin) for name in COUNTERS}
        self._histogram = _Histogram(start=begin)
        self._temporality = chance.choice([otlp.CUMULATIVE, otlp.CUMULATIVE, otlp.DELTA])
        self._state = "ok"
        self._lag = 0.0

    def lines(self, hours: int) -> list[str]:
        chance = self._chance
        found: list[str] = []
        now = self._begin
        while now < self._begin + hours * HOUR:
            found.append(self._poll(now))
            if chance.random() < 0.05:
                found.append(found[-1])
            if chance.random() < 0.05:  # the same time again, with other values
                found.append(self._poll(now))
            now += self._pause()
            self._happen(now)
        late = [chance.randrange(len(found)) for _ in range(len(found) // 10)]
        for index in late:
            found.insert(chance.randrange(len(found)), found.pop(index))
        return found

    def _pause(self) -> int:
        chance = self._chance
        kind = chance.random()
        if kind < 0.7:
            return chance.randint(20, 290) * SECOND
        if kind < 0.98:
            return chance.randint(300, 3000) * SECOND
        return chance.choice([3 * HOUR, 9 * HOUR, 24 * HOUR, 25 * HOUR])

    def _happen(self, now: int) -> None:
        chance = self._chance
        event = chance.random()
        for counter in self._counters.values():
            counter.value += chance.choice([0, 0, 1, 7, chance.randint(0, 500)])
        for _ in range(chance.randint(0, 5)):
            bucket = chance.randrange(len(BOUNDS) + 1)
            self._histogram.counts[bucket] += 1
            self._histogram.sum += chance.randint(1, 64) / 16
        if event < 0.04:  # the database lost what it had counted
            for counter in self._counters.values():
                counter.start = chance.choice([counter.told_at, now])
                counter.value = float(chance.randint(0, 50))
            self._histogram.start = chance.choice([self._histogram.told_at, now])
            self._histogram.counts = [chance.randint(0, 2) for _ in self._histogram.counts]
            self._histogram.sum = chance.randint(0, 32) / 16
        elif event < 0.08:  # another exporter
            self._resource["service.instance.id"] = f"host:{chance.randint(1, 5)}"
            self._histogram.start = now
            for counter in self._counters.values():
                counter.start = now
        elif event < 0.1:
            self._temporality = otlp.DELTA if self._temporality == otlp.CUMULATIVE else otlp.CUMULATIVE
        if chance.random() < 0.3:
            self._state = chance.choice(STATES)
        self._lag = max(0.0, self._lag + chance.randint(-64, 80) / 4)

    def _poll(self, now: int) -> str:
        chance = self._chance
        metrics = [
            otlp.gauge("pgque.consumer.lag_seconds", [otlp.point(self._consumer, now, asDouble=self._lag)]),
            otlp.gauge("pgque.queue.rotation_period_seconds", [otlp.point(self._queue, now, asInt="7200")]),
            otlp.gauge(
                "pgque.queue.health_state",
                [
                    otlp.point(
                        {**self._queue, "check": "ticker_running", "state": state}, now, asInt=str(given)
                    )
                    for state in STATES
                    for given in [int(state == self._state)]
                ],
                "{state}",
            ),
            otlp.gauge(
                "pgque.queue.health_status",
                [otlp.point(self._queue, now, asDouble=float(max(STATES.index(self._state) - 1, 0)))],
            ),
        ]
        if chance.random() < 0.1:  # the series ends, for now
            metrics.append(otlp.gauge("pgque.queue.depth", [otlp.point(self._queue, now, flags=1)]))
        else:
            depth = otlp.point(self._queue, now, asDouble=chance.randint(0, 400) / 4)
            metrics.append(otlp.gauge("pgque.queue.depth", [depth]))
        for name, counter in self._counters.items():
            labels = self._queue if name == "sent" else self._consumer
            metrics.append(self._count(f"pgque.message.{name}_total", labels, counter, now))
        metrics.append(self._observe(now))
        return otlp.line(metrics, self._resource)

    def _count(self, name: str, labels: dict[str, str], counter: _Counter, now: int) -> otlp.Json:
        value, start = counter.value, counter.start
        if self._temporality == otlp.DELTA:
            value, start = max(0.0, value - counter.told), counter.told_at
        counter.told, counter.told_at = counter.value, now
        point = otlp.point(labels, now, start=start, asDouble=value)
        return otlp.counter(name, [point], self._temporality)

    def _observe(self, now: int) -> otlp.Json:
        seen = self._histogram
        counts, total, start = list(seen.counts), seen.sum, seen.start
        if self._temporality == otlp.DELTA:
            counts = [max(0, now - then) for now, then in zip(counts, seen.told[0], strict=True)]
            total, start = max(0.0, total - seen.told[1]), seen.told_at
        seen.told, seen.told_at = (list(seen.counts), seen.sum), now
        point = otlp.point(self._consumer, now, start=start, count=str(sum(counts)), sum=total)
        point |= {"bucketCounts": [str(count) for count in counts], "explicitBounds": BOUNDS}
        return otlp.histogram("pgque.processing_latency_seconds", [point], self._temporality)
