"""The service's own metrics: what its targets are like now, and counters by the OpenTelemetry SDK.

The SDK counts the service's own doings only. Rows from databases never pass through it: its
instruments keep every label set they ever saw and drop new ones beyond a limit.
"""

from __future__ import annotations

import platform
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from opentelemetry.metrics import Histogram, Observation, _Gauge
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import MetricsData
from opentelemetry.sdk.resources import Resource
from opentelemetry.util.types import Attributes

from pgque_exporter import __version__
from pgque_exporter.archive import Archive, Loss
from pgque_exporter.catalogue import Catalogue, Metric, MetricType
from pgque_exporter.instruments import families_of, merged, readers
from pgque_exporter.otlp.layout import Temporality
from pgque_exporter.otlp.ledger import Drop, Ledger
from pgque_exporter.snapshot import Family, HistogramFamily, Labels, Series
from pgque_exporter.state import TargetState
from pgque_exporter.target import PollOutcome
from pgque_exporter.target_telemetry import DURATION_BOUNDS, TARGET_METRICS, TargetTelemetry

REQUESTS = "pgque.exporter.otlp_request_duration_seconds"
POLLED_POINTS = "pgque.exporter.otlp_points_polled_total"
SENT_POINTS = "pgque.exporter.otlp_points_sent_total"
REJECTED_POINTS = "pgque.exporter.otlp_points_rejected_total"
DROPPED_POINTS = "pgque.exporter.otlp_points_dropped_total"
QUEUED_POINTS = "pgque.exporter.otlp_queue_points"
LOOP_LAG = "pgque.exporter.event_loop_lag_seconds"
ARCHIVE_POLLED = "pgque.exporter.archive_points_polled_total"
ARCHIVE_WRITTEN = "pgque.exporter.archive_points_written_total"
ARCHIVE_DROPPED = "pgque.exporter.archive_points_dropped_total"
ARCHIVE_SIZE = "pgque.exporter.archive_size_bytes"
ARCHIVE_DELETED = "pgque.exporter.archive_files_deleted_total"
RELOAD_SUCCESS = "pgque.exporter.config_reload_success"
RELOAD_TIME = "pgque.exporter.config_reload_timestamp_seconds"
LEADER = "pgque.exporter.leader"
WEB_RELOAD_SUCCESS = "pgque.exporter.web_config_reload_success"
OWN_GAUGES = (RELOAD_SUCCESS, RELOAD_TIME, WEB_RELOAD_SUCCESS, LEADER)

_LAG_BOUNDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0)


class Telemetry:
    """Counters and histograms about the polls and pushes of one running service.

    A page always shows them cumulative; `temporality` is that of those that are pushed.
    """

    def __init__(
        self, catalogue: Catalogue, resource: Mapping[str, str], temporality: Temporality = "cumulative"
    ) -> None:
        self._catalogue = catalogue
        self._resource = resource
        self._targets: dict[str, TargetTelemetry] = {}
        self._temporality: Temporality = temporality
        self._reader, self._push_reader = readers(temporality)
        both = {self._reader, self._push_reader}
        # No global provider and no exit hook: two services may run in one process.
        self._provider = MeterProvider(list(both), Resource(resource), shutdown_on_exit=False)
        meter = self._meter = self._provider.get_meter("pgque_exporter", __version__)
        self._requests = self._histogram(REQUESTS, DURATION_BOUNDS)
        self._loop_lag = self._histogram(LOOP_LAG, _LAG_BOUNDS)
        self._gauges: dict[str, _Gauge] = {}
        for name in OWN_GAUGES:
            metric = catalogue[name]
            self._gauges[name] = meter.create_gauge(metric.name, metric.unit, metric.help)

    def _histogram(self, name: str, bounds: Sequence[float]) -> Histogram:
        metric = self._catalogue[name]
        return self._meter.create_histogram(
            metric.name, metric.unit, metric.help, explicit_bucket_boundaries_advisory=bounds
        )

    def expect(self, database: str, labels: Labels = ()) -> None:
        """Begin the counters of a target at 0; they go on if it had the same labels before."""
        known = self._targets.get(database)
        if known is not None and known.labels == labels:
            return
        self.forget(database)
        self._targets[database] = TargetTelemetry(
            self._catalogue, self._resource, database, labels, self._temporality
        )

    def forget(self, database: str) -> None:
        """Drop the counters of a target that is no longer polled."""
        if (gone := self._targets.pop(database, None)) is not None:
            gone.close()

    def watch_archive(self, archive: Archive) -> None:
        """Show the books of the archive, and its size."""
        ledger, files, show = archive.ledger, archive.files, self._show
        show(ARCHIVE_POLLED, lambda: [(ledger.polled, None)])
        show(ARCHIVE_WRITTEN, lambda: [(ledger.written, None)])
        show(ARCHIVE_DROPPED, lambda: [(ledger.dropped[one], {"reason": one.value}) for one in Loss])
        show(ARCHIVE_SIZE, lambda: [(files.size, None)])
        show(ARCHIVE_DELETED, lambda: [(files.deleted, None)])

    def _show(self, name: str, read: Callable[[], Iterable[tuple[int, Attributes]]]) -> None:
        metric = self._catalogue[name]
        counter = metric.type is MetricType.COUNTER
        create = self._meter.create_observable_counter if counter else self._meter.create_observable_gauge
        create(name, [lambda _: (Observation(*one) for one in read())], metric.unit, metric.help)

    def watch_otlp(self, ledger: Ledger, queued: Callable[[], int]) -> None:
        """Show the books of the OTLP sink; `queued` counts the points that it has not settled yet."""
        show = self._show
        show(POLLED_POINTS, lambda: [(ledger.polled, None)])
        show(SENT_POINTS, lambda: [(ledger.sent, None)])
        show(REJECTED_POINTS, lambda: [(ledger.rejected, None)])
        show(DROPPED_POINTS, lambda: [(ledger.dropped[one], {"reason": one.value}) for one in Drop])
        show(QUEUED_POINTS, lambda: [(queued(), None)])

    def count_poll(self, outcome: PollOutcome) -> None:
        """Count a finished poll."""
        self._targets[outcome.state.name].count(outcome)

    def count_request(self, result: str, seconds: float) -> None:
        """Count a request to the collector and the time it took."""
        self._requests.record(seconds, {"result": result})

    def note_loop_lag(self, seconds: float) -> None:
        """Note by how much the event loop was late."""
        self._loop_lag.record(seconds)

    def set(self, gauge: str, value: float) -> None:
        """Set one of the gauges without labels; until then it is absent."""
        self._gauges[gauge].set(value)

    def collect_for_push(self) -> MetricsData | None:
        """All instruments as they are now, of the temporality to push; None before anything was counted."""
        targets = (target.collect_for_push() for target in self._targets.values())
        return merged([self._push_reader.get_metrics_data(), *targets])

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
    return tuple(Family.of(metric, found[metric.name]) for metric in catalogue if metric.name in found)
