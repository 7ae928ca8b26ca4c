"""OTLP over HTTP with protobuf bodies."""

from __future__ import annotations

import asyncio
import gzip
import json
import ssl
from urllib.parse import urlsplit

import httpx
from google.protobuf.message import DecodeError
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceResponse

from pgque_exporter import __version__
from pgque_exporter.config import OtlpConfig
from pgque_exporter.otlp.transport import Rejected, Retry, Undelivered

_PATH = "/v1/metrics"
_RETRYABLE = frozenset({429, 502, 503, 504})


class HttpTransport:
    """One client to one collector. Redirects aren't followed: data goes where it was told to, or nowhere."""

    def __init__(self, config: OtlpConfig) -> None:
        path = urlsplit(config.endpoint).path
        self._url = config.endpoint if path.endswith(_PATH) else config.endpoint + _PATH
        verify = (
            ssl.create_default_context(cafile=str(config.ca_file)) if config.ca_file is not None else True
        )
        headers = {
            **config.headers,
            "Content-Type": "application/x-protobuf",
            "Content-Encoding": "gzip",
            "User-Agent": f"pgque-exporter/{__version__}",
        }
        self._client = httpx.AsyncClient(verify=verify, headers=headers, timeout=None, follow_redirects=False)  # noqa: S113 - the deadline of `send` covers all of it

    async def send(self, payload: bytes, seconds: float) -> int:
        """See Transport."""
        try:
            # One deadline over everything: time-outs of single reads never end a body that trickles.
            async with asyncio.timeout(seconds):
                body = await asyncio.to_thread(gzip.compress, payload, 1)
                response = await self._client.post(self._url, content=body)
        except TimeoutError:
            raise Retry("no answer in time") from None
        except httpx.HTTPError as error:
            raise Retry(f"{type(error).__name__}: {error}") from None
        return _rejected_points(response)

    async def close(self) -> None:
        """See Transport."""
        await self._client.aclose()


def _rejected_points(response: httpx.Response) -> int:
    status = response.status_code
    if status in _RETRYABLE:
        after = response.headers.get("Retry-After", "")
        raise Retry(f"HTTP {status}", float(after) if after.isdecimal() else None)
    if status >= 400:
        raise Rejected(f"HTTP {status}")
    kind = response.headers.get("Content-Type", "").partition(";")[0].strip().lower()
    if status != 200 or kind == "text/html":
        raise Undelivered(f"HTTP {status} {kind or 'without content type'} is no answer of an OTLP receiver")
    try:
        if kind == "application/json":
            answer = json.loads(response.content or b"{}")
            return int(answer.get("partialSuccess", {}).get("rejectedDataPoints", 0))
        if kind == "application/x-protobuf":
            parsed = ExportMetricsServiceResponse.FromString(response.content)
            return int(parsed.partial_success.rejected_data_points)
    except (ValueError, AttributeError, TypeError, DecodeError):
        raise Undelivered("the answer can't be read: is the endpoint an OTLP receiver?") from None
    return 0
