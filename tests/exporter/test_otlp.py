"""What is pushed, and what becomes of it, with real collectors' ends of gRPC and HTTP."""

from __future__ import annotations

import asyncio
import gzip
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent import futures
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import grpc
import pytest
from google.protobuf.any_pb2 import Any as AnyMessage
from google.protobuf.duration_pb2 import Duration
from google.rpc.error_details_pb2 import RetryInfo
from google.rpc.status_pb2 import Status
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsPartialSuccess,
    ExportMetricsServiceRequest,
    ExportMetricsServiceResponse,
)
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2_grpc import (
    MetricsServiceServicer,
    add_MetricsServiceServicer_to_server,
)

from pgque_exporter.config import OtlpConfig
from pgque_exporter.otlp import push
from pgque_exporter.otlp.encode import MAX_BYTES, MAX_POINTS, Batch, SnapshotEncoder, service_resource
from pgque_exporter.otlp.push import Ledger, Pusher
from pgque_exporter.redaction import Redactor
from pgque_exporter.snapshot import Family, HistogramFamily, HistogramSeries, Series, Snapshot
from tests.exporter.harness import CATALOGUE, DEPTH, SENT, ToyPack, config, labels, running, snapshot, target
from tests.support.database import Database, wait_until

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


# --- encoding ------------------------------------------------------------------------------------


def test_a_snapshot_as_a_request() -> None:
    series = (Series(labels(queue="q", consumer="c"), 2.5),)
    shot = Snapshot("shop", 1000.25, 0, (Family(DEPTH, series), Family(SENT, series)), (), 0, {})
    [batch] = SnapshotEncoder(service_resource("host:1"), "shop").encode(shot)
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
        [batch] = encoder.encode(snapshot(*values, metric=SENT, taken_at=at))
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
    [batch] = SnapshotEncoder({}, "shop").encode(histogram(1000, (2, 0, 1), 12.5))
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
        [batch] = encoder.encode(histogram(at, counts, **options))
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
        numbers = (Family(DEPTH, (Series(labels(queue="q"), taken_at),)),)
        shot = Snapshot("shop", taken_at, 0, numbers, (), 0, {}, (HistogramFamily(SIZES, series),))
        batches = encoder.encode(shot)
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
    many = encoder.encode(snapshot(*range(2 * MAX_POINTS + 1)))
    assert [batch.points for batch in many] == [MAX_POINTS, MAX_POINTS, 1]
    long = tuple(Series(labels(queue=f"{number}-{'x' * 1000}"), number) for number in range(3000))
    large = encoder.encode(Snapshot("shop", 1, 0, (Family(DEPTH, long), Family(SENT, long)), (), 0, {}))
    assert all(len(batch.payload) <= MAX_BYTES for batch in large)
    assert sum(batch.points for batch in large) == 6000
    found = [
        point.as_double
        for batch in large
        for metric in metrics_of(decode(batch)).values()
        for point in (*metric.gauge.data_points, *metric.sum.data_points)
    ]
    assert sorted(found) == sorted([*range(3000), *range(3000)])


def test_an_encoder_remembers_only_the_last_snapshot() -> None:
    encoder = SnapshotEncoder({}, "shop")
    for number in range(20):
        series = (Series(labels(queue=f"q{number}"), 1),)
        encoder.encode(Snapshot("shop", number, 0, (Family(DEPTH, series),), (), 0, {}))
    assert sum(len(known) for known in encoder._known) == 1
    assert encoder.encode(Snapshot("shop", 99, 0, (), (), 0, {})) == ()


# --- collectors ----------------------------------------------------------------------------------


class Collector:
    """Requests that came in, and answers to give, the last one again and again."""

    def __init__(self, *answers: Any) -> None:
        self.answers = list(answers)
        self.calls = 0
        self.requests: list[ExportMetricsServiceRequest] = []
        self.headers: list[dict[str, str]] = []
        self.url = ""

    def take(self, request: ExportMetricsServiceRequest, headers: dict[str, str]) -> Any:
        self.calls += 1
        self.headers.append(headers)
        answer = self.answers.pop(0) if len(self.answers) > 1 else (self.answers or [None])[0]
        if answer is None:
            self.requests.append(request)
        return answer

    @property
    def points(self) -> int:
        return sum(
            len(metric.gauge.data_points) + len(metric.sum.data_points) + len(metric.histogram.data_points)
            for request in self.requests
            for resource in request.resource_metrics
            for scope in resource.scope_metrics
            for metric in scope.metrics
        )


@contextmanager
def grpc_collector(*answers: Any) -> Iterator[Collector]:
    """Answers are None, an int of rejected points, or (code, RetryInfo seconds or None)."""
    collector = Collector(*answers)

    class Servicer(MetricsServiceServicer):
        def Export(self, request: Any, context: Any) -> Any:  # noqa: N802
            answer = collector.take(request, dict(context.invocation_metadata()))
            if isinstance(answer, tuple):
                code, delay = answer
                if delay is not None:
                    detail = AnyMessage()
                    detail.Pack(RetryInfo(retry_delay=Duration(nanos=int(delay * 1e9))))
                    status = Status(code=code.value[0], details=[detail])
                    context.set_trailing_metadata((("grpc-status-details-bin", status.SerializeToString()),))
                context.abort(code, "no\nkey hunter2 " + "x" * 1000)
            return ExportMetricsServiceResponse(
                partial_success=ExportMetricsPartialSuccess(rejected_data_points=answer or 0)
            )

    server = grpc.server(futures.ThreadPoolExecutor(2))
    add_MetricsServiceServicer_to_server(Servicer(), server)
    collector.url = f"http://127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    server.start()
    try:
        yield collector
    finally:
        server.stop(None).wait()


@contextmanager
def http_collector(*answers: Any) -> Iterator[Collector]:
    """Answers are None, or (status, headers, body)."""
    collector = Collector(*answers)

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = gzip.decompress(self.rfile.read(int(self.headers["Content-Length"])))
            headers = {name.lower(): value for name, value in self.headers.items()} | {"path": self.path}
            answer = collector.take(ExportMetricsServiceRequest.FromString(body), headers)
            status, given, content = answer or (200, {"Content-Type": "application/x-protobuf"}, b"")
            self.send_response(status)
            for name, value in given.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    collector.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    try:
        yield collector
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def deliver(
    endpoint: str, protocol: str, shots: Sequence[Snapshot], *, timeout: float = 5.0, flush: float = 8.0
) -> Ledger:
    """Push snapshots, close, and return the books."""

    async def run() -> Ledger:
        otlp = OtlpConfig(endpoint, protocol, {"x-key": "hunter2"}, timeout)  # type: ignore[arg-type]
        own = Batch(b"", 0)
        pusher = Pusher(otlp, {}, lambda: own, 3600, lambda *_: None, Redactor())
        pusher.start()
        for shot in shots:
            pusher.push(shot)
            await asyncio.sleep(0.05)
        await pusher.close(flush)
        return pusher.ledger

    ledger = asyncio.run(run())
    assert ledger.polled == sum(shot.points for shot in shots)
    assert ledger.on_the_way == 0
    return ledger


def test_grpc_delivers() -> None:
    with grpc_collector() as collector:
        ledger = deliver(collector.url, "grpc", [snapshot(1, 2, 3), snapshot(4, 5, taken_at=2000)])
        assert (ledger.exported, ledger.rejected, ledger.dropped) == (5, 0, 0)
        assert collector.points == 5
        assert collector.headers[0]["x-key"] == "hunter2"
        assert "gzip" in collector.headers[0].get("grpc-encoding", "gzip")


def test_http_delivers() -> None:
    with http_collector() as collector:
        ledger = deliver(collector.url, "http", [snapshot(1, 2, 3)])
        assert (ledger.exported, ledger.rejected, ledger.dropped) == (3, 0, 0)
        assert collector.points == 3
        assert collector.headers[0]["path"] == "/v1/metrics"
        assert collector.headers[0]["x-key"] == "hunter2"


PROTOBUF = {"Content-Type": "application/x-protobuf"}
PARTIAL = ExportMetricsServiceResponse(
    partial_success=ExportMetricsPartialSuccess(rejected_data_points=2)
).SerializeToString()

# Answers of the collector, and what becomes of three points: exported, rejected, dropped, calls.
HTTP_ANSWERS: dict[str, tuple[list[Any], tuple[int, int, int, int]]] = {
    "partial success": ([(200, PROTOBUF, PARTIAL)], (1, 2, 0, 1)),
    "partial success as json": (
        [(200, {"Content-Type": "application/json"}, b'{"partialSuccess": {"rejectedDataPoints": "1"}}')],
        (2, 1, 0, 1),
    ),
    "json": ([(200, {"Content-Type": "application/json"}, b"{}")], (3, 0, 0, 1)),
    "redirect": ([(302, {"Location": "http://127.0.0.1:1/"}, b"")], (0, 0, 3, 1)),
    "log-in page": ([(200, {"Content-Type": "text/html; charset=utf-8"}, b"<html>")], (0, 0, 3, 1)),
    "not protobuf": ([(200, PROTOBUF, b"\xff\xff\xff")], (0, 0, 3, 1)),
    "bad request": ([(400, {}, b"")], (0, 3, 0, 1)),
    "unauthorised": ([(401, {}, b"")], (0, 3, 0, 1)),
    "server error": ([(500, {}, b"")], (0, 3, 0, 1)),
    "busy, then well": ([(503, {}, b""), (429, {"Retry-After": "0"}, b""), None], (3, 0, 0, 3)),
    "come back far too late": ([(503, {"Retry-After": "3600"}, b"")], (0, 0, 3, 1)),
}


@pytest.mark.parametrize("case", HTTP_ANSWERS)
def test_what_http_answers_mean(case: str) -> None:
    answers, expected = HTTP_ANSWERS[case]
    with http_collector(*answers) as collector:
        ledger = deliver(collector.url, "http", [snapshot(1, 2, 3)])
        assert (ledger.exported, ledger.rejected, ledger.dropped, collector.calls) == expected


GRPC_ANSWERS: dict[str, tuple[list[Any], tuple[int, int, int, int]]] = {
    "partial success": ([2], (1, 2, 0, 1)),
    "more rejected than sent": ([99], (0, 3, 0, 1)),
    "invalid": ([(grpc.StatusCode.INVALID_ARGUMENT, None)], (0, 3, 0, 1)),
    "unauthenticated": ([(grpc.StatusCode.UNAUTHENTICATED, None)], (0, 3, 0, 1)),
    "unavailable, then well": ([(grpc.StatusCode.UNAVAILABLE, None), None], (3, 0, 0, 2)),
    "exhausted for good": ([(grpc.StatusCode.RESOURCE_EXHAUSTED, None)], (0, 3, 0, 1)),
    "exhausted for now": ([(grpc.StatusCode.RESOURCE_EXHAUSTED, 0.01), None], (3, 0, 0, 2)),
}


@pytest.mark.parametrize("case", GRPC_ANSWERS)
def test_what_grpc_answers_mean(case: str) -> None:
    answers, expected = GRPC_ANSWERS[case]
    with grpc_collector(*answers) as collector:
        ledger = deliver(collector.url, "grpc", [snapshot(1, 2, 3)])
        assert (ledger.exported, ledger.rejected, ledger.dropped, collector.calls) == expected


def test_trouble_is_one_line_with_the_endpoint_and_what_to_do(caplog: pytest.LogCaptureFixture) -> None:
    with grpc_collector((grpc.StatusCode.INVALID_ARGUMENT, None)) as collector:
        deliver(f"{collector.url}/secret-path", "grpc", [snapshot(1), snapshot(2)])
    [record] = [record for record in caplog.records if record.levelname == "WARNING"]
    line = record.getMessage()
    assert line.startswith(f"metrics not delivered to {collector.url}: INVALID_ARGUMENT: no key *** xxx")
    assert line.endswith("xxx...; check otlp.endpoint and otlp.headers, and see the collector's log")
    assert len(line) < 700


@pytest.mark.parametrize("protocol", ["grpc", "http"])
def test_a_dead_collector_costs_points_and_no_time_at_the_end(protocol: str) -> None:
    started = time.monotonic()
    shots = [snapshot(1, 2, taken_at=at) for at in range(5)]
    ledger = deliver("http://127.0.0.1:1", protocol, shots, timeout=60, flush=0.5)
    assert (ledger.exported, ledger.rejected, ledger.dropped) == (0, 0, 10)
    assert time.monotonic() - started < 10


def test_the_oldest_goes_when_the_queue_is_full(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(push, "MAX_QUEUED_BYTES", 2500)
    with grpc_collector((grpc.StatusCode.UNAVAILABLE, None)) as collector:
        shots = [snapshot(*range(5), taken_at=at) for at in range(20)]
        ledger = deliver(collector.url, "grpc", shots, timeout=60, flush=0.2)
        assert ledger.dropped == 100


def test_a_service_pushes_its_polls_and_itself(database: Database, toy: ToyPack) -> None:
    toy.add("pgque.queue.depth", 5, queue="q")
    toy.add("pgque.message.sent_total", 9, queue="q")
    with grpc_collector() as collector:
        otlp = OtlpConfig(collector.url, "grpc", {})
        with running(config(target(database.dsn()), otlp=otlp)) as service:
            wait_until(lambda: len(collector.requests) > 6, what="several pushes")
            assert service.get("/api/v1/status").json["otlp"]["exported"] > 0
            assert (service.sample('pgque_exporter_otlp_points_total{outcome="exported"}') or 0) > 0
        names = {name for request in collector.requests for name in metrics_of(request)}
        assert {
            "pgque.queue.depth",
            "pgque.message.sent_total",
            "pgque.up",
            "pgque.exporter.polls_total",
            "pgque.exporter.poll_duration_seconds",
        } <= names
        polls = [
            point.time_unix_nano
            for request in collector.requests
            for metric in [metrics_of(request).get("pgque.queue.depth")]
            if metric is not None
            for point in metric.gauge.data_points
        ]
        assert len(polls) == len(set(polls)), "no snapshot was pushed twice"


def test_a_target_that_is_down_pushes_up_and_no_series() -> None:
    with grpc_collector() as collector:
        otlp = OtlpConfig(collector.url, "grpc", {})
        with running(config(target("host=127.0.0.1 port=1 dbname=x"), otlp=otlp)):
            wait_until(
                lambda: any("pgque.up" in metrics_of(request) for request in collector.requests),
                what="pgque.up",
            )
        metrics = metrics_of(collector.requests[-1])
        assert [point.as_double for point in metrics["pgque.up"].gauge.data_points] == [0.0]
        assert "pgque.queue.depth" not in metrics
