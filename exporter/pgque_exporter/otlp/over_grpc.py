"""OTLP over gRPC."""

from __future__ import annotations

from urllib.parse import urlsplit

import grpc
import grpc.aio
from google.protobuf.message import DecodeError
from google.rpc.error_details_pb2 import RetryInfo
from google.rpc.status_pb2 import Status
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceResponse

from pgque_exporter.config import OtlpConfig
from pgque_exporter.otlp.transport import Rejected, Retry

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
    # Left alone, a channel waits up to two minutes before it looks for a lost collector again.
    ("grpc.initial_reconnect_backoff_ms", 500),
    ("grpc.max_reconnect_backoff_ms", 5000),
)


class GrpcTransport:
    """One channel to one collector; made inside of a running event loop."""

    def __init__(self, config: OtlpConfig) -> None:
        url = urlsplit(config.endpoint)
        host = f"[{url.hostname}]" if ":" in str(url.hostname) else url.hostname
        address = f"{host}:{url.port or _DEFAULT_PORT}"
        if url.scheme == "https":
            roots = config.ca_file.read_bytes() if config.ca_file is not None else None
            credentials = grpc.ssl_channel_credentials(root_certificates=roots)
            self._channel = grpc.aio.secure_channel(address, credentials, options=_OPTIONS)
        else:
            self._channel = grpc.aio.insecure_channel(address, options=_OPTIONS)
        self._metadata = tuple((name.lower(), value) for name, value in config.headers.items())
        self._export = self._channel.unary_unary(
            _METHOD, response_deserializer=ExportMetricsServiceResponse.FromString
        )

    async def send(self, payload: bytes, seconds: float) -> int:
        """See Transport."""
        try:
            answer = await self._export(
                payload, timeout=seconds, metadata=self._metadata, compression=grpc.Compression.Gzip
            )
        except grpc.aio.AioRpcError as error:
            code = error.code()
            message = f"{code.name}: {error.details()}"
            if code in _RETRYABLE:
                raise Retry(message, _retry_delay(error)) from None
            # A collector that is out of something says so for good, unless it names a time to come back.
            delay = _retry_delay(error) if code is grpc.StatusCode.RESOURCE_EXHAUSTED else None
            if delay is not None:
                raise Retry(message, delay) from None
            raise Rejected(message) from None
        return int(answer.partial_success.rejected_data_points)

    async def close(self) -> None:
        """See Transport."""
        await self._channel.close(None)


def _retry_delay(error: grpc.aio.AioRpcError) -> float | None:
    """Seconds that the collector asks for in the status details; None if it doesn't."""
    for name, value in error.trailing_metadata() or ():
        if name == "grpc-status-details-bin":
            try:
                details = Status.FromString(value).details
                for detail in details:
                    info = RetryInfo()
                    if detail.Unpack(info):
                        return float(info.retry_delay.seconds + info.retry_delay.nanos / 1e9)
            except DecodeError:
                return None
    return None
