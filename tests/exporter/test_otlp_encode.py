"""Snapshots as requests: what a point says, when a counter starts, how a series ends."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest

from pgque_exporter.otlp.encode import SnapshotEncoder
from pgque_exporter.otlp.layout import MAX_BYTES, MAX_POINTS, Batch
from pgque_exporter.otlp.own import service_resource
from pgque_exporter.snapshot import Family, HistogramFamily, HistogramSeries, Series, Snapshot
from tests.exporter.harness import CATALOGUE, DEPTH, SENT, labels, snapshot
from tests.support.collector import Histogram, Point, points

SIZES = CATALOGUE["pgque.batch.size"]


def decode(batch: Batch) -> ExportMetricsServiceRequest:
    return ExportMetricsServiceRequest.FromString(batch.payload)


def text_attributes(attributes: Any) -> dict[str, str]:
    return {attribute.key: attribute.value.string_value for attribute in attributes}


def metrics_of(request: ExportMetricsServiceRequest) -> dict[str, Any]:
    return {
        metric.name: metric
        for resource in request.resource_metrics
        for scope in resource.scope_metrics
        for metric in scope.metrics
    }


def test_a_snapshot_as_a_request() -> None:
    series = (Series(labels(queue="q", consumer="c"), 2.5),)
    shot = Snapshot("shop", 1000.25, 0, (Family.of(DEPTH, series), Family.of(SENT, series)), (), 0, {})
    [batch] = SnapshotEncoder(service_resource("host:1"), "shop").encode(shot).data
    assert batch.points == 2
    [resource] = decode(batch).resource_metrics
    assert text_attributes(resource.resource.attributes) == {
        "service.name": "pgque-exporter",
        "service.version": service_resource("")["service.version"],
        "service.instance.id": "host:1",
        "db.system.name": "postgresql",
        "db.namespace": "shop",
    }
    depth, sent = resource.scope_metrics[0].metrics
    assert (depth.name, depth.unit, depth.description) == (DEPTH.name, DEPTH.unit, DEPTH.help)
    [point] = depth.gauge.data_points
    assert (point.time_unix_nano, point.start_time_unix_nano, point.as_double) == (1_000_250_000_000, 0, 2.5)
    assert text_attributes(point.attributes) == {
        "engine": "toy",
        "database": "shop",
        "queue": "q",
        "consumer": "c",
        "messaging.system": "toy",
        "messaging.destination.name": "q",
        "messaging.consumer.group.name": "c",
    }
    assert sent.sum.is_monotonic
    assert sent.sum.aggregation_temporality == 2  # cumulative


def test_a_counter_starts_when_first_seen_and_when_it_falls() -> None:
    encoder = SnapshotEncoder({}, "shop")

    def encode(at: float, *values: float) -> list[tuple[float, float]]:
        [batch] = encoder.encode(snapshot(*values, metric=SENT, taken_at=at)).data
        points = metrics_of(decode(batch))[SENT.name].sum.data_points
        return [(point.start_time_unix_nano / 1e9, point.as_double) for point in points]

    assert encode(10, 5) == [(10, 5)]
    assert encode(20, 7) == [(10, 7)]
    assert encode(30, 7, 1) == [(10, 7), (30, 1)]  # another series, laid out anew
    assert encode(40, 3, 2) == [(30, 3), (30, 2)]  # began anew at some time since 30
    assert encode(50, 4, 3) == [(30, 4), (30, 3)]
    assert encode(60, 5) == [(30, 5)]
    assert encode(70, 5, 9) == [(30, 5), (70, 9)]  # went and came back


def histogram(at: float, counts: tuple[int, ...], total: float = 1.0, **options: Any) -> Snapshot:
    bounds = options.get("bounds", tuple(float(number) for number in range(1, len(counts))))
    series = HistogramSeries(labels(queue=options.get("queue", "q")), bounds, counts, total)
    return Snapshot("shop", at, 0, (), (), 0, {}, (HistogramFamily(SIZES, (series,)),))


def test_a_histogram_has_explicit_bounds_and_is_cumulative() -> None:
    [batch] = SnapshotEncoder({}, "shop").encode(histogram(1000, (2, 0, 1), 12.5)).data
    assert batch.points == 1
    metric = metrics_of(decode(batch))[SIZES.name]
    assert metric.histogram.aggregation_temporality == 2  # cumulative
    [point] = metric.histogram.data_points
    assert (list(point.explicit_bounds), list(point.bucket_counts)) == ([1.0, 2.0], [2, 0, 1])
    assert (point.count, point.sum) == (3, 12.5)
    assert (point.start_time_unix_nano, point.time_unix_nano) == (1_000_000_000_000, 1_000_000_000_000)
    assert text_attributes(point.attributes)["messaging.destination.name"] == "q"


def test_a_histogram_starts_when_first_seen_and_when_a_bucket_falls() -> None:
    encoder = SnapshotEncoder({}, "shop")

    def encode(at: float, *counts: int, **options: Any) -> tuple[float, list[int]]:
        [batch] = encoder.encode(histogram(at, counts, **options)).data
        [point] = metrics_of(decode(batch))[SIZES.name].histogram.data_points
        return point.start_time_unix_nano / 1e9, list(point.bucket_counts)

    assert encode(10, 1, 0) == (10, [1, 0])
    assert encode(20, 1, 3) == (10, [1, 3])
    assert encode(30, 0, 9) == (20, [0, 9])  # more in all, yet it began anew
    assert encode(40, 0, 9, bounds=(7.0,)) == (40, [0, 9])  # other buckets make another series
    assert encode(50, 0, 9, queue="other") == (50, [0, 9])


def test_histograms_stand_beside_numbers_and_within_the_limits() -> None:
    encoder = SnapshotEncoder(service_resource("x"), "shop")
    bounds = tuple(float(number) for number in range(100))
    for taken_at in (1.0, 2.0):  # laid out, and set anew
        series = tuple(
            HistogramSeries(labels(queue=f"{number}-{'x' * 500}"), bounds, (2**50,) * 101, 1e300)
            for number in range(3000)
        )
        numbers = (Family.of(DEPTH, (Series(labels(queue="q"), taken_at),)),)
        shot = Snapshot("shop", taken_at, 0, numbers, (), 0, {}, (HistogramFamily(SIZES, series),))
        batches = encoder.encode(shot).data
        assert len(batches) > 1
        assert all(len(batch.payload) <= MAX_BYTES for batch in batches)
        assert sum(batch.points for batch in batches) == shot.points == 3001
        found = [
            point
            for batch in batches
            for metric in metrics_of(decode(batch)).values()
            for point in metric.histogram.data_points
        ]
        assert len(found) == 3000
        assert {point.count for point in found} == {101 * 2**50}
        assert {point.time_unix_nano for point in found} == {int(taken_at * 1e9)}


def test_requests_are_cut_to_size() -> None:
    encoder = SnapshotEncoder(service_resource("x"), "shop")
    many = encoder.encode(snapshot(*range(2 * MAX_POINTS + 1))).data
    assert [batch.points for batch in many] == [MAX_POINTS, MAX_POINTS, 1]
    long = tuple(Series(labels(queue=f"{number}-{'x' * 1000}"), number) for number in range(3000))
    families = (Family.of(DEPTH, long), Family.of(SENT, long))
    large = encoder.encode(Snapshot("shop", 1, 0, families, (), 0, {})).data
    assert all(len(batch.payload) <= MAX_BYTES for batch in large)
    assert sum(batch.points for batch in large) == 6000
    found = [
        point.as_double
        for batch in large
        for metric in metrics_of(decode(batch)).values()
        for point in (*metric.gauge.data_points, *metric.sum.data_points)
    ]
    assert sorted(found) == sorted([*range(3000), *range(3000)])


def test_texts_of_any_length_and_kind_arrive_as_they_are() -> None:
    texts = ["", 'ä\n"\\\x00', *("x" * length for length in (100, 127, 128, 1024, 16_383, 16_384, 70_000))]
    encoder = SnapshotEncoder({}, "shop")
    series = tuple(Series(labels(queue=text), number) for number, text in enumerate(texts))
    for taken_at in (1.0, 2.0):
        shot = Snapshot("shop", taken_at, 0, (Family.of(DEPTH, series), Family.of(SENT, series)), (), 0, {})
        found = of(encoder.encode(shot).data)
        assert [(point.name, attribute(point, "queue"), point.value) for point in found] == [
            (metric.name, text, number) for metric in (DEPTH, SENT) for number, text in enumerate(texts)
        ]
        assert {point.time for point in found} == {int(taken_at * 1e9)}


def test_an_encoder_remembers_only_the_last_snapshot() -> None:
    encoder = SnapshotEncoder({}, "shop")
    for number in range(20):
        series = (Series(labels(queue=f"q{number}"), 1),)
        encoder.encode(Snapshot("shop", number, 0, (Family.of(DEPTH, series),), (), 0, {}))
    assert sum(len(known) for known in encoder._known.values()) == 1
    assert encoder.encode(Snapshot("shop", 99, 0, (), (), 0, {})).data == ()


# --- the end of a series -------------------------------------------------------------------------


def of(batches: Iterable[Batch]) -> list[Point]:
    found = points([decode(batch) for batch in batches])
    assert len(found) == sum(batch.points for batch in batches)
    return found


def attribute(point: Point, name: str) -> str:
    return str(dict(point.attributes)[name])


def shop(taken_at: float, *queues: str, value: float = 5, **options: Any) -> Snapshot:
    """A gauge, a counter and a histogram of each queue."""
    numbers = tuple(Series(labels(queue=queue), value) for queue in queues)
    sizes = tuple(
        HistogramSeries(labels(queue=queue), (1.0,), (int(value), 2), value / 2) for queue in queues
    )
    families = (Family.of(DEPTH, numbers), Family.of(SENT, numbers))
    histograms = (HistogramFamily(SIZES, sizes),)
    return Snapshot("shop", taken_at, 0, families, (), 0, {}, histograms, **options)


def ends(batches: Iterable[Batch]) -> list[tuple[str, str, float]]:
    """Name, queue and time in seconds of marks, which carry no value."""
    found = of(batches)
    for point in found:
        assert point.flags == 1
        assert point.value in (None, Histogram(0, None, (), ())), point
    return [(point.name, attribute(point, "queue"), point.time / 1e9) for point in found]


def test_a_series_that_vanishes_ends_once() -> None:
    encoder = SnapshotEncoder({}, "shop")
    assert encoder.encode(shop(10, "a", "b")).ended == ()
    encoded = encoder.encode(shop(20, "b"))
    assert [attribute(point, "queue") for point in of(encoded.data)] == ["b"] * 3
    assert ends(encoded.ended) == [(metric.name, "a", 20) for metric in (DEPTH, SENT, SIZES)]
    assert encoder.encode(shop(30, "b")).ended == ()
    assert encoder.encode(shop(40, "a", "b")).ended == ()
    assert all(point.flags == 0 for point in of(encoder.encode(shop(50, "a", "b")).data))


def test_all_series_end_once_and_go_on_as_if_never_away() -> None:
    encoder = SnapshotEncoder({}, "shop")
    assert encoder.end(1) == ()
    encoder.encode(shop(10, "a", "b"))
    assert sorted(ends(encoder.end(15_000_000_000))) == sorted(
        (metric.name, queue, 15) for metric in (DEPTH, SENT, SIZES) for queue in "ab"
    )
    assert encoder.end(16_000_000_000) == ()
    encoded = encoder.encode(shop(20, "a", value=6))
    assert encoded.ended == ()  # b ended before
    assert [(point.start_time / 1e9, point.flags) for point in of(encoded.data)] == [(0, 0), (10, 0), (10, 0)]
    assert len(ends(encoder.end(25_000_000_000))) == 3


def test_marks_are_cut_to_size() -> None:
    encoder = SnapshotEncoder({}, "shop")
    encoder.encode(snapshot(*range(2 * MAX_POINTS + 1)))
    assert [batch.points for batch in encoder.end(1)] == [MAX_POINTS, MAX_POINTS, 1]


# --- another server, another clock ---------------------------------------------------------------


def starts(batches: Iterable[Batch]) -> set[tuple[str, float]]:
    return {(point.name, point.start_time / 1e9) for point in of(batches) if point.type != "gauge"}


def test_counters_begin_anew_when_the_server_is_replaced_however_high_they_are() -> None:
    encoder = SnapshotEncoder({}, "shop")

    def encode(at: float, origin: str | None) -> set[float]:
        return {start for _, start in starts(encoder.encode(shop(at, "a", value=at, origin=origin)).data)}

    assert encode(10, "one") == {10}
    assert encode(20, "one") == {10}
    assert encode(30, None) == {10}  # nobody knows: taken for the same
    assert encode(40, "one") == {10}
    assert encode(50, "other") == {50}
    assert encode(60, "other") == {50}


def test_no_counter_starts_after_its_points_when_the_clock_is_set_back() -> None:
    encoder = SnapshotEncoder({}, "shop")
    encoder.encode(shop(100, "a"))
    assert {start for _, start in starts(encoder.encode(shop(50, "a")).data)} == {50}
    assert {start for _, start in starts(encoder.encode(shop(60, "a")).data)} == {50}


# --- delta ---------------------------------------------------------------------------------------


def test_deltas_are_differences_between_snapshots() -> None:
    encoder = SnapshotEncoder({}, "shop", "delta")

    def encode(at: float, *values: float, origin: str = "one") -> list[tuple[float, float]]:
        shot = snapshot(*values, metric=SENT, taken_at=at, origin=origin)
        found = of(encoder.encode(shot).data)
        assert all(point.temporality == "delta" and point.monotonic for point in found)
        assert all(point.time == int(at * 1e9) for point in found)
        return [(point.start_time / 1e9, float(point.value)) for point in found]  # type: ignore[arg-type]

    assert encode(10, 1000) == []  # what was before is nobody's increase
    assert encode(20, 1007) == [(10, 7)]
    assert encode(30, 1007) == [(20, 0)]
    assert encode(40, 3) == [(30, 3)]  # fell: all of it is new
    assert encode(50, 4, 77) == [(40, 1)]  # another series, for the first time
    assert encode(60, 4, 80) == [(50, 0), (50, 3)]
    assert encode(70, 9, 99, origin="other") == []
    assert encode(80, 9, 100, origin="other") == [(70, 0), (70, 1)]


def test_histograms_and_gauges_beside_deltas() -> None:
    encoder = SnapshotEncoder({}, "shop", "delta")

    def encode(at: float, value: float) -> dict[str, Point]:
        return {point.name: point for point in of(encoder.encode(shop(at, "a", value=value)).data)}

    assert encode(10, 6).keys() == {DEPTH.name}
    second = encode(20, 10)
    assert second[DEPTH.name].value == 10
    assert second[SIZES.name].value == Histogram(4, 2, (1.0,), (4, 0))
    assert (second[SIZES.name].start_time, second[SIZES.name].temporality) == (10_000_000_000, "delta")
    fallen = encode(30, 1)
    assert (fallen[SENT.name].value, fallen[SIZES.name].value) == (1, Histogram(3, 0.5, (1.0,), (1, 2)))
    assert {name for name, *_ in ends(encoder.encode(shop(40)).ended)} == {DEPTH.name}
