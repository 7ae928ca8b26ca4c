"""The service's own metrics as OTLP export requests, serialised."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from opentelemetry.exporter.otlp.proto.common.metrics_encoder import encode_metrics
from opentelemetry.proto.metrics.v1 import metrics_pb2 as pb
from opentelemetry.sdk.metrics.export import MetricsData

from pgque_exporter import __version__
from pgque_exporter.catalogue import Catalogue
from pgque_exporter.otlp.layout import Batch, Layout, Temporality, attributes_of, resource_message
from pgque_exporter.snapshot import Family


def service_resource(instance: str) -> dict[str, str]:
    """Resource attributes of the service itself; `instance` tells it from others of its kind."""
    return {
        "service.name": "pgque-exporter",
        "service.version": __version__,
        "service.instance.id": instance,
    }


def encode_own(
    catalogue: Catalogue,
    resource: Mapping[str, str],
    gauges: Iterable[Family],
    time_ns: int,
    counted: MetricsData | None,
    temporality: Temporality,
) -> tuple[Batch, ...]:
    """Requests with the service's own metrics: gauges as of `time_ns`, and what the SDK counted.

    `counted` has to be of the same temporality.
    """
    layout = Layout(resource_message(resource), temporality)
    for family in gauges:
        for series in family.series:
            point = pb.NumberDataPoint(
                attributes=attributes_of(series.labels), time_unix_nano=time_ns, as_double=series.value
            )
            layout.add(family.metric, point.SerializeToString())
    for resource_metrics in encode_metrics(counted).resource_metrics if counted is not None else ():
        for scope in resource_metrics.scope_metrics:
            for metric in scope.metrics:
                for point in getattr(metric, str(metric.WhichOneof("data"))).data_points:
                    layout.add(catalogue[metric.name], point.SerializeToString())
    return layout.batches()
