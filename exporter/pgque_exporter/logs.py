"""Logging for the command line: one handler, to stderr, that lets no secret through."""

from __future__ import annotations

import logging
import sys

from pgque_exporter.redaction import RedactingFormatter, Redactor

# They would write a line per request.
_CHATTY = ("httpx", "httpcore", "asyncio")


def set_up(level: str, redact: Redactor) -> None:
    """Send log records of `level` and above to stderr."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(RedactingFormatter(redact))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    if level != "debug":
        for name in _CHATTY:
            logging.getLogger(name).setLevel(logging.WARNING)
        # It warns of each request that is no HTTP: whoever can reach the port could fill the log.
        logging.getLogger("uvicorn").setLevel(logging.ERROR)
