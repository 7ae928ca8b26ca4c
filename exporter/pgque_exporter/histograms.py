"""A pack's rows of a histogram, put together to one series per label set.

A histogram arrives in the parts that Prometheus knows: rows `<name>_bucket` with the bucket's upper
bound as the label `le`, the last one "+Inf", each counting what the smaller ones count as well; and the
rows `<name>_sum` and `<name>_count`. The bounds are the pack's choice.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from itertools import pairwise

from pgque_exporter.catalogue import Catalogue, Metric, MetricType, Source
from pgque_exporter.snapshot import HistogramFamily, HistogramSeries, Labels

BUCKET, SUM, COUNT = "bucket", "sum", "count"

_Part = float | str  # a bucket by its bound, or sum, or count


def histogram_part(catalogue: Catalogue, name: str) -> tuple[Metric, str] | None:
    """The histogram that rows of this name are parts of, and which part; None if they are of none."""
    stem, _, part = name.rpartition("_")
    metric = catalogue.get(stem)
    if metric is None or metric.type is not MetricType.HISTOGRAM or metric.source is Source.SERVICE:
        return None
    return (metric, part) if part in (BUCKET, SUM, COUNT) else None


class HistogramRows:
    """The rows of one histogram in one poll."""

    def __init__(self) -> None:
        self._found: dict[Labels, dict[_Part, float]] = {}

    def add(self, part: str, labels: Labels, value: float) -> bool:
        """Take a row, a bucket's bound the last of its labels; False if the same one was there before.

        Raises ValueError for a bound that is no number.
        """
        key: _Part = part
        if part == BUCKET:
            key, labels = float(labels[-1][1]), labels[:-1]
            if math.isnan(key):
                raise ValueError("a bucket without a bound")
        parts = self._found.setdefault(labels, {})
        if key in parts:
            return False
        parts[key] = value
        return True

    def series(self) -> Iterator[tuple[HistogramSeries | None, int]]:
        """Each label set and its number of rows; None in place of one whose rows don't fit together."""
        for labels, parts in self._found.items():
            yield _series(labels, parts), len(parts)


def histogram_families(
    catalogue: Catalogue, found: Mapping[str, HistogramRows]
) -> tuple[tuple[HistogramFamily, ...], int]:
    """All histograms found, by name, in the catalogue's order; and how many rows didn't fit together."""
    families: list[HistogramFamily] = []
    misfits = 0
    for metric in catalogue:
        if metric.name not in found:
            continue
        whole: list[HistogramSeries] = []
        for series, rows in found[metric.name].series():
            if series is None:
                misfits += rows
            else:
                whole.append(series)
        if whole:
            families.append(HistogramFamily(metric, tuple(whole)))
    return tuple(families), misfits


def _series(labels: Labels, parts: Mapping[_Part, float]) -> HistogramSeries | None:
    bounds = sorted(key for key in parts if isinstance(key, float))
    cumulative = [parts[bound] for bound in bounds]
    if SUM not in parts or not bounds or bounds[-1] != math.inf or cumulative[-1] != parts.get(COUNT):
        return None
    counts = [high - low for low, high in pairwise([0.0, *cumulative])]
    if not all(count >= 0 and count.is_integer() for count in counts):
        return None
    return HistogramSeries(labels, tuple(bounds[:-1]), tuple(map(int, counts)), parts[SUM])
