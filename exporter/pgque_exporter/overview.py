"""A snapshot arranged by queue and consumer, for people and for the JSON API."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pgque_exporter.catalogue import Source
from pgque_exporter.health import by_urgency, worst
from pgque_exporter.snapshot import HealthCheck, Snapshot
from pgque_exporter.state_sets import HEALTH_STATE, HEALTH_STATUS


@dataclass(frozen=True, slots=True)
class ConsumerView:
    """One consumer of a queue: its metrics by OpenTelemetry name."""

    name: str
    metrics: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class QueueView:
    """One queue: its metrics by OpenTelemetry name, its consumers, the checks that aren't ok.

    The worst check comes first.
    """

    engine: str
    name: str
    status: str
    metrics: Mapping[str, float]
    consumers: tuple[ConsumerView, ...]
    checks: tuple[HealthCheck, ...]


_Key = tuple[str, str]


def queues(snapshot: Snapshot) -> tuple[QueueView, ...]:
    """Every queue of the snapshot, by engine and name."""
    own: dict[_Key, dict[str, float]] = {}
    consumers: dict[_Key, dict[str, dict[str, float]]] = {}
    for family in snapshot.families:
        # Health is told of more than queues: what has nothing else to tell isn't one.
        # And history is of any database.
        if family.metric.name in (HEALTH_STATE, HEALTH_STATUS) or family.metric.source is Source.HISTORY:
            continue
        for series in family.series:
            labels = dict(series.labels)
            queue = labels.get("queue")
            if queue is None:
                continue
            key = (labels["engine"], queue)
            metrics = own.setdefault(key, {})
            if (consumer := labels.get("consumer")) is not None:
                metrics = consumers.setdefault(key, {}).setdefault(consumer, {})
            metrics[family.metric.name] = series.value
    checks: dict[_Key, list[HealthCheck]] = {}
    for check in by_urgency(snapshot.checks):
        checks.setdefault((check.engine, check.queue), []).append(check)
    return tuple(
        QueueView(
            engine=engine,
            name=name,
            status=worst([check.status for check in checks.get((engine, name), [])]),
            metrics=own[engine, name],
            consumers=tuple(
                ConsumerView(consumer, metrics)
                for consumer, metrics in sorted(consumers.get((engine, name), {}).items())
            ),
            checks=tuple(checks.get((engine, name), [])),
        )
        for engine, name in sorted(own)
    )
