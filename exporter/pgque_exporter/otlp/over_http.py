"""OTLP over HTTP with protobuf bodies."""

from __future__ import annotations

import asyncio
import ssl
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from urllib.parse import urlsplit

import httpx
from google.protobuf.json_format import Parse, ParseError
from google.protobuf.message import DecodeError
from isal import igzip
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceResponse

from pgque_exporter import __version__
from pgque_exporter.config import OtlpConfig
from pgque_exporter.otlp.status import read_status, retry_delay
from pgque_exporter.otlp.transport import Answer, DeliveryError, Rejected, Retry, Undelivered

_PATH = "/v1/metrics"
_RETRYABLE = frozenset({429, 502, 503, 504})
_CONTENT = frozenset({400, 413, 422})  # what a collector that finds the points wrong answers
_PROTOBUF, _JSON = "application/x-protobuf", "application/json"
_LONGEST_ANSWER = 256 * 1024  # bytes; a receiver has little to say


class HttpTransport:
    """One client to one collector. Redirects aren't followed: data goes where it was told to, or nowhere."""

    def __init__(self, config: OtlpConfig) -> None:
        url = urlsplit(config.endpoint)
        self._url = config.endpoint if url.path.endswith(_PATH) else config.endpoint + _PATH
        # Reading the system's certificates takes a while; without TLS, nobody needs them.
        verify: bool | ssl.SSLContext = url.scheme == "https"
        if config.ca_file is not None:
            verify = ssl.create_default_context(cafile=str(config.ca_file))
        if config.client is not None:
            verify = verify if isinstance(verify, ssl.SSLContext) else httpx.create_ssl_context()
            verify.load_cert_chain(*config.client)
        headers = {
            **config.headers,
            "Accept": f"{_PROTOBUF}, {_JSON}",
            "Accept-Encoding": "identity",
            "Content-Type": _PROTOBUF,
            "Content-Encoding": "gzip",
            "User-Agent": f"pgque-exporter/{__version__}",
        }
        self._client = httpx.AsyncClient(verify=verify, headers=headers, timeout=None, follow_redirects=False)  # noqa: S113 - the deadline of `send` covers all of it

    async def send(self, payload: bytes, seconds: float) -> Answer:
        """See Transport."""
        try:
            # One deadline over everything: time-outs of single reads never end a body that trickles.
            async with asyncio.timeout(seconds):
                body = await asyncio.to_thread(igzip.compress, payload, 1)
                async with self._client.stream("POST", self._url, content=body) as response:
                    content = await _read(response)
        except TimeoutError:
            raise Retry("no answer in time") from None
        except (httpx.HTTPError, ssl.SSLError) as error:  # the latter when our certificate isn't taken
            raise Retry(f"{type(error).__name__}: {error}") from None
        if 200 <= response.status_code < 300:
            return _answer(response, content)
        raise _failure(response, content)

    async def close(self) -> None:
        """See Transport."""
        await self._client.aclose()


async def _read(response: httpx.Response) -> bytes:
    """The body, or as much of it as is worth reading."""
    content = bytearray()
    async for chunk in response.aiter_bytes():
        content += chunk
        if len(content) > _LONGEST_ANSWER:
            break
    return bytes(content)


def _answer(response: httpx.Response, content: bytes) -> Answer:
    kind = _kind(response)
    if not kind and not content:
        return Answer()  # some receivers say no more than that all is well
    try:
        if kind == _PROTOBUF:
            answer = ExportMetricsServiceResponse.FromString(content)
        elif kind == _JSON:
            answer = Parse(content or b"{}", ExportMetricsServiceResponse(), ignore_unknown_fields=True)
        else:
            raise Undelivered(f"{_summary(response)} is no answer of an OTLP receiver")
    except (DecodeError, ParseError, UnicodeDecodeError, RecursionError):
        raise Undelivered("the answer can't be read: is the endpoint an OTLP receiver?") from None
    return Answer(answer.partial_success.rejected_data_points, answer.partial_success.error_message)


def _failure(response: httpx.Response, content: bytes) -> DeliveryError:
    code, kind = response.status_code, _kind(response)
    if code < 400:
        return Undelivered(f"{_summary(response)} is no answer of an OTLP receiver")
    status = read_status(content if kind in (_PROTOBUF, _JSON) else b"", json=kind == _JSON)
    message = f"HTTP {code}: {status.message}" if status.message else f"HTTP {code}"
    if code in _RETRYABLE:
        after = _retry_after(response.headers.get("Retry-After", "").strip())
        return Retry(message, after if after is not None else retry_delay(status))
    return Rejected(message, content=code in _CONTENT)


def _kind(response: httpx.Response) -> str:
    kind: str = response.headers.get("Content-Type", "")
    return kind.partition(";")[0].strip().lower()


def _summary(response: httpx.Response) -> str:
    return f"HTTP {response.status_code} {_kind(response) or 'without content type'}"


def _retry_after(text: str) -> float | None:
    """Seconds from now that a Retry-After header asks for, as a number or as a date; else None."""
    if text.isascii() and text.isdecimal():
        return float(text)
    try:
        when = parsedate_to_datetime(text)
    except ValueError:
        return None
    if when.tzinfo is None:  # "-0000", which says nothing about the zone, and means UTC here
        when = when.replace(tzinfo=UTC)
    return max(0.0, (when - datetime.now(UTC)).total_seconds())
