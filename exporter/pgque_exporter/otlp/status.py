"""The detailed status that a collector may send with a failure, over gRPC and HTTP alike."""

from __future__ import annotations

from google.protobuf.json_format import Parse, ParseError
from google.protobuf.message import DecodeError
from google.rpc.error_details_pb2 import RetryInfo
from google.rpc.status_pb2 import Status


def read_status(content: bytes, *, json: bool = False) -> Status:
    """The status in these bytes; an empty one if they hold none."""
    try:
        if json:
            return Parse(content, Status(), ignore_unknown_fields=True)
        return Status.FromString(content)
    except (DecodeError, ParseError, UnicodeDecodeError, RecursionError):
        return Status()


def retry_delay(status: Status) -> float | None:
    """How many seconds the collector wants to be left alone; None if it doesn't say."""
    for detail in status.details:
        info = RetryInfo()
        try:
            if detail.Unpack(info):
                delay: float = info.retry_delay.seconds + info.retry_delay.nanos / 1e9
                return max(0.0, delay)
        except DecodeError:
            continue
    return None
