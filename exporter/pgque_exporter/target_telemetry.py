"""The counters and the histogram about the polls of one target.

Each target has instruments of its own. The SDK keeps every label set that an instrument ever saw, and
merges those beyond 2000 into one: common ones would lose the counters of a large fleet, and never lose
those of a target that has gone.
"""

from __future__ import annotations

from collections.abc import Mapping

from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import MetricsData
from opentelemetry.sdk.resources import Resource

from pgque_exporter import __version__
from pgque_exporter.assembly import DROP_REASONS
from pgque_exporter.catalogue import Catalogue
from pgque_exporter.connection import FailureKind
from pgque_exporter.exposition import family_samples, histogram_samples
from pgque_exporter.instruments import families_of, readers
from pgque_exporter.otlp.layout import Temporality
from pgque_exporter.snapshot import Labels
from pgque_exporter.target import PollOutcome

POLLS = "pgque.exporter.polls_total"
SKIPPED = "pgque.exporter.polls_skipped_total"
DURATION = "pgque.exporter.poll_duration_seconds"
DROPPED = "pgque.exporter.series_dropped_total"
TARGET_METRICS = (POLLS, SKIPPED, DURATION, DROPPED)

DURATION_BOUNDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
_OK = "ok"


class TargetTelemetry:
    """Counts the polls of the target of this name; its own `labels` come with each point.

    The counters begin at 0, so that a first increase is seen as one. `samples` are the lines of a page, by
    the name of the metric.
    """

    def __init__(
        self,
        catalogue: Catalogue,
        resource: Mapping[str, str],
        name: str,
        labels: Labels,
        temporality: Temporality,
    ) -> None:
        self.labels = labels
        self.samples: dict[str, bytes] = {}
        self._catalogue = catalogue
        self._attributes = {"database": name, **dict(labels)}
        self._reader, self._push_reader = readers(temporality)
        both = {self._reader, self._push_reader}
        self._provider = MeterProvider(list(both), Resource(resource), shutdown_on_exit=False)
        meter = self._provider.get_meter("pgque_exporter", __version__)
        self._polls, self._skipped, self._dropped = (
            meter.create_counter(metric.name, metric.unit, metric.help)
            for metric in (catalogue[name] for name in (POLLS, SKIPPED, DROPPED))
        )
        metric = catalogue[DURATION]
        self._duration = meter.create_histogram(
            metric.name, metric.unit, metric.help, explicit_bucket_boundaries_advisory=DURATION_BOUNDS
        )
        for result in (_OK, *FailureKind):
            self._polls.add(0, {**self._attributes, "result": str(result)})
        self._skipped.add(0, self._attributes)
        for reason in DROP_REASONS:
            self._dropped.add(0, {**self._attributes, "reason": reason})
        self._read()

    def count(self, outcome: PollOutcome) -> None:
        """Count a finished poll."""
        result = str(outcome.failure) if outcome.failure is not None else _OK
        self._polls.add(1, {**self._attributes, "result": result})
        self._duration.record(outcome.duration, self._attributes)
        if outcome.skipped:
            self._skipped.add(outcome.skipped, self._attributes)
        if outcome.result is not None:
            for reason, rows in outcome.result.snapshot.dropped.items():
                if rows:
                    self._dropped.add(rows, {**self._attributes, "reason": reason})
        self._read()

    def _read(self) -> None:
        # They change with a poll and not between: a scrape of hundreds of targets finds all prepared.
        self._data = self._reader.get_metrics_data()
        families, histograms = families_of(self._catalogue, self._data)
        self.samples = {family.metric.name: family_samples(family) for family in families}
        self.samples |= {family.metric.name: histogram_samples(family) for family in histograms}

    def collect_for_push(self) -> MetricsData | None:
        """All of them, of the temporality to push."""
        return self._data if self._push_reader is self._reader else self._push_reader.get_metrics_data()

    def close(self) -> None:
        """Release what the SDK holds."""
        self._provider.shutdown()
