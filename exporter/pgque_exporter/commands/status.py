"""`pgque-exporter status`: the queues of each database on one screen, from the contract alone."""

from __future__ import annotations

import argparse
import asyncio
import io
import json
import shutil
import sys
import textwrap
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from pgque_exporter import __version__, catalogue
from pgque_exporter.commands.options import add_config_options, expand, load_config, redactor
from pgque_exporter.config import Config, TargetConfig, parse_duration
from pgque_exporter.connection import PollError
from pgque_exporter.contract import PollResult
from pgque_exporter.health import STATUSES, by_urgency, worst
from pgque_exporter.overview import ConsumerView, QueueView, queues
from pgque_exporter.redaction import Redactor
from pgque_exporter.snapshot import HealthCheck
from pgque_exporter.target import poll_once
from pgque_exporter.terminal import (
    Cell,
    Column,
    Paint,
    count,
    duration,
    printable,
    rate,
    supports_colour,
    table,
    width,
)

_DEFAULT_WATCH = 5.0  # seconds
_NARROWEST_TEXT = 30  # columns; in less than that nothing is wrapped


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Describe the command."""
    parser = commands.add_parser(
        "status",
        help="show the queues of each database as a table",
        description="Shows queues, consumers and whatever needs attention, as the database tells it at this "
        "moment. Exit code 0, or 1 when a check is critical or a database gives no answer.",
    )
    add_config_options(parser)
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="print one JSON document instead of tables")
    form.add_argument(
        "--watch",
        nargs="?",
        type=_interval,
        const=_DEFAULT_WATCH,
        metavar="INTERVAL",
        help="show it again every 5s, or as often as given, until Ctrl-C",
    )


def execute(arguments: argparse.Namespace) -> int:
    """Ask every database at once, print one after the other."""
    config = load_config(arguments)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # a name must not fail for the terminal's encoding
    if arguments.watch is not None:
        return asyncio.run(_watch(config, arguments.watch))
    statuses = asyncio.run(_ask_all(config, redactor(config)))
    if arguments.json:
        print(json.dumps(_as_json(statuses), indent=2))
    else:
        print("\n".join(_screen(statuses)))
    return _exit_code(statuses)


def _interval(text: str) -> float:
    try:
        return parse_duration(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error).replace("|", ": ")) from None


async def _watch(config: Config, interval: float) -> int:
    redact = redactor(config)
    paint = Paint(supports_colour(sys.stdout))
    try:
        while True:
            begun = time.monotonic()
            statuses = await _ask_all(config, redact)
            clock = time.strftime("%H:%M:%S")
            lines = [
                *_screen(statuses),
                "",
                paint(f"{clock}, again every {duration(interval)}", "quiet"),
            ]
            _redraw(lines)
            await asyncio.sleep(max(0.0, begun + interval - time.monotonic()))
    except asyncio.CancelledError:  # Ctrl-C is how one leaves a watch
        print()
        return 0


def _redraw(lines: Sequence[str]) -> None:
    if not sys.stdout.isatty():
        print("\n".join(lines), end="\n\n", flush=True)
        return
    height = shutil.get_terminal_size().lines
    if len(lines) > height:
        lines = [*lines[: height - 1], f"... {len(lines) - height + 1} more lines: make the window taller"]
    # Home, each line over the old one, then clear what is left below: no flicker.
    sys.stdout.write("\x1b[H" + "\n".join(f"{line}\x1b[K" for line in lines) + "\x1b[J")
    sys.stdout.flush()


# --- asking --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class TargetStatus:
    """What one database told, or why it didn't."""

    name: str
    result: PollResult | None
    error: PollError | None

    @property
    def status(self) -> str:
        """The worst of its checks; critical when it gave no answer."""
        if self.result is None or self.result.failures:
            return "critical"
        return worst([check.status for check in self.result.snapshot.checks])


def _exit_code(statuses: Sequence[TargetStatus]) -> int:
    return 1 if worst([status.status for status in statuses]) == "critical" else 0


async def _ask_all(config: Config, redact: Redactor) -> list[TargetStatus]:
    targets, failures = await expand(config, redact)
    statuses = await asyncio.gather(*(ask(target, redact) for target in targets))
    return [*(TargetStatus(name, None, error) for name, error in failures.items()), *statuses]


async def ask(config: TargetConfig, redact: Redactor) -> TargetStatus:
    """Connect, poll, disconnect; never raises for what the database does."""
    try:
        return TargetStatus(config.name, await poll_once(config, catalogue.load(), redact), None)
    except PollError as error:
        return TargetStatus(config.name, None, error)


# --- the screen ----------------------------------------------------------------------------------

_Metrics = Mapping[str, float]


def _screen(statuses: Sequence[TargetStatus]) -> list[str]:
    paint = Paint(supports_colour(sys.stdout))
    columns = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    lines: list[str] = []
    for status in statuses:
        if lines:
            lines.append("")
        lines += screen(status, paint, columns)
    return lines


def screen(status: TargetStatus, paint: Paint, columns: int | None = None) -> list[str]:
    """The lines that describe one database; long texts are wrapped to fit into `columns`."""
    lines = [_header(status, paint)]
    result = status.result
    if result is None:
        return [*lines, "", *_attention(status, paint, columns)]
    views = queues(result.snapshot)
    engines = len({pack.engine for pack in result.packs}) > 1
    sections = (
        ("System", _system(result, views)),
        ("Queues", _queue_table(views, paint, engines=engines)),
        ("Consumers", _consumer_table(views, paint, engines=engines)),
    )
    for title, section in sections:
        lines += ["", paint(f"{title}:", "heading"), *section]
    return [*lines, "", *_attention(status, paint, columns)]


def _header(status: TargetStatus, paint: Paint) -> str:
    parts = [f"pgque-exporter {__version__}", paint(printable(status.name), "heading")]
    if status.result is None:
        return " | ".join(parts)
    parts.append(f"PostgreSQL {printable(status.result.server_version)}")
    for pack in status.result.packs:
        engine = f"{pack.engine} {pack.engine_version}".strip()
        parts.append(printable(f"{engine} (pack {pack.pack_version})"))
    return " | ".join(parts)


def _system(result: PollResult, views: Sequence[QueueView]) -> Iterator[str]:
    checks = result.snapshot.checks
    lines = [
        ("Ticker", _ticker(views, checks)),
        ("Rotation", _rotation(views, checks)),
        ("Retries", _retries(views)),
        ("Checks", _check_counts(result)),
    ]
    for title, text in lines:
        if text is not None:
            yield f"  {title:9} {text}"


def _ticker(views: Sequence[QueueView], checks: Sequence[HealthCheck]) -> str | None:
    ages = [
        age for view in views if (age := view.metrics.get("pgque.ticker.last_tick_age_seconds")) is not None
    ]
    late = _queues_of(checks, "ticker_running")
    if late:
        return f"not running for {late}"
    if not ages:
        return None
    paused = sum(view.metrics.get("pgque.queue.paused") == 1 for view in views)
    pauses = f", paused on {count(paused)} of {_queues(len(views))}" if paused else ""
    return f"running, last tick {duration(min(ages))} ago{pauses}"


def _rotation(views: Sequence[QueueView], checks: Sequence[HealthCheck]) -> str | None:
    ages = [
        age for view in views if (age := view.metrics.get("pgque.queue.rotation_age_seconds")) is not None
    ]
    if not ages:
        return None
    overdue = _queues_of(checks, "rotation_health")
    return f"overdue for {overdue}" if overdue else f"on time, last {duration(min(ages))} ago"


def _retries(views: Sequence[QueueView]) -> str | None:
    waiting = [n for view in views if (n := view.metrics.get("pgque.message.retry_waiting")) is not None]
    return f"{count(int(sum(waiting)))} waiting" if waiting else None


def _check_counts(result: PollResult) -> str:
    counts = Counter(check.status for check in result.snapshot.checks)
    counts["ok"] = result.snapshot.checks_ok
    return ", ".join(f"{count(counts[status])} {status}" for status in STATUSES if counts[status])


def _queues_of(checks: Sequence[HealthCheck], name: str, most: int = 3) -> str:
    """The queues for which this check isn't ok, the first few by name."""
    found = [printable(check.queue) for check in checks if check.check == name]
    shown = ", ".join(found[:most])
    return f"{shown} and {len(found) - most} more" if len(found) > most else shown


def _queues(number: int) -> str:
    return f"{count(number)} {'queue' if number == 1 else 'queues'}"


_ENGINE = Column("ENGINE")
_QUEUE_COLUMNS = (
    Column("NAME"),
    Column("DEPTH", right=True),
    Column("RATE", right=True),
    Column("ROTATION", right=True),
    Column("CONSUMERS", right=True),
    Column("DLQ", right=True),
    Column("HEALTH"),
)
_CONSUMER_COLUMNS = (
    Column("QUEUE"),
    Column("CONSUMER"),
    Column("LAG", right=True),
    Column("PENDING", right=True),
    Column("STATUS"),
)


def _queue_table(views: Sequence[QueueView], paint: Paint, *, engines: bool) -> list[str]:
    if not views:
        return ["  none"]
    rows = [
        [Cell(printable(view.engine)), *_queue_row(view)] if engines else _queue_row(view) for view in views
    ]
    return table([_ENGINE, *_QUEUE_COLUMNS] if engines else _QUEUE_COLUMNS, rows, paint)


def _queue_row(view: QueueView) -> list[Cell]:
    rotation = view.metrics.get("pgque.queue.rotation_age_seconds")
    return [
        Cell(printable(view.name)),
        Cell(_whole(view.metrics, "pgque.queue.depth")),
        Cell(rate(view.metrics.get("pgque.queue.throughput"))),
        Cell(duration(rotation) + (" ago" if rotation is not None else "")),
        Cell(_whole(view.metrics, "pgque.queue.consumers")),
        Cell(_whole(view.metrics, "pgque.message.dead_lettered")),
        Cell(view.status, view.status),
    ]


def _consumer_table(views: Sequence[QueueView], paint: Paint, *, engines: bool) -> list[str]:
    rows = [
        [Cell(printable(view.engine)), *_consumer_row(view, consumer)]
        if engines
        else _consumer_row(view, consumer)
        for view in views
        for consumer in view.consumers
    ]
    if not rows:
        return ["  none"]
    return table([_ENGINE, *_CONSUMER_COLUMNS] if engines else _CONSUMER_COLUMNS, rows, paint)


def _consumer_row(view: QueueView, consumer: ConsumerView) -> list[Cell]:
    status = _consumer_status(view, consumer)
    return [
        Cell(printable(view.name)),
        Cell(printable(consumer.name)),
        Cell(duration(consumer.metrics.get("pgque.consumer.lag_seconds"))),
        Cell(_whole(consumer.metrics, "pgque.consumer.pending_events")),
        Cell(status, status),
    ]


def _consumer_status(view: QueueView, consumer: ConsumerView) -> str:
    # A check about one consumer is named check:consumer; no check's own name has a colon.
    return worst([check.status for check in view.checks if check.check.partition(":")[2] == consumer.name])


def _whole(metrics: _Metrics, name: str) -> str:
    value = metrics.get(name)
    return count(None if value is None else int(value))


def _attention(status: TargetStatus, paint: Paint, columns: int | None) -> list[str]:
    rows: list[tuple[Cell, ...]] = []
    errors = [status.error] if status.error else []
    if status.result is not None:
        errors += [failure.error for failure in status.result.failures]
        rows += [(Cell("ignored", "unknown"), Cell(_ignored(schema))) for schema in status.result.ignored]
    rows += [(Cell("critical", "critical"), Cell(_error(error))) for error in errors]
    lines = [line for row in rows for line in _with_text(row, [8], paint, columns)]
    found = status.result.snapshot.checks if status.result is not None else ()
    checks = [_check_row(check) for check in by_urgency(found)]
    widths = [max(width(row[index].text) for row in checks) for index in range(3)] if checks else []
    lines += [line for row in checks for line in _with_text(row, widths, paint, columns)]
    if not lines:
        return [paint("All is well.", "ok")]
    return [paint("Needs attention:", "heading"), *lines]


def _check_row(check: HealthCheck) -> tuple[Cell, ...]:
    return (
        Cell(check.status, check.status),
        Cell(printable(check.queue)),
        Cell(printable(check.check)),
        Cell(printable(check.detail)),
    )


def _with_text(cells: Sequence[Cell], widths: Sequence[int], paint: Paint, columns: int | None) -> list[str]:
    """Cells of these widths and a text after them, which is wrapped under itself on a terminal."""
    *first, text = cells
    start = "  " + "".join(
        paint(cell.text, cell.style) + " " * (size - width(cell.text) + 2)
        for cell, size in zip(first, widths, strict=True)
    )
    indent = 2 + sum(widths) + 2 * len(widths)
    room = columns - indent if columns is not None else 0
    if room < _NARROWEST_TEXT:
        return [(start + text.text).rstrip()]
    parts = textwrap.wrap(text.text, room) or [""]
    return [(start + parts[0]).rstrip(), *(" " * indent + part for part in parts[1:])]


def _error(error: PollError) -> str:
    return printable(f"{error.message}{f' (to do: {error.hint})' if error.hint else ''}")


def _ignored(schema: str) -> str:
    return (
        f"schema {printable(schema)}: not owned by the database's owner or a superuser (name it in `packs`)"
    )


# --- JSON ----------------------------------------------------------------------------------------


def _as_json(statuses: Sequence[TargetStatus]) -> dict[str, Any]:
    return {
        "version": __version__,
        "status": worst([status.status for status in statuses]),
        "targets": [_target_json(status) for status in statuses],
    }


def _target_json(status: TargetStatus) -> dict[str, Any]:
    result = status.result
    errors = (
        [status.error] if status.error else [failure.error for failure in result.failures] if result else []
    )
    return {
        "name": status.name,
        "status": status.status,
        "server_version": result.server_version if result else None,
        "errors": [{"kind": error.kind, "message": error.message, "hint": error.hint} for error in errors],
        "packs": [asdict(pack) for pack in result.packs] if result else [],
        "ignored": list(result.ignored) if result else [],
        "checks_ok": result.snapshot.checks_ok if result else None,
        "checks": [asdict(check) for check in result.snapshot.checks] if result else [],
        "queues": [_queue_json(view) for view in queues(result.snapshot)] if result else [],
    }


def _queue_json(view: QueueView) -> dict[str, Any]:
    return {
        "engine": view.engine,
        "name": view.name,
        "status": view.status,
        "metrics": dict(view.metrics),
        "consumers": [
            {
                "name": consumer.name,
                "status": _consumer_status(view, consumer),
                "metrics": dict(consumer.metrics),
            }
            for consumer in view.consumers
        ],
    }
