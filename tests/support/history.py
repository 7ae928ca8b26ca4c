"""History of the demo's queues, as the pipeline would have published it, and a service that shows it."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import yaml

from pgque_exporter.config import TargetConfig
from pgque_exporter.demo.cluster import Cluster, embedded_bindir
from pgque_exporter.demo.stories import STORIES
from pgque_pipeline.publishing import publish
from pgque_pipeline.tables.slo import WINDOW_HOURS
from tests.support.processes import Process
from tests.support.warehouse import Row, small_warehouse

_MINUTES_OLD = 25
_LAG = 1.0  # seconds, of a consumer that keeps up
# Share of samples or events that were bad, on the demo's better days: within the objective, and beyond.
_BAD = {
    "lag": {"mailer": 0.012, "ledger": 0.004},
    "delivery": {"deliver": 0.0016},
    "health": {"emails": 0.0004},
}
_TARGETS = {"lag": 0.99, "delivery": 0.999, "health": 0.999}
# Seconds until rotation is blocked, and the ends of the interval.
_FORECASTS = {
    ("emails", "mailer"): (4.2 * 3600, 3.1 * 3600, 6.4 * 3600),
    ("billing", "ledger"): (9.5 * 3600, 5.0 * 3600, None),
}


@contextmanager
def run_history(folder: Path) -> Iterator[str]:
    """A database with the history of the demo's queues; host:port of a service that shows nothing else."""
    as_of = datetime.now(UTC) - timedelta(minutes=_MINUTES_OLD)
    warehouse = small_warehouse(
        folder / "warehouse",
        as_of=as_of,
        baselines=list(_baselines()),
        slo=list(_slo()),
        forecast=[
            _entity(queue, consumer) | {"as_of": as_of} | dict(zip(_ENDS, left, strict=True))
            for (queue, consumer), left in _FORECASTS.items()
        ],
    )
    with Cluster(embedded_bindir()) as cluster:
        publish(warehouse, TargetConfig("history", cluster.dsn()))
        config = folder / "history.yaml"
        target = {"name": "history", "dsn": cluster.dsn(), "history": True, "interval": "2s"}
        config.write_text(yaml.safe_dump({"listen": "127.0.0.1:0", "targets": [target]}), "utf-8")
        service = Process(
            [sys.executable, "-u", "-m", "pgque_exporter", "run", "--config", config],
            log=folder / "history.log",
            cwd=folder,
        )
        with service:
            page = service.wait_for(
                lambda: re.search(r"listening on http://(\S+?)/?,", service.output()),
                "the address of history",
                timeout=60,
            )
            assert page
            yield page[1]


_ENDS = ("seconds_left", "seconds_left_low", "seconds_left_high")


def _entity(queue: str, consumer: str | None = None) -> dict[str, Any]:
    return {"engine": "pgque", "database": "shop", "queue": queue, "consumer": consumer}


def _baselines() -> Iterator[Row]:
    """The same in every hour of the week: the demo's own day has no hours."""
    for story in STORIES:
        rate = story.rate
        usual: list[tuple[str | None, str, float]] = [
            (None, "pgque.message.sent_total", rate),
            (None, "pgque.queue.depth", 2 * rate * _LAG * len(story.consumers)),
        ]
        for consumer in story.consumers:
            usual += [
                (consumer, "pgque.consumer.lag_seconds", _LAG),
                (consumer, "pgque.consumer.pending_events", 2 * rate * _LAG),
                (consumer, "pgque.message.acked_total", rate),
            ]
        for of, metric, median in usual:
            width = (0.2 if metric.endswith("_total") else 2) * median
            band = {"median": median, "low": max(0.0, median - width), "high": median + width, "hours": 8}
            for hour in range(168):
                yield _entity(story.queue, of) | {"metric": metric, "hour_of_week": hour} | band


def _slo() -> Iterator[Row]:
    for story in STORIES:
        for objective, target in _TARGETS.items():
            of: list[str | None] = [None] if objective == "health" else [*story.consumers]
            for consumer in of:
                bad = _BAD[objective].get(consumer or story.queue, 0.0)
                for hours in WINDOW_HOURS:
                    total = hours * 3600 * story.rate
                    counts: dict[str, Any] = {"good": total * (1 - bad), "total": total, "target": target}
                    yield (
                        _entity(story.queue, consumer)
                        | {"objective": objective, "window_hours": hours}
                        | counts
                    )
