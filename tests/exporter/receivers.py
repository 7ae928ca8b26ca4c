"""Receivers of OTLP metrics that answer as a test wants: over gRPC and HTTP, well or badly."""

from __future__ import annotations

import gzip
import threading
from collections.abc import Callable, Iterator
from concurrent import futures
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import grpc
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

from tests.support.collector import Point, points

PROTOBUF = {"Content-Type": "application/x-protobuf"}
JSON = {"Content-Type": "application/json"}


@dataclass(frozen=True)
class Partial:
    """The request is taken, all but some of its points."""

    rejected: int
    message: str = ""

    def serialised(self) -> bytes:
        return self.response().SerializeToString()

    def response(self) -> ExportMetricsServiceResponse:
        partial = ExportMetricsPartialSuccess(rejected_data_points=self.rejected, error_message=self.message)
        return ExportMetricsServiceResponse(partial_success=partial)


@dataclass(frozen=True)
class Failure:
    """A gRPC status; `delay` goes with it as RetryInfo."""

    code: Any
    delay: float | None = None


@dataclass(frozen=True)
class Reply:
    """An HTTP answer."""

    status: int
    headers: dict[str, str]
    body: bytes = b""


@dataclass(frozen=True)
class Hang:
    """No answer for as long as the receiver lives."""


@dataclass(frozen=True)
class Trickle:
    """Over HTTP: a byte of the answer now and then, without an end; of its body, or already of its head."""

    head: bool = False


@dataclass(frozen=True)
class Flood:
    """Over HTTP: a body without an end, as fast as it is read."""


OK = Partial(0)
Answer = Partial | Failure | Reply | Hang | Trickle | Flood


def status_with_delay(delay: float, message: str = "") -> Status:
    """A detailed status that asks to be left alone for so many seconds."""
    detail = AnyMessage()
    whole = int(delay)
    detail.Pack(RetryInfo(retry_delay=Duration(seconds=whole, nanos=int((delay - whole) * 1e9))))
    return Status(message=message, details=[detail])


class Receiver:
    """What came in, and the answers to give: one after the other, the last one again and again."""

    def __init__(
        self, *answers: Answer, decide: Callable[[ExportMetricsServiceRequest], Answer] | None
    ) -> None:
        self.answers = list(answers) or [OK]
        self.decide = decide
        self.calls = 0
        self.taken: list[ExportMetricsServiceRequest] = []
        self.headers: list[dict[str, str]] = []
        self.url = ""
        self.ended = threading.Event()
        self._lock = threading.Lock()

    def take(self, request: ExportMetricsServiceRequest, headers: dict[str, str]) -> Answer:
        """Note a request; the answer to it."""
        with self._lock:
            self.calls += 1
            self.headers.append(headers)
            if self.decide is not None:
                answer = self.decide(request)
            else:
                answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
            if isinstance(answer, Partial):
                self.taken.append(request)
            return answer

    def points(self) -> list[Point]:
        """All points of the requests that were taken."""
        return points(list(self.taken))


@contextmanager
def grpc_receiver(
    *answers: Answer,
    decide: Callable[[ExportMetricsServiceRequest], Answer] | None = None,
) -> Iterator[Receiver]:
    """A gRPC server; its failures come with words that hold a secret."""
    receiver = Receiver(*answers, decide=decide)

    class Servicer(MetricsServiceServicer):
        def Export(self, request: Any, context: Any) -> Any:  # noqa: N802
            answer = receiver.take(request, dict(context.invocation_metadata()))
            if isinstance(answer, Hang):
                receiver.ended.wait()
            if isinstance(answer, Failure):
                if answer.delay is not None:
                    details = status_with_delay(answer.delay).SerializeToString()
                    context.set_trailing_metadata((("grpc-status-details-bin", details),))
                context.abort(answer.code, "no\nkey hunter2 " + "x" * 1000)
            assert isinstance(answer, Partial | Hang), answer
            return answer.response() if isinstance(answer, Partial) else ExportMetricsServiceResponse()

    executor = futures.ThreadPoolExecutor(8)
    server = grpc.server(executor)
    add_MetricsServiceServicer_to_server(Servicer(), server)
    receiver.url = f"http://127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    server.start()
    try:
        yield receiver
    finally:
        receiver.ended.set()
        server.stop(None).wait()
        executor.shutdown()


@contextmanager
def http_receiver(
    *answers: Answer,
    decide: Callable[[ExportMetricsServiceRequest], Answer] | None = None,
) -> Iterator[Receiver]:
    """An HTTP server."""
    receiver = Receiver(*answers, decide=decide)

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = gzip.decompress(self.rfile.read(int(self.headers["Content-Length"])))
            headers = {name.lower(): value for name, value in self.headers.items()} | {"path": self.path}
            answer = receiver.take(ExportMetricsServiceRequest.FromString(body), headers)
            if isinstance(answer, Hang):
                receiver.ended.wait()
            elif isinstance(answer, Trickle):
                self.trickle(head=answer.head)
            elif isinstance(answer, Flood):
                self.flood()
            elif isinstance(answer, Partial):
                self.reply(Reply(200, PROTOBUF, answer.serialised()))
            else:
                assert isinstance(answer, Reply), answer
                self.reply(answer)

        def reply(self, reply: Reply) -> None:
            self.send_response(reply.status)
            for name, value in reply.headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(reply.body)))
            self.end_headers()
            self.wfile.write(reply.body)

        def trickle(self, *, head: bool) -> None:
            start = (
                b"HTTP/1.1 200 OK\r\nX-Long: " if head else b"HTTP/1.1 200 OK\r\nContent-Length: 9999\r\n\r\n"
            )
            with suppress(OSError):  # the client has had enough
                self.wfile.write(start)
                while not receiver.ended.wait(0.02):
                    self.wfile.write(b"x")

        def flood(self) -> None:
            with suppress(OSError):
                self.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n")
                while not receiver.ended.is_set():
                    self.wfile.write(b" " * 65536)

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    receiver.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    try:
        yield receiver
    finally:
        receiver.ended.set()
        server.shutdown()
        thread.join()
        server.server_close()


RECEIVERS: dict[str, Callable[..., AbstractContextManager[Receiver]]] = {
    "grpc": grpc_receiver,
    "http": http_receiver,
}
