"""The service's own metrics: what its targets are like now, and counters by the OpenTelemetry SDK.

The SDK counts the service's own doings only. Rows from databases never pass through it: its
instruments keep every label set they ever saw and drop new ones beyond a limit.
"""

from __future__ import annotations

import platform
from collections.abc import Iterator, Mapping, Sequence

from opentelemetry.metrics import Counter, _Gauge
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import (
    InMemoryMetricReader,
    MetricsData,
)
from opentelemetry.sdk.resources import Resource

from pgque_exporter import __version__
from pgque_exporter.catalogue import Catalogue, Metric, MetricType, Source
from pgque_exporter.instruments import families_of, merged
from pgque_exporter.snapshot import Family, HistogramFamily, Labels, Series
from pgque_exporter.state import TargetState
from pgque_exporter.target import PollOutcome
from pgque_exporter.target_telemetry import TARGET_METRICS, TargetTelemetry

OTLP_POINTS = "pgque.exporter.otlp_points_total"
RELOAD_SUCCESS = "pgque.exporter.config_reload_success"
RELOAD_TIME = "pgque.exporter.config_reload_timestamp_seconds"
LEADER = "pgque.exporter.leader"
OWN_GAUGES = (RELOAD_SUCCESS, RELOAD_TIME, LEADER)
OTLP_OUTCOMES = ("exported", "rejected", "dropped")


class Telemetry:
    """Counters and histograms about the polls and pushes of one running service."""

    def __init__(self, catalogue: Catalogue, resource: Mapping[str, str]) -> None:
        self._catalogue = catalogue
        self._resource = resource
        self._targets: dict[str, TargetTelemetry] = {}
        self._reader = InMemoryMetricReader()
        # No global provider and no exit hook: two services may run in one process.
        self._provider = MeterProvider([self._reader], Resource(resource), shutdown_on_exit=False)
        meter = self._provider.get_meter("pgque_exporter", __version__)
        self._counters: dict[str, Counter] = {}
        self._gauges: dict[str, _Gauge] = {}
        for metric in catalogue:
            if metric.source is not Source.SERVICE or metric.name in TARGET_METRICS:
                continue
            if metric.type is MetricType.COUNTER:
                self._counters[metric.name] = meter.create_counter(metric.name, metric.unit, metric.help)
            elif metric.name in OWN_GAUGES:
                self._gauges[metric.name] = meter.create_gauge(metric.name, metric.unit, metric.help)

    def expect(self, database: str, labels: Labels = ()) -> None:
        """Begin the counters of a target at 0; they go on if it had the same labels before."""
        known = self._targets.get(database)
        if known is not None and known.labels == labels:
            return
        self.forget(database)
        self._targets[database] = TargetTelemetry(self._catalogue, self._resource, database, labels)

    def forget(self, database: str) -> None:
        """Drop the counters of a target that is no longer polled."""
        if (gone := self._targets.pop(database, None)) is not None:
            gone.close()

    def expect_otlp(self) -> None:
        """Begin the counters of the OTLP sink at 0."""
        for outcome in OTLP_OUTCOMES:
            self._counters[OTLP_POINTS].add(0, {"outcome": outcome})

    def count_poll(self, outcome: PollOutcome) -> None:
        """Count a finished poll."""
        self._targets[outcome.state.name].count(outcome)

    def count_otlp(self, outcome: str, points: int) -> None:
        """Count points that the OTLP sink is done with."""
        self._counters[OTLP_POINTS].add(points, {"outcome": outcome})

    def set(self, gauge: str, value: float) -> None:
        """Set one of the gauges without labels; until then it is absent."""
        self._gauges[gauge].set(value)

    def collect(self) -> MetricsData | None:
        """All counters and histograms as they are now; None before anything was counted."""
        targets = (target.collect() for target in self._targets.values())
        return merged([self._reader.get_metrics_data(), *targets])

    def instruments(self) -> tuple[tuple[Family, ...], tuple[HistogramFamily, ...]]:
        """Those of the service itself, as families and as histograms."""
        return families_of(self._catalogue, self._reader.get_metrics_data())

    def target_samples(self) -> Iterator[tuple[Metric, Sequence[bytes]]]:
        """Those of the targets, as lines of a page."""
        for name in TARGET_METRICS:
            samples = [found for target in self._targets.values() if (found := target.samples.get(name))]
            if samples:
                yield self._catalogue[name], samples

    def close(self) -> None:
        """Release what the SDK holds."""
        self._provider.shutdown()
        for target in self._targets.values():
            target.close()


def target_families(catalogue: Catalogue, states: Sequence[TargetState], clock: float) -> tuple[Family, ...]:
    """The gauges that say how the targets are, at monotonic time `clock`, and what runs here."""
    build = (("version", __version__), ("python_version", platform.python_version()))
    found: dict[str, list[Series]] = {"pgque.exporter.build_info": [Series(build, 1.0)]}
    for state in states:
        labels = (("database", state.name), *state.labels)
        if state.polled:
            found.setdefault("pgque.up", []).append(Series(labels, float(state.up)))
        if state.last_success is not None:
            found.setdefault("pgque.last_success_timestamp_seconds", []).append(
                Series(labels, state.last_success)
            )
        if (age := state.age(clock)) is not None:
            found.setdefault("pgque.snapshot_age_seconds", []).append(Series(labels, round(age, 3)))
    return tuple(Family(metric, tuple(found[metric.name])) for metric in catalogue if metric.name in found)
