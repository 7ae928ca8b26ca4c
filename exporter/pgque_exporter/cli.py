"""The command line of the service."""

from __future__ import annotations

from collections.abc import Sequence

from pgque_exporter.command_line import Program, run


def _unexpected(error: Exception) -> str:
    return f"unexpected {type(error).__name__}"  # what it says may hold a secret


PROGRAM = Program(
    name="pgque-exporter",
    description="See, chart and page on every queue that lives in PostgreSQL.",
    package="pgque_exporter.commands",
    commands={
        "run": "poll databases, serve metrics and health, push to a collector",
        "check": "verify each database: connection, packs, grants, one poll",
        "status": "show the queues of each database as a table",
        "ticker": "drive the queue engine: ticks, retries, rotation",
        "sql": "install, print or remove the SQL packs",
        "demo": "start a database with a load and the service, to look around",
    },
    unexpected=_unexpected,
)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; the exit code, as `command_line.run` gives it."""
    return run(PROGRAM, argv)
