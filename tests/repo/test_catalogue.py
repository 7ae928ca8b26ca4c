"""Every entry of the metric catalogue follows the rules of OpenTelemetry's and Prometheus's names."""

from __future__ import annotations

import re
from collections.abc import Callable

from pgque_exporter.catalogue import Metric, MetricType, Source, load

METRICS = list(load())
SUFFIXES_OF_A_HISTOGRAM = ("_bucket", "_count", "_sum")


def offenders(follows: Callable[[Metric], object]) -> list[str]:
    """Names of the metrics that don't follow a rule."""
    return [metric.name for metric in METRICS if not follows(metric)]


def test_names_are_valid_in_both_worlds() -> None:
    assert not offenders(lambda metric: re.fullmatch(r"pgque(\.[a-z][a-z0-9_]*)+", metric.name))
    assert not offenders(lambda metric: re.fullmatch(r"[a-z_][a-z0-9_]*", metric.prometheus_name))
    assert not offenders(lambda metric: not metric.name.endswith(SUFFIXES_OF_A_HISTOGRAM))


def test_total_is_the_mark_of_a_counter() -> None:
    assert not offenders(
        lambda metric: metric.name.endswith("_total") == (metric.type is MetricType.COUNTER)
    )


def test_seconds_in_the_name_are_seconds_in_the_unit() -> None:
    assert not offenders(
        lambda metric: metric.name.removesuffix("_total").endswith("_seconds") == (metric.unit == "s")
    )


def test_units_are_seconds_bytes_ratios_or_annotations() -> None:
    assert not offenders(lambda metric: re.fullmatch(r"s|By|1|\{[a-z]+\}(/s)?", metric.unit))


def test_labels_are_valid_and_stand_once() -> None:
    assert not offenders(lambda metric: len(set(metric.labels)) == len(metric.labels))
    assert not offenders(
        lambda metric: all(re.fullmatch(r"[a-z][a-z_]*", label) for label in metric.labels)
    )
    assert not offenders(lambda metric: "le" not in metric.labels)


def test_engine_and_database_come_with_the_target() -> None:
    assert not offenders(
        lambda metric: metric.source is Source.SERVICE or not {"engine", "database"} & set(metric.labels)
    )


def test_help_is_one_sentence() -> None:
    assert not offenders(lambda metric: re.fullmatch(r"[A-Z0-9][^\n|]*\.", metric.help))


def test_no_two_metrics_share_a_series_name() -> None:
    names: list[str] = []
    for metric in METRICS:
        suffixes = SUFFIXES_OF_A_HISTOGRAM if metric.type is MetricType.HISTOGRAM else ("",)
        names += [metric.prometheus_name + suffix for suffix in suffixes]
    assert len(names) == len(set(names))
