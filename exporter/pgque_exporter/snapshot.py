"""What one poll of one database found: immutable, complete, ready to be read by every sink."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from pgque_exporter.catalogue import Metric

# (name, value): engine, database and those of the target, then the metric's in the catalogue's order
Labels = tuple[tuple[str, str], ...]


class Series(NamedTuple):
    """One label set of one metric and its value at the snapshot's time."""

    labels: Labels
    value: float


@dataclass(frozen=True, slots=True)
class Family:
    """All series of one metric by columns: each label set has the value at the same place.

    The label sets are the same objects from poll to poll, which makes comparing ten thousand of them cheap.

    texts  the values as the database wrote them, where a page may show them so
    """

    metric: Metric
    labels: tuple[Labels, ...]
    values: tuple[float, ...]
    texts: tuple[str, ...] | None = field(default=None, compare=False)

    @classmethod
    def of(cls, metric: Metric, series: Iterable[tuple[Labels, float]]) -> Family:
        """A family from its series, one after the other."""
        columns = tuple(zip(*series, strict=True)) or ((), ())
        return cls(metric, *columns)

    @property
    def series(self) -> Iterator[Series]:
        """Its series, one after the other."""
        return map(Series, self.labels, self.values)


@dataclass(frozen=True, slots=True)
class HistogramSeries:
    """One label set of a histogram: counts per bucket (not cumulative), one more than upper bounds."""

    labels: Labels
    bounds: tuple[float, ...]
    counts: tuple[int, ...]
    total: float


@dataclass(frozen=True, slots=True)
class HistogramFamily:
    """All series of one histogram."""

    metric: Metric
    series: tuple[HistogramSeries, ...]


@dataclass(frozen=True, slots=True)
class HealthCheck:
    """A health check that isn't ok, in the words of the database."""

    engine: str
    queue: str
    check: str
    status: str  # warning, critical or unknown
    detail: str


@dataclass(frozen=True, slots=True)
class Snapshot:
    """One poll's result.

    taken_at    Unix time in seconds, at the database snapshot
    duration    seconds from the start of the query to this object
    families    in the catalogue's order
    checks      only those that aren't ok; `checks_ok` counts the others
    dropped     rows that are in neither `families` nor `histograms`, by reason
    histograms  in the catalogue's order
    origin      tells one server and database from another, whatever their names; None if unknown
    """

    database: str
    taken_at: float
    duration: float
    families: tuple[Family, ...]
    checks: tuple[HealthCheck, ...]
    checks_ok: int
    dropped: Mapping[str, int]
    histograms: tuple[HistogramFamily, ...] = ()
    origin: str | None = None

    @property
    def points(self) -> int:
        """Number of series in the snapshot, a histogram's label set counting as one."""
        numbers = sum(len(family.values) for family in self.families)
        return numbers + sum(len(family.series) for family in self.histograms)
