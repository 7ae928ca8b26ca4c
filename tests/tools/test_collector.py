"""The tests' own collector: what it hands on is what was sent, point by point."""

from __future__ import annotations

import gzip
from collections.abc import Callable, Iterator

import grpc
import httpx
import pytest
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import (
    ExportLogsServiceRequest,
    ExportLogsServiceResponse,
)
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
    ExportMetricsServiceResponse,
)
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.metrics.v1 import metrics_pb2

from tests.support.collector import (
    LOGS_METHOD,
    METRICS_METHOD,
    Collector,
    Histogram,
    OtlpSink,
    Point,
    points,
    run_collector,
    run_sink,
)

NOW = 1_700_000_000_123_456_789
START = NOW - 60_000_000_000

Send = Callable[[str, str, ExportMetricsServiceRequest], None]


@pytest.fixture(scope="module")
def shared_collector(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Collector]:
    with run_collector(tmp_path_factory.mktemp("collector")) as running:
        yield running


@pytest.fixture
def collector(shared_collector: Collector) -> Collector:
    shared_collector.sink.clear()
    return shared_collector


def send_grpc(grpc_address: str, _http_url: str, request: ExportMetricsServiceRequest) -> None:
    with grpc.insecure_channel(grpc_address) as channel:
        export = channel.unary_unary(
            METRICS_METHOD,
            request_serializer=ExportMetricsServiceRequest.SerializeToString,
            response_deserializer=ExportMetricsServiceResponse.FromString,
        )
        export(request, timeout=10)


def send_http(_grpc_address: str, http_url: str, request: ExportMetricsServiceRequest) -> None:
    headers = {"Content-Type": "application/x-protobuf"}
    body = request.SerializeToString()
    httpx.post(f"{http_url}/v1/metrics", content=body, headers=headers).raise_for_status()


def send_http_gzip(_grpc_address: str, http_url: str, request: ExportMetricsServiceRequest) -> None:
    headers = {"Content-Type": "application/x-protobuf", "Content-Encoding": "gzip"}
    body = gzip.compress(request.SerializeToString())
    httpx.post(f"{http_url}/v1/metrics", content=body, headers=headers).raise_for_status()


SENDERS = pytest.mark.parametrize("send", [send_grpc, send_http, send_http_gzip])


def text(key: str, value: str) -> KeyValue:
    return KeyValue(key=key, value=AnyValue(string_value=value))


def example() -> ExportMetricsServiceRequest:
    """One point of every kind that a sender of ours could make."""
    request = ExportMetricsServiceRequest()
    resource = request.resource_metrics.add()
    resource.resource.attributes.append(text("service.name", "test"))
    scope = resource.scope_metrics.add()
    scope.scope.name, scope.scope.version = "pgque", "1"

    gauge = scope.metrics.add(name="depth", unit="{event}", description="How deep.")
    gauge.gauge.data_points.add(
        attributes=[text("queue", 'ä "b"\n')], time_unix_nano=NOW, start_time_unix_nano=0, as_double=0.1
    )
    stale = gauge.gauge.data_points.add(attributes=[text("queue", "gone")], time_unix_nano=NOW)
    stale.flags = metrics_pb2.DATA_POINT_FLAGS_NO_RECORDED_VALUE_MASK

    counter = scope.metrics.add(name="sent_total", unit="{event}")
    counter.sum.is_monotonic = True
    counter.sum.aggregation_temporality = metrics_pb2.AGGREGATION_TEMPORALITY_CUMULATIVE
    counter.sum.data_points.add(
        attributes=[KeyValue(key="n", value=AnyValue(int_value=7)), text("queue", "q")],
        time_unix_nano=NOW,
        start_time_unix_nano=START,
        as_int=2**60,
    )

    histogram = scope.metrics.add(name="latency", unit="s")
    histogram.histogram.aggregation_temporality = metrics_pb2.AGGREGATION_TEMPORALITY_CUMULATIVE
    histogram.histogram.data_points.add(
        time_unix_nano=NOW,
        start_time_unix_nano=START,
        count=3,
        sum=1.5,
        explicit_bounds=[0.1, 1.0],
        bucket_counts=[1, 1, 1],
    )
    return request


def many(count: int) -> ExportMetricsServiceRequest:
    request = ExportMetricsServiceRequest()
    metric = request.resource_metrics.add().scope_metrics.add().metrics.add(name="depth")
    for number in range(count):
        metric.gauge.data_points.add(
            attributes=[text("queue", f"queue {number}")], time_unix_nano=NOW + number, as_int=number
        )
    return request


def test_points_read_a_request_completely() -> None:
    shared = {
        "time": NOW,
        "scope": ("pgque", "1"),
        "resource": (("service.name", "test"),),
    }
    gauge = {"name": "depth", "type": "gauge", "unit": "{event}", "description": "How deep."}
    assert points([example()]) == [
        Point(value=0.1, attributes=(("queue", 'ä "b"\n'),), **gauge, **shared),  # type: ignore[arg-type]
        Point(value=None, attributes=(("queue", "gone"),), flags=1, **gauge, **shared),  # type: ignore[arg-type]
        Point(
            name="sent_total",
            type="sum",
            value=2**60,
            attributes=(("n", 7), ("queue", "q")),
            start_time=START,
            unit="{event}",
            monotonic=True,
            temporality="cumulative",
            **shared,  # type: ignore[arg-type]
        ),
        Point(
            name="latency",
            type="histogram",
            value=Histogram(count=3, sum=1.5, bounds=(0.1, 1.0), counts=(1, 1, 1)),
            start_time=START,
            unit="s",
            temporality="cumulative",
            **shared,  # type: ignore[arg-type]
        ),
    ]


@SENDERS
def test_the_sink_keeps_requests_as_they_were_sent(send: Send) -> None:
    with run_sink() as sink:
        send(sink.grpc_address, f"http://{sink.http_address}", example())
        assert list(sink.metrics) == [example()]


@SENDERS
def test_the_collector_hands_on_every_point_unchanged(collector: Collector, send: Send) -> None:
    send(collector.grpc_address, collector.http_url, example())
    assert collector.sink.wait_for_points(4) == points([example()])


@SENDERS
def test_the_collector_takes_a_full_batch(collector: Collector, send: Send) -> None:
    sent = many(5000)
    send(collector.grpc_address, collector.http_url, sent)
    assert collector.sink.wait_for_points(5000) == points([sent])


def test_logs_come_through(collector: Collector) -> None:
    request = ExportLogsServiceRequest()
    record = request.resource_logs.add().scope_logs.add().log_records.add(time_unix_nano=NOW)
    record.body.string_value = "a queue is stuck"
    with grpc.insecure_channel(collector.grpc_address) as channel:
        export = channel.unary_unary(
            LOGS_METHOD,
            request_serializer=ExportLogsServiceRequest.SerializeToString,
            response_deserializer=ExportLogsServiceResponse.FromString,
        )
        export(request, timeout=10)
    sink: OtlpSink = collector.sink
    collector.process.wait_for(lambda: sink.logs, "a log record arrives")
    assert list(sink.logs) == [request]
