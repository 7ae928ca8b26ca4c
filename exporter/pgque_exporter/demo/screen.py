"""What the demo shows: an introduction, the state of the four queues, a summary at the end."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pgque_exporter.demo.database import DemoDatabase
from pgque_exporter.demo.stories import STORIES
from pgque_exporter.overview import QueueView
from pgque_exporter.terminal import Cell, Column, Paint, count, duration, rate, shorten, table

_COLUMNS = (
    Column("QUEUE"),
    Column("HEALTH"),
    Column("PENDING", right=True),
    Column("LAG", right=True),
    Column("RATE", right=True),
    Column("RETRIES", right=True),
    Column("DEAD", right=True),
    Column("NEEDS ATTENTION"),
)
_WITHOUT_TERMINAL = 10.0  # seconds between two lines
_ON_TERMINAL = 1.0


def introduction(
    database: DemoDatabase,
    url: str,
    collector: str | None,
    psql: Path,
    duration_: float | None,
    paint: Paint,
) -> list[str]:
    """Where to look, what to look for, how to stop."""
    pages = [("Status", f"{url}/"), ("Metrics", f"{url}/metrics"), ("Health", f"{url}/healthz")]
    if collector is not None:
        pages.append(("OTLP", f"pushed to {collector}, named by OTEL_EXPORTER_OTLP_ENDPOINT"))
    status = f"{_own_program()} status --watch --dsn {database.dsn('exporter')}"
    ending = f"by itself after {duration(duration_)}, or by Ctrl-C" if duration_ is not None else "by Ctrl-C"
    blocks = (
        pages,
        [(story.queue, story.shows) for story in STORIES],
        [("Terminal", status), ("SQL", f"{_psql(psql)} {database.dsn('postgres')}")],
        [("Ends", ending)],
    )
    lines = [paint(f"PgQue Exporter demo, with PostgreSQL {database.server_version}", "heading"), ""]
    for block in blocks:
        lines += [f"  {paint(f'{name:10}', 'quiet')}{text}" for name, text in block] + [""]
    return lines


def _own_program() -> str:
    """How a person would call this program from here."""
    program = Path(sys.argv[0])
    if shutil.which(program.name) or not program.is_file():
        return "pgque-exporter"
    path = program.resolve()
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else str(path)


def _psql(embedded: Path) -> str:
    return "psql" if shutil.which("psql") else str(embedded)


@dataclass
class Progress:
    """The state of the queues, drawn in place on a terminal and as a line now and then elsewhere."""

    paint: Paint
    terminal: bool
    _drawn: int = 0

    @property
    def interval(self) -> float:
        """Seconds between two updates."""
        return _ON_TERMINAL if self.terminal else _WITHOUT_TERMINAL

    def show(self, seconds: float, views: Sequence[QueueView]) -> None:
        """Show the state after `seconds` of running."""
        if not self.terminal:
            print(_one_line(seconds, views), flush=True)
            return
        columns = shutil.get_terminal_size().columns
        lines = [f"  {duration(round(seconds))} running", "", *state_table(views, self.paint, columns)]
        back = f"\x1b[{self._drawn}A" if self._drawn else ""
        sys.stdout.write(back + "".join(f"{line}\x1b[K\n" for line in lines) + "\x1b[J")
        sys.stdout.flush()
        self._drawn = len(lines)


def _one_line(seconds: float, views: Sequence[QueueView]) -> str:
    return f"{duration(round(seconds)):>6}  " + " | ".join(_brief(view) for view in views)


def _brief(view: QueueView) -> str:
    facts = [f"{count(_metric(view, 'pgque.queue.depth'))} pending"]
    if (retries := _metric(view, "pgque.message.retry_waiting")) is not None and retries > 0:
        facts.append(f"{count(retries)} retrying")
    if (dead := _metric(view, "pgque.message.dead_lettered")) is not None and dead > 0:
        facts.append(f"{count(dead)} dead")
    return f"{view.name} {view.status} {' '.join(facts)}"


def state_table(views: Sequence[QueueView], paint: Paint, columns: int) -> list[str]:
    """One line per queue, none longer than the terminal is wide."""
    rows = [_row(view) for view in views]
    room = columns - 2 - sum(max(len(cell.text) for cell in line) + 2 for line in _transposed(rows)[:-1])
    rows = [[*row[:-1], Cell(shorten(row[-1].text, max(room, 1)))] for row in rows]
    return table(_COLUMNS, rows, paint)


def _transposed(rows: Sequence[Sequence[Cell]]) -> list[list[Cell]]:
    header = [Cell(column.title) for column in _COLUMNS]
    return [list(cells) for cells in zip(header, *rows, strict=True)]


def _row(view: QueueView) -> list[Cell]:
    return [
        Cell(view.name),
        Cell(view.status, view.status),
        Cell(count(_metric(view, "pgque.queue.depth"))),
        Cell(duration(view.metrics.get("pgque.queue.oldest_message_age_seconds"))),
        Cell(rate(view.metrics.get("pgque.queue.throughput"))),
        Cell(count(_metric(view, "pgque.message.retry_waiting"))),
        Cell(count(_metric(view, "pgque.message.dead_lettered"))),
        Cell(", ".join(check.check for check in view.checks)),
    ]


def _metric(view: QueueView, name: str) -> int | None:
    value = view.metrics.get(name)
    return None if value is None else int(value)


def summary(seconds: float, views: Sequence[QueueView]) -> list[str]:
    """What happened, once the demo ends by itself."""
    lines = [f"The demo ran for {duration(seconds)}:"]
    for view in views:
        sent = view.metrics.get("pgque.message.sent_total")
        facts = [
            f"{count(None if sent is None else int(sent))} sent",
            _brief(view).removeprefix(f"{view.name} "),
        ]
        lines.append(f"  {view.name:10} {', '.join(facts)}")
    return lines
