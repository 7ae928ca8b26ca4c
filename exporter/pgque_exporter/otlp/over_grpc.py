"""OTLP over gRPC."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

import grpc
import grpc.aio
from google.rpc.status_pb2 import Status
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceResponse

from pgque_exporter.config import OtlpConfig
from pgque_exporter.otlp.status import read_status, retry_delay
from pgque_exporter.otlp.transport import Answer, Rejected, Retry

_METHOD = "/opentelemetry.proto.collector.metrics.v1.MetricsService/Export"
_DEFAULT_PORT = 4317
_RETRYABLE = frozenset(
    {
        grpc.StatusCode.CANCELLED,
        grpc.StatusCode.DEADLINE_EXCEEDED,
        grpc.StatusCode.ABORTED,
        grpc.StatusCode.OUT_OF_RANGE,
        grpc.StatusCode.UNAVAILABLE,
        grpc.StatusCode.DATA_LOSS,
    }
)
_OPTIONS = (
    # Left alone, a channel waits up to two minutes before it looks for a lost collector again, and
    # 20 s for one that doesn't answer. When to try is ours to decide.
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 5000),
    ("grpc.max_reconnect_backoff_ms", 500),
    # A new channel is to be a new connection.
    ("grpc.use_local_subchannel_pool", 1),
)


class GrpcTransport:
    """One channel to one collector; made inside of a running event loop."""

    def __init__(self, config: OtlpConfig) -> None:
        url = urlsplit(config.endpoint)
        host = f"[{url.hostname}]" if ":" in str(url.hostname) else url.hostname
        self._address = f"{host}:{url.port or _DEFAULT_PORT}"
        self._credentials: grpc.ChannelCredentials | None = None
        if url.scheme == "https":
            roots = config.ca_file.read_bytes() if config.ca_file is not None else None
            self._credentials = grpc.ssl_channel_credentials(root_certificates=roots)
        self._metadata = tuple((name.lower(), value) for name, value in config.headers.items())
        self._connect()

    def _connect(self) -> None:
        if self._credentials is None:
            self._channel = grpc.aio.insecure_channel(self._address, options=_OPTIONS)
        else:
            self._channel = grpc.aio.secure_channel(self._address, self._credentials, options=_OPTIONS)
        self._export = self._channel.unary_unary(
            _METHOD, response_deserializer=ExportMetricsServiceResponse.FromString
        )

    async def send(self, payload: bytes, seconds: float) -> Answer:
        """See Transport."""
        try:
            answer = await self._export(
                payload, timeout=seconds, metadata=self._metadata, compression=grpc.Compression.Gzip
            )
        except grpc.aio.AioRpcError as error:
            if error.code() is grpc.StatusCode.DEADLINE_EXCEEDED:
                # The other end may be gone without a word; on this connection it would stay gone.
                await self._channel.close(None)
                self._connect()
            raise _failure(error) from None
        partial = answer.partial_success
        return Answer(int(partial.rejected_data_points), str(partial.error_message))

    async def close(self) -> None:
        """See Transport."""
        await self._channel.close(None)


def _failure(error: Any) -> Retry | Rejected:
    code = error.code()
    message = f"{code.name}: {error.details()}"
    delay = retry_delay(_status(error))
    # A collector that is out of something says so for good, unless it names a time to come back.
    if code in _RETRYABLE or (code is grpc.StatusCode.RESOURCE_EXHAUSTED and delay is not None):
        return Retry(message, delay)
    return Rejected(message, content=code is grpc.StatusCode.INVALID_ARGUMENT)


def _status(error: Any) -> Status:
    for name, value in error.trailing_metadata() or ():
        if name == "grpc-status-details-bin":
            return read_status(value)
    return Status()
