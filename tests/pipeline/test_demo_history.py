"""The generated history: what the archive would have written, the same each time, and true to its plan."""

from __future__ import annotations

import gzip
import json
import re
from collections import defaultdict
from datetime import UTC, datetime
from functools import cache
from pathlib import Path

import pytest
from google.protobuf.json_format import Parse
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest

from pgque_exporter import catalogue
from pgque_exporter.catalogue import MetricType, Source
from pgque_exporter.demo.database import DATABASE
from pgque_exporter.demo.stories import STORIES
from pgque_pipeline.demo import checks, consumers, snapshots
from pgque_pipeline.demo.history import STEP, round_down, write_history
from pgque_pipeline.demo.plan import DAY, HOUR, plan
from pgque_pipeline.schemas import GENERATED
from tests.support.collector import points
from tests.support.repository import ROOT

END = round_down(datetime(2026, 3, 20, 9, 2, tzinfo=UTC))  # a Friday
Values = dict[int, float]
Key = tuple[str, frozenset[tuple[str, str]]]


@cache
def lines(folder: Path) -> list[bytes]:
    return [
        line for path in sorted(folder.iterdir()) for line in gzip.decompress(path.read_bytes()).splitlines()
    ]


@pytest.fixture(scope="module")
def history(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The last two days."""
    folder = tmp_path_factory.mktemp("history")
    write_history(folder, end=END, days=2)
    return folder


@pytest.fixture(scope="module")
def series(history: Path) -> dict[Key, Values]:
    """Values by time of each series; of histograms their counts."""
    found: dict[Key, Values] = defaultdict(dict)
    for line in lines(history):
        [resource] = json.loads(line)["resourceMetrics"]
        for metric in resource["scopeMetrics"][0]["metrics"]:
            for point in (metric.get("gauge") or metric.get("sum") or metric["histogram"])["dataPoints"]:
                labels = {one["key"]: one["value"]["stringValue"] for one in point["attributes"]}
                key = metric["name"], frozenset(item for item in labels.items() if "." not in item[0])
                value = float(point["asDouble"] if "asDouble" in point else point["count"])
                found[key][int(point["timeUnixNano"]) // 10**9] = value
    return found


def of(series: dict[Key, Values], name: str, **labels: str) -> Values:
    wanted = {"engine": "pgque", "database": "shop", **labels}
    return series[name, frozenset(wanted.items())]


def test_the_same_history_is_the_same_files(history: Path, tmp_path: Path) -> None:
    again, other = tmp_path / "again", tmp_path / "other"
    told: list[float] = []
    written = write_history(again, end=END, days=2, progress=told.append)
    assert written == sum(line.count(b'"timeUnixNano"') for line in lines(history))
    write_history(other, end=END, days=2, seed=1)
    first, second, third = (
        {path.name: path.read_bytes() for path in folder.iterdir()} for folder in (history, again, other)
    )
    assert len(first) == 3
    assert first == second
    assert first.keys() == third.keys()
    assert first != third
    assert told == sorted(told)
    assert all(0 <= share <= 1 for share in told)


def test_it_is_what_the_exporter_writes_of_the_demo(series: dict[Key, Values]) -> None:
    known = catalogue.load()
    for name, labels in series:
        metric = known[name]
        assert metric.source in (Source.CONTRACT, Source.INSTRUMENTATION), name
        assert {label for label, _ in labels} - {"engine", "database"} <= {*metric.labels}, name
    seen = {name for name, _ in series}
    missing = {m.name for m in known if m.source in (Source.CONTRACT, Source.INSTRUMENTATION)} - seen
    assert missing == {"pgque.instrumentation.log_rows"}  # of a whole database
    found = {(dict(labels)["queue"], dict(labels).get("consumer")) for _, labels in series}
    told = {(story.queue, name) for story in STORIES for name in (None, *story.consumers)}
    assert found == told
    assert {dict(labels)["database"] for _, labels in series} == {DATABASE} == {snapshots.DATABASE}


def test_checks_and_buckets_are_the_pack_s() -> None:
    text = (ROOT / "sql/observability/pgq_family/health_checks.sql").read_text("utf-8")
    for subject, known in (("queue", checks.QUEUE_CHECKS), ("consumer", checks.CONSUMER_CHECKS)):
        assert tuple(re.findall(rf"\('(\w+)', '{subject}'", text)) == known
    text = (ROOT / "sql/observability/pgque/instrumentation/instrumentation_bounds.sql").read_text("utf-8")
    for name, unit, bounds in (
        ("processing", 1e6, consumers.PROCESSING_BOUNDS),
        ("size", 1, consumers.SIZE_BOUNDS),
    ):
        found = re.search(rf"'{name}' then array\[([\d,\s]+)\]", text)
        assert found is not None
        assert tuple(int(number) / unit for number in found[1].split(",")[:-1]) == bounds


def test_it_says_that_it_is_generated(history: Path) -> None:
    for line in lines(history):
        for resource in json.loads(line)["resourceMetrics"]:
            given = {one["key"]: one["value"]["stringValue"] for one in resource["resource"]["attributes"]}
            assert given[GENERATED] == "true"


def test_a_line_is_a_request_by_protobuf_s_own_reader(history: Path) -> None:
    line = lines(history)[-1]
    request = Parse(line, ExportMetricsServiceRequest())
    assert len(list(points([request]))) == line.count(b'"timeUnixNano"') > 250


def test_polls_come_in_steps_and_nothing_is_negative(series: dict[Key, Values]) -> None:
    times = sorted({time for values in series.values() for time in values})
    assert times == list(range(END - 2 * DAY + STEP, END + 1, STEP))
    known = catalogue.load()
    for (name, labels), values in series.items():
        assert min(values.values()) >= 0, (name, labels)
        if known[name].type is not MetricType.GAUGE:
            ordered = [values[time] for time in sorted(values)]
            assert ordered == sorted(ordered), (name, labels)


def test_the_end_tells_the_stories(series: dict[Key, Values]) -> None:
    def lag(queue: str, consumer: str) -> Values:
        return of(series, "pgque.consumer.lag_seconds", queue=queue, consumer=consumer)

    stuck, late, well = lag("billing", "ledger"), lag("emails", "mailer"), lag("orders", "fulfilment")
    period = of(series, "pgque.queue.rotation_period_seconds", queue="billing")[END]
    assert stuck[END] - stuck[END - HOUR] == pytest.approx(HOUR, abs=1)
    assert period / 2 < stuck[END] < period
    assert late[END - 7 * HOUR] < late[END - 4 * HOUR] < late[END]
    assert late[END] < of(series, "pgque.queue.rotation_period_seconds", queue="emails")[END]
    assert max(well.values()) < 60
    dead = of(series, "pgque.message.dead_lettered_total", queue="webhooks", consumer="deliver")
    assert dead[END - 28 * HOUR] - dead[END - 30 * HOUR] > 100 * (dead[END] - dead[END - 2 * HOUR])
    check = {"queue": "billing", "consumer": "ledger", "check": "consumer_lag"}
    assert of(series, "pgque.queue.health_state", **check, state="warning")[END] == 1
    assert of(series, "pgque.queue.health_state", **check, state="ok")[END] == 0
    assert of(series, "pgque.queue.health_status", queue="billing", consumer="ledger")[END] == 1


def test_what_happens_falls_into_the_weeks_before_the_end() -> None:
    for hour in range(0, 24 * 7, 5):
        end = END + hour * HOUR
        world = plan(end, 28)
        spans = [*world.stopped, *world.unwatched]
        spans += [span for queue in world.queues for span in queue.surges]
        for queue in world.queues:
            for consumer in queue.consumers:
                spans += [*consumer.hangs, *consumer.falls, *consumer.rejected]
        assert all(end - 28 * DAY < span.since < span.until <= end for span in spans), hour
        [mailer] = next(queue for queue in world.queues if queue.name == "emails").consumers
        [fall] = mailer.falls
        surges = next(queue.surges for queue in world.queues if queue.name == "emails")
        assert 3 <= len(surges) <= 4
        assert all(surge.until < fall.since for surge in surges)
