"""The status page: one self-contained HTML document without scripts.

Every text from a database or a configuration goes through `_text`, which escapes it.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from importlib.resources import files

from pgque_exporter import __version__
from pgque_exporter.health import STATUSES, Health, TargetHealth
from pgque_exporter.overview import ConsumerView, QueueView

MAX_QUEUES = 300  # a page for people; the API and /metrics have all of them
_REFRESH = 15  # seconds

_STYLE = files(__package__).joinpath("status_page.css").read_text("utf-8")

STYLE_HASH = "sha256-" + base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()

_LINKS = (
    ("/metrics", "Metrics"),
    ("/healthz", "Health"),
    ("/readyz", "Ready"),
    ("/livez", "Live"),
    ("/api/v1/status", "JSON"),
)
_DEPTH = "pgque.queue.depth"
_OLDEST = "pgque.queue.oldest_message_age_seconds"
_RATE = "pgque.queue.throughput"
_RETRYING = "pgque.message.retry_waiting"
_DEAD = "pgque.message.dead_lettered"
_PENDING = "pgque.consumer.pending_events"
_LAG = "pgque.consumer.lag_seconds"
_NUMBERS = 5  # columns between the name and the health
# What a number says of itself where the window is too narrow for columns with headings.
_TITLES = {
    _DEPTH: "depth",
    _OLDEST: "oldest",
    _RATE: "events/s",
    _RETRYING: "retrying",
    _DEAD: "dead letters",
    _PENDING: "pending",
    _LAG: "lag",
}


def render(health: Health, queues: Mapping[str, Sequence[QueueView]]) -> str:
    """The page for all targets; `queues` by target name, absent where data is stale or missing."""
    links = "".join(f'<a href="{path}">{name}</a>' for path, name in _LINKS)
    targets = "".join(_target(target, queues.get(target.name)) for target in health.targets)
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<meta http-equiv="refresh" content="{_REFRESH}"><link rel="icon" href="data:,">'
        f"<title>{_text(health.status)} - PgQue Exporter</title><style>{_STYLE}</style></head><body>"
        f"<header><h1>PgQue Exporter</h1>{_pill(health.status)}<nav>{links}</nav></header>"
        f"<main>{targets}</main>"
        f"<footer>Version {_text(__version__)}. This page reloads every {_REFRESH} seconds.</footer>"
        "</body></html>"
    )


def _target(target: TargetHealth, queues: Sequence[QueueView] | None) -> str:
    facts = [*target.packs]
    if queues is not None:
        facts.append(f"{len(queues):,} {'queue' if len(queues) == 1 else 'queues'}")
        facts.append(f"{target.series:,} series")
    if target.snapshot_age is not None:
        facts.append(f"data {in_words(target.snapshot_age)} old")
    listed = {check for queue in queues or () for check in queue.checks}
    general = [check for check in target.checks if check not in listed]
    trouble = "".join(f"<li>{_check(check.check, check.status, check.detail)}</li>" for check in general)
    return (
        f'<section><div class="head"><h2>{_text(target.name)}</h2>{_pill(target.status)}'
        f'<span class="facts">{_text(" · ".join(facts))}</span></div>'
        + (f'<ul class="trouble">{trouble}</ul>' if trouble else "")
        + _queues(target, queues)
        + "</section>"
    )


def _queues(target: TargetHealth, queues: Sequence[QueueView] | None) -> str:
    if queues is None:
        waiting = not target.up and target.failure is None
        return f'<p class="empty">{"Waiting for the first poll." if waiting else "No current data."}</p>'
    if not queues:
        return '<p class="empty">There are no queues in this database.</p>'
    shown = sorted(
        queues,
        key=lambda queue: (-STATUSES.index(queue.status), -queue.metrics.get(_OLDEST, 0), queue.name),
    )
    several = len({queue.engine for queue in queues}) > 1
    rows = "".join(row for queue in shown[:MAX_QUEUES] for row in _queue(queue, with_engine=several))
    more = len(queues) - MAX_QUEUES
    return (
        '<div class="wide"><table><thead><tr><th>Queue and its consumers</th>'
        '<th class="num">Depth or pending</th>'
        '<th class="num">Oldest or lag</th><th class="num">Events/s</th>'
        '<th class="num">Retrying</th><th class="num">Dead letters</th><th>Health</th></tr></thead>'
        f"<tbody>{rows}</tbody></table></div>"
        + (
            f'<p class="empty">{more:,} more queues are in <a href="/metrics">the metrics</a>.</p>'
            if more > 0
            else ""
        )
    )


def _queue(queue: QueueView, *, with_engine: bool) -> Iterator[str]:
    name = f"{queue.name} ({queue.engine})" if with_engine else queue.name
    yield _row("", name, queue.metrics, (_DEPTH, _OLDEST, _RATE, _RETRYING, _DEAD), _pill(queue.status))
    for check in queue.checks:
        yield f'<tr class="note"><td colspan="7">{_check(check.check, check.status, check.detail)}</td></tr>'
    for consumer in queue.consumers:
        yield _consumer(consumer)


def _consumer(consumer: ConsumerView) -> str:
    return _row("consumer", consumer.name, consumer.metrics, (_PENDING, _LAG), "")


def _row(kind: str, name: str, metrics: Mapping[str, float], columns: Sequence[str], last: str) -> str:
    numbers = "".join(
        f'<td class="num" data-title="{_TITLES[column]}">{_cell(column, metrics.get(column))}</td>'
        for column in columns
    )
    empty = '<td class="num"></td>' * (_NUMBERS - len(columns))
    return f'<tr class="{kind}"><td class="name">{_text(name)}</td>{numbers}{empty}<td>{last}</td></tr>'


def _cell(column: str, value: float | None) -> str:
    if value is None:
        return ""
    if column in (_OLDEST, _LAG):
        return in_words(value)
    return f"{value:,.1f}" if column == _RATE else f"{value:,.0f}"


def _check(name: str, status: str, detail: str) -> str:
    return f"{_pill(status)} <strong>{_text(name)}</strong> {_text(detail)}"


def _pill(status: str) -> str:
    kind = status if status in ("ok", "warning", "critical") else "unknown"
    return f'<span class="pill {kind}">{_text(status)}</span>'


def _text(value: str) -> str:
    return escape(value, quote=True)


def in_words(seconds: float) -> str:
    """Seconds as a person says them: `0.4 s`, `12 s`, `5 min 3 s`, `2 h 10 min`, `3 d 4 h`."""
    if seconds < 10:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    for size, name, small, small_name in (
        (86400, "d", 3600, "h"),
        (3600, "h", 60, "min"),
        (60, "min", 1, "s"),
    ):
        if whole >= size:
            rest = whole % size // small
            return f"{whole // size:,} {name} {rest} {small_name}" if rest else f"{whole // size:,} {name}"
    return f"{whole} s"
