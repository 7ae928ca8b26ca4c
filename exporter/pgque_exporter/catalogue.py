"""The metric catalogue: every metric's name, type, unit, labels and help text, read from one file.

Names follow the PgQue specification, section 5.2; the file `catalogue.toml` beside this module is
the only place that lists them.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from importlib.resources import files


class MetricType(StrEnum):
    """How a value behaves over time."""

    GAUGE = "gauge"
    COUNTER = "counter"  # cumulative and monotonic
    HISTOGRAM = "histogram"


class Source(StrEnum):
    """Who makes the metric."""

    CONTRACT = "contract"
    SCHEDULER = "scheduler"
    INSTRUMENTATION = "instrumentation"
    HISTORY = "history"  # about any database, which its rows name
    SERVICE = "service"


@dataclass(frozen=True)
class Metric:
    """One entry of the catalogue. `unit` is UCUM, `labels` beside engine and database."""

    name: str
    type: MetricType
    unit: str
    labels: tuple[str, ...]
    source: Source
    help: str

    @cached_property
    def prometheus_name(self) -> str:
        """The name on a Prometheus page; counters keep the one `_total` that they have."""
        return self.name.replace(".", "_")


@dataclass(frozen=True)
class Catalogue:
    """All metrics by OpenTelemetry name, in the order of the file."""

    metrics: Mapping[str, Metric]

    def __iter__(self) -> Iterator[Metric]:
        return iter(self.metrics.values())

    def get(self, name: str) -> Metric | None:
        """The metric of this OpenTelemetry name, or None if the catalogue has none."""
        return self.metrics.get(name)

    def __getitem__(self, name: str) -> Metric:
        return self.metrics[name]


def load() -> Catalogue:
    """Read the catalogue that ships with the package; a malformed entry raises at once."""
    data = tomllib.loads(files(__package__).joinpath("catalogue.toml").read_text("utf-8"))
    metrics: dict[str, Metric] = {}
    for entry in data["metric"]:
        metric = Metric(
            name=entry["name"],
            type=MetricType(entry["type"]),
            unit=entry["unit"],
            labels=tuple(entry["labels"]),
            source=Source(entry["source"]),
            help=entry["help"],
        )
        if metric.name in metrics:
            raise ValueError(f"{metric.name} stands twice in the catalogue")
        metrics[metric.name] = metric
    return Catalogue(metrics)
