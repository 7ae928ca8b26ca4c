"""Lines of OTLP JSON as the OpenTelemetry Collector's file exporter writes them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

DELTA, CUMULATIVE = 1, 2
Json = dict[str, Any]

RESOURCE = {"service.name": "pgque-exporter", "service.version": "0.1.0", "db.system.name": "postgresql"}


def attributes(values: Mapping[str, str]) -> list[Json]:
    return [{"key": key, "value": {"stringValue": value}} for key, value in values.items()]


def point(labels: Mapping[str, str], ts: int, *, start: int | None = None, **rest: object) -> Json:
    """A data point; times in microseconds. `rest` are further fields, such as asDouble."""
    found: Json = {"attributes": attributes(labels), "timeUnixNano": str(ts * 1000)}
    if start is not None:
        found["startTimeUnixNano"] = str(start * 1000)
    return found | rest


def gauge(name: str, points: Sequence[Json], unit: str = "s") -> Json:
    return {"name": name, "description": "What it is.", "unit": unit, "gauge": {"dataPoints": points}}


def counter(name: str, points: Sequence[Json], temporality: int = CUMULATIVE) -> Json:
    body = {"dataPoints": points, "aggregationTemporality": temporality, "isMonotonic": True}
    return {"name": name, "unit": "{event}", "sum": body}


def histogram(name: str, points: Sequence[Json], temporality: int = CUMULATIVE, unit: str = "s") -> Json:
    return {
        "name": name,
        "unit": unit,
        "histogram": {"dataPoints": points, "aggregationTemporality": temporality},
    }


def line(metrics: Sequence[Json], resource: Mapping[str, str] = RESOURCE) -> str:
    """One ExportMetricsServiceRequest."""
    scope = {"scope": {"name": "pgque_exporter"}, "metrics": metrics}
    request = {"resource": {"attributes": attributes(resource)}, "scopeMetrics": [scope]}
    return json.dumps({"resourceMetrics": [request]}, separators=(",", ":"))
