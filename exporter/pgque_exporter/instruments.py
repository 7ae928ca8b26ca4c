"""What the SDK's instruments hold, as families of series."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

from opentelemetry.sdk import metrics as sdk
from opentelemetry.sdk.metrics.export import (
    AggregationTemporality,
    DataPointT,
    HistogramDataPoint,
    InMemoryMetricReader,
    MetricsData,
    NumberDataPoint,
    ResourceMetrics,
)
from opentelemetry.sdk.metrics.export import (
    Metric as SdkMetric,
)
from opentelemetry.util.types import Attributes

from pgque_exporter.catalogue import Catalogue, Metric
from pgque_exporter.otlp.layout import Temporality
from pgque_exporter.snapshot import Family, HistogramFamily, HistogramSeries, Labels, Series


def readers(temporality: Temporality) -> tuple[InMemoryMetricReader, InMemoryMetricReader]:
    """Readers for the page, which is always cumulative, and for what is pushed; they may be the same."""
    page = InMemoryMetricReader()
    if temporality == "cumulative":
        return page, page
    kinds = (sdk.Counter, sdk.ObservableCounter, sdk.Histogram)
    return page, InMemoryMetricReader(dict.fromkeys(kinds, AggregationTemporality.DELTA))


def merged(parts: Iterable[MetricsData | None]) -> MetricsData | None:
    """The points of several readers as those of one, each metric once; None if there are none.

    Side by side they would get lost: the SDK's encoder keeps the last of those with the same resource.
    """
    metrics: dict[str, SdkMetric] = {}
    points: dict[str, list[DataPointT]] = {}
    frame: ResourceMetrics | None = None
    for part in parts:
        for resource in part.resource_metrics if part is not None else ():
            frame = frame or resource
            for scope in resource.scope_metrics:
                for metric in scope.metrics:
                    metrics.setdefault(metric.name, metric)
                    points.setdefault(metric.name, []).extend(metric.data.data_points)
    if frame is None:
        return None
    whole: list[SdkMetric] = []
    for name, metric in metrics.items():
        data: Any = metric.data  # of one kind, and so are its points
        whole.append(replace(metric, data=replace(data, data_points=points[name])))
    return MetricsData([replace(frame, scope_metrics=[replace(frame.scope_metrics[0], metrics=whole)])])


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
            families.append(Family.of(metric, numbers))
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
