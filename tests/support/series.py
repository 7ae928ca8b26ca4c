"""What may stand in a query: the series that the service exports, by their Prometheus names."""

from __future__ import annotations

from pgque_exporter.catalogue import MetricType, load


def exported() -> set[str]:
    """Names of all series that the service exports."""
    names: set[str] = set()
    for metric in load():
        histogram = metric.type is MetricType.HISTOGRAM
        suffixes = ("_bucket", "_sum", "_count") if histogram else ("",)
        names |= {metric.prometheus_name + suffix for suffix in suffixes}
    return names
