"""A real OTLP collector in front of a server that keeps all it gets, and points that can be compared.

    sender --OTLP--> rotel --OTLP--> OtlpSink

The collector parses what the sender wrote and writes it anew, so what arrives is what another
program understood. `OtlpSink` alone serves where the raw request is wanted.
"""

from __future__ import annotations

import gzip
import importlib.util
import socket
import ssl
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import grpc
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

from pgque_exporter.demo.cluster import free_port
from tests.support.processes import Process, wait_for

Value = str | bool | int | float | bytes | tuple["Value", ...] | tuple[tuple[str, "Value"], ...] | None
Attributes = tuple[tuple[str, Value], ...]  # sorted by name

METRICS_METHOD = "/opentelemetry.proto.collector.metrics.v1.MetricsService/Export"
LOGS_METHOD = "/opentelemetry.proto.collector.logs.v1.LogsService/Export"


@dataclass(frozen=True)
class Histogram:
    """Value of a histogram point."""

    count: int
    sum: float | None
    bounds: tuple[float, ...]
    counts: tuple[int, ...]


@dataclass(frozen=True)
class Point:
    """One data point with all that says what it means, comparable as a whole."""

    name: str
    type: str  # gauge, sum, histogram
    value: int | float | Histogram | None
    attributes: Attributes = ()
    time: int = 0  # Unix nanoseconds
    start_time: int = 0
    unit: str = ""
    description: str = ""
    monotonic: bool | None = None  # of a sum
    temporality: str | None = None  # of a sum or histogram: cumulative, delta
    flags: int = 0
    scope: tuple[str, str] = ("", "")  # name, version
    scope_attributes: Attributes = ()
    resource: Attributes = ()


def points(requests: Iterable[ExportMetricsServiceRequest]) -> list[Point]:
    """All points of the requests, in their order."""
    return [point for request in requests for point in _points(request)]


@dataclass
class OtlpSink:
    """What arrived at an OTLP server over gRPC and HTTP, in order of arrival."""

    grpc_address: str  # host:port
    http_address: str
    metrics: deque[ExportMetricsServiceRequest] = field(default_factory=deque)
    logs: deque[ExportLogsServiceRequest] = field(default_factory=deque)
    headers: deque[dict[str, str]] = field(default_factory=deque)  # of each request, names in lower case

    def points(self) -> list[Point]:
        """All points that have arrived."""
        return points(list(self.metrics))

    def wait_for_points(self, count: int, *, timeout: float = 20.0) -> list[Point]:
        """Wait until at least so many points are here, return all."""
        wait_for(lambda: len(self.points()) >= count, f"{count} points at the sink", timeout=timeout)
        return self.points()

    def wait_for(
        self, predicate: Callable[[list[Point]], object], what: str, *, timeout: float = 20.0
    ) -> list[Point]:
        """Wait until the points satisfy the predicate, return all."""
        wait_for(lambda: bool(predicate(self.points())), what, timeout=timeout)
        return self.points()

    def clear(self) -> None:
        """Forget what has arrived."""
        self.metrics.clear()
        self.logs.clear()


@dataclass(frozen=True)
class Tls:
    """Files of a server that takes nobody without a certificate of its authority."""

    certificate: Path
    key: Path
    authority: Path

    def context(self) -> ssl.SSLContext:
        """For the standard library's servers."""
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(self.authority))
        context.load_cert_chain(self.certificate, self.key)
        context.verify_mode = ssl.CERT_REQUIRED
        return context

    def credentials(self) -> grpc.ServerCredentials:
        """The same for gRPC."""
        pair = self.key.read_bytes(), self.certificate.read_bytes()
        return grpc.ssl_server_credentials([pair], self.authority.read_bytes(), require_client_auth=True)


@contextmanager
def run_sink(tls: Tls | None = None) -> Iterator[OtlpSink]:
    """An OTLP server of this process, on free ports, that accepts everything."""
    executor = ThreadPoolExecutor(max_workers=4)
    server = grpc.server(executor)
    http = _HttpServer(("127.0.0.1", 0), _HttpHandler)
    http.daemon_threads = True
    if tls is None:
        port = server.add_insecure_port("127.0.0.1:0")
    else:
        port = server.add_secure_port("127.0.0.1:0", tls.credentials())
        http.socket = tls.context().wrap_socket(http.socket, server_side=True, do_handshake_on_connect=False)
    sink = OtlpSink(grpc_address=f"127.0.0.1:{port}", http_address=f"127.0.0.1:{http.server_port}")
    server.add_generic_rpc_handlers((_GrpcHandler(sink),))
    http.sink = sink  # type: ignore[attr-defined]
    thread = threading.Thread(target=http.serve_forever, args=(0.05,), name="otlp-sink-http")
    server.start()
    thread.start()
    try:
        yield sink
    finally:
        http.shutdown()
        thread.join()
        http.server_close()
        server.stop(grace=None).wait()
        executor.shutdown()


@dataclass(frozen=True)
class Collector:
    """A running collector and the sink behind it."""

    grpc_address: str  # host:port
    http_url: str  # without /v1/metrics
    sink: OtlpSink
    process: Process


@contextmanager
def run_collector(folder: Path, *, options: Iterable[str] = ()) -> Iterator[Collector]:
    """Rotel, a collector that was written independently of the OpenTelemetry project."""

    def make(grpc_address: str, http_address: str, backend: str) -> Process:
        return Process(
            [
                collector_program(),
                "start",
                f"--otlp-grpc-endpoint={grpc_address}",
                f"--otlp-http-endpoint={http_address}",
                "--exporter=otlp",
                f"--otlp-exporter-endpoint=http://{backend}",
                f"--pid-file={folder / 'collector.pid'}",
                f"--log-file={folder / 'collector-own.log'}",
                *options,
            ],
            log=folder / "collector.log",
            cwd=folder,
        )

    with in_front_of_a_sink(make) as collector:
        yield collector


@contextmanager
def in_front_of_a_sink(make: Callable[[str, str, str], Process]) -> Iterator[Collector]:
    """A real collector that listens on free ports and hands everything on to a sink.

    `make` gets the addresses to listen on for gRPC and for HTTP, and that of the sink.
    """
    with run_sink() as sink:
        grpc_address, http_address = f"127.0.0.1:{free_port()}", f"127.0.0.1:{free_port()}"
        with make(grpc_address, http_address, sink.grpc_address) as process:
            for address in (grpc_address, http_address):
                _wait_for_port(process, address)
            yield Collector(grpc_address, f"http://{http_address}", sink, process)


def collector_program() -> Path:
    """The collector's program inside its Python package, found without importing that."""
    spec = importlib.util.find_spec("rotel")
    assert spec is not None
    assert spec.origin is not None, "the package rotel is not installed"
    return Path(spec.origin).with_name("rotel-agent")


def _wait_for_port(process: Process, address: str) -> None:
    host, port = address.split(":")

    def connects() -> bool:
        socket.create_connection((host, int(port)), timeout=5).close()
        return True

    process.wait_for(connects, f"the collector listens on {address}", ignoring=(OSError,))


class _GrpcHandler(grpc.GenericRpcHandler):  # type: ignore[misc]
    """Serves the two export methods."""

    def __init__(self, sink: OtlpSink) -> None:
        def export_metrics(request: ExportMetricsServiceRequest, call: Any) -> ExportMetricsServiceResponse:
            sink.headers.append(dict(call.invocation_metadata()))
            sink.metrics.append(request)
            return ExportMetricsServiceResponse()

        def export_logs(request: ExportLogsServiceRequest, _: Any) -> ExportLogsServiceResponse:
            sink.logs.append(request)
            return ExportLogsServiceResponse()

        self._methods = {
            METRICS_METHOD: grpc.unary_unary_rpc_method_handler(
                export_metrics,
                request_deserializer=ExportMetricsServiceRequest.FromString,
                response_serializer=ExportMetricsServiceResponse.SerializeToString,
            ),
            LOGS_METHOD: grpc.unary_unary_rpc_method_handler(
                export_logs,
                request_deserializer=ExportLogsServiceRequest.FromString,
                response_serializer=ExportLogsServiceResponse.SerializeToString,
            ),
        }

    def service(self, handler_call_details: Any) -> Any:
        """The handler of a method, or None for "unimplemented"."""
        return self._methods.get(handler_call_details.method)


class _HttpServer(ThreadingHTTPServer):
    """Keeps the tests' output clean of clients that it refuses."""

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing of a handshake that failed."""
        if not isinstance(sys.exception(), ssl.SSLError):
            super().handle_error(request, client_address)


class _HttpHandler(BaseHTTPRequestHandler):
    """Takes binary protobuf on the two standard paths."""

    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if self.headers.get("Content-Encoding") == "gzip":
            body = gzip.decompress(body)
        sink: OtlpSink = self.server.sink  # type: ignore[attr-defined]
        sink.headers.append({name.lower(): value for name, value in self.headers.items()})
        if self.path == "/v1/metrics":
            sink.metrics.append(ExportMetricsServiceRequest.FromString(body))
            status, answer = 200, ExportMetricsServiceResponse().SerializeToString()
        elif self.path == "/v1/logs":
            sink.logs.append(ExportLogsServiceRequest.FromString(body))
            status, answer = 200, ExportLogsServiceResponse().SerializeToString()
        else:
            status, answer = 404, b""
        self.send_response(status)
        self.send_header("Content-Type", "application/x-protobuf")
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 (the base class's name)
        """Keep the tests' output clean."""


def _points(request: ExportMetricsServiceRequest) -> Iterator[Point]:
    for resource_metrics in request.resource_metrics:
        resource = attributes(resource_metrics.resource.attributes)
        for scope_metrics in resource_metrics.scope_metrics:
            scope = scope_metrics.scope
            for metric in scope_metrics.metrics:
                yield from _points_of(
                    metric,
                    scope=(scope.name, scope.version),
                    scope_attributes=attributes(scope.attributes),
                    resource=resource,
                )


def _points_of(metric: metrics_pb2.Metric, **shared: Any) -> Iterator[Point]:
    kind = metric.WhichOneof("data")
    assert kind in ("gauge", "sum", "histogram"), f"{metric.name} is a {kind}"
    data: Any = getattr(metric, kind)
    temporality = None if kind == "gauge" else _TEMPORALITIES[data.aggregation_temporality]
    for point in data.data_points:
        yield Point(
            name=metric.name,
            type=kind,
            value=_histogram(point) if kind == "histogram" else _number(point),
            attributes=attributes(point.attributes),
            time=point.time_unix_nano,
            start_time=point.start_time_unix_nano,
            unit=metric.unit,
            description=metric.description,
            monotonic=data.is_monotonic if kind == "sum" else None,
            temporality=temporality,
            flags=point.flags,
            **shared,
        )


_TEMPORALITIES = {
    metrics_pb2.AGGREGATION_TEMPORALITY_UNSPECIFIED: "unspecified",
    metrics_pb2.AGGREGATION_TEMPORALITY_CUMULATIVE: "cumulative",
    metrics_pb2.AGGREGATION_TEMPORALITY_DELTA: "delta",
}


def _number(point: metrics_pb2.NumberDataPoint) -> int | float | None:
    kind = point.WhichOneof("value")
    return None if kind is None else getattr(point, kind)


def _histogram(point: metrics_pb2.HistogramDataPoint) -> Histogram:
    return Histogram(
        count=point.count,
        sum=point.sum if point.HasField("sum") else None,
        bounds=tuple(point.explicit_bounds),
        counts=tuple(point.bucket_counts),
    )


def attributes(pairs: Iterable[KeyValue]) -> Attributes:
    """Attributes as plain values, sorted by name."""
    return tuple(sorted((pair.key, _value(pair.value)) for pair in pairs))


def _value(value: AnyValue) -> Value:
    kind = value.WhichOneof("value")
    if kind is None:
        return None
    if kind == "array_value":
        return tuple(_value(item) for item in value.array_value.values)
    if kind == "kvlist_value":
        return attributes(value.kvlist_value.values)
    plain: str | bool | int | float | bytes = getattr(value, kind)
    return plain
