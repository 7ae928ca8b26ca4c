"""What the SDK's instruments hold, as families of series."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from opentelemetry.sdk.metrics.export import DataPointT, HistogramDataPoint, MetricsData, NumberDataPoint
from opentelemetry.util.types import Attributes

from pgque_exporter.catalogue import Catalogue, Metric
from pgque_exporter.snapshot import Family, HistogramFamily, HistogramSeries, Labels, Series


def families_of(
    catalogue: Catalogue, data: MetricsData | None
) -> tuple[tuple[Family, ...], tuple[HistogramFamily, ...]]:
    """Families of numbers, and of histograms."""
    families: list[Family] = []
    histograms: list[HistogramFamily] = []
    for name, points in _points(data):
        metric = catalogue[name]
        numbers: list[Series] = []
        buckets: list[HistogramSeries] = []
        for point in points:
            labels = _labels(metric, point.attributes)
            if isinstance(point, NumberDataPoint):
                numbers.append(Series(labels, point.value))
            elif isinstance(point, HistogramDataPoint):
                bounds, counts = tuple(point.explicit_bounds), tuple(point.bucket_counts)
                buckets.append(HistogramSeries(labels, bounds, counts, point.sum))
        if numbers:
            families.append(Family(metric, tuple(numbers)))
        if buckets:
            histograms.append(HistogramFamily(metric, tuple(buckets)))
    return tuple(families), tuple(histograms)


def _points(data: MetricsData | None) -> Iterator[tuple[str, Iterable[DataPointT]]]:
    for resource in data.resource_metrics if data is not None else ():
        for scope in resource.scope_metrics:
            for metric in scope.metrics:
                yield metric.name, metric.data.data_points


def _labels(metric: Metric, attributes: Attributes) -> Labels:
    given = attributes or {}
    own = tuple((name, str(given[name])) for name in metric.labels if name in given)
    # What is left are the labels that the configuration gives to a target.
    others = sorted(given.keys() - set(metric.labels))
    return own + tuple((name, str(given[name])) for name in others)
