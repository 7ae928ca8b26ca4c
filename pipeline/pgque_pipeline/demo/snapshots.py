"""The generated queues as the exporter's polls would have found them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from pgque_exporter import catalogue
from pgque_exporter.config_limits import Limits
from pgque_exporter.pack import Pack
from pgque_exporter.snapshot import Family, HistogramFamily, HistogramSeries, Labels, Snapshot
from pgque_exporter.state_sets import HEALTH_STATE, HEALTH_STATUS, STATES, StateSets
from pgque_pipeline.demo.checks import CONSUMER_CHECKS, QUEUE_CHECKS, consumer_troubles, queue_troubles
from pgque_pipeline.demo.consumers import Consumer, Histogram
from pgque_pipeline.demo.queues import Queue

ENGINE, DATABASE = "pgque", "shop"

_OF_QUEUES: Mapping[str, Callable[[Queue, int], float]] = {
    "pgque.queue.depth": lambda queue, _: queue.depth,
    "pgque.queue.oldest_message_age_seconds": lambda queue, now: queue.oldest_age(now),
    "pgque.queue.throughput": lambda queue, _: queue.throughput,
    "pgque.queue.consumers": lambda queue, _: len(queue.consumers),
    "pgque.queue.unticked_events": lambda queue, _: queue.sent - queue.ticked,
    "pgque.queue.paused": lambda _queue, _: 0,
    "pgque.queue.rotation_age_seconds": lambda queue, _: queue.rotation_age,
    "pgque.queue.rotation_period_seconds": lambda queue, _: queue.plan.rotation,
    "pgque.ticker.last_tick_age_seconds": lambda queue, _: queue.tick_age,
    "pgque.message.sent_total": lambda queue, _: queue.sent,
    "pgque.message.replayed_total": lambda queue, _: queue.replayed,
    "pgque.message.purged_total": lambda queue, _: queue.purged,
    "pgque.message.retry_waiting": lambda queue, _: queue.retry_waiting,
    "pgque.message.dead_lettered": lambda queue, _: queue.dead_letters,
}
_OF_CONSUMERS: Mapping[str, Callable[[Queue, Consumer], float]] = {
    "pgque.message.acked_total": lambda _, consumer: consumer.acked,
    "pgque.message.nacked_total": lambda _, consumer: consumer.counted.nacked,
    "pgque.message.redelivered_total": lambda _, consumer: consumer.counted.redelivered,
    "pgque.message.dead_lettered_total": lambda _, consumer: consumer.counted.dead_lettered,
    "pgque.consumer.lag_seconds": lambda _, consumer: consumer.lag,
    "pgque.consumer.pending_events": lambda queue, consumer: queue.ticked - consumer.acked,
    "pgque.consumer.idle_seconds": lambda _, consumer: consumer.idle,
    "pgque.consumer.open_batch_events": lambda _, consumer: consumer.open_events,
    "pgque.consumer.open_batch_age_seconds": lambda _, consumer: consumer.open_age,
}
_HISTOGRAMS: Mapping[str, Callable[[Consumer], Histogram]] = {
    "pgque.processing_latency_seconds": lambda consumer: consumer.processing,
    "pgque.batch.size": lambda consumer: consumer.sizes,
}


class Observer:
    """Makes a snapshot of the queues, as often as asked."""

    def __init__(self, queues: Sequence[Queue]) -> None:
        self._catalogue = catalogue.load()
        engine = (("engine", ENGINE), ("database", DATABASE))
        self._queues: list[tuple[Labels, Queue]] = [
            ((*engine, ("queue", queue.plan.name)), queue) for queue in queues
        ]
        self._consumers: list[tuple[Labels, Queue, Consumer]] = [
            ((*labels, ("consumer", consumer.name)), queue, consumer)
            for labels, queue in self._queues
            for consumer in queue.consumers
        ]
        self._queue_labels = tuple(labels for labels, _ in self._queues)
        self._consumer_labels = tuple(labels for labels, _, _ in self._consumers)
        self._packs = [Pack("pgque", ENGINE, "", "", QUEUE_CHECKS, CONSUMER_CHECKS)]
        self._health = StateSets(self._catalogue, Limits())

    def snapshot(self, moment: int) -> Snapshot:
        """What a poll at `moment` finds, in Unix seconds."""
        health = self._judged()
        families: list[Family] = []
        for metric in self._catalogue:
            if of_queue := _OF_QUEUES.get(metric.name):
                values = tuple(float(of_queue(queue, moment)) for _, queue in self._queues)
                families.append(Family(metric, self._queue_labels, values))
            elif of_consumer := _OF_CONSUMERS.get(metric.name):
                values = tuple(float(of_consumer(queue, one)) for _, queue, one in self._consumers)
                families.append(Family(metric, self._consumer_labels, values))
        histograms = tuple(
            HistogramFamily(
                self._catalogue[name],
                tuple(_series(labels, histogram(one)) for labels, _, one in self._consumers),
            )
            for name, histogram in _HISTOGRAMS.items()
        )
        return Snapshot(
            database=DATABASE,
            taken_at=float(moment),
            duration=0.0,
            families=(*families, *health),
            checks=(),
            checks_ok=0,
            dropped={},
            histograms=histograms,
        )

    def _judged(self) -> tuple[Family, Family]:
        """Health as state sets and as statuses, completed as the service does it."""
        troubles = [(labels, queue_troubles(queue)) for labels, queue in self._queues]
        troubles += [(labels, consumer_troubles(queue, one)) for labels, queue, one in self._consumers]
        states = [
            ((*labels, ("check", check), ("state", state)), 1.0)
            for labels, found in troubles
            for check, state in found.items()
        ]
        statuses = [
            (labels, max((STATES[state] or 0.0 for state in found.values()), default=0.0))
            for labels, found in troubles
        ]
        health = self._health.complete(
            self._packs,
            Family.of(self._catalogue[HEALTH_STATE], states),
            Family.of(self._catalogue[HEALTH_STATUS], statuses),
            frozenset(),
        )
        return health.states, health.statuses


def _series(labels: Labels, histogram: Histogram) -> HistogramSeries:
    return HistogramSeries(labels, histogram.bounds, tuple(histogram.counts), histogram.total)
