"""The HTTP side of a running service."""

from __future__ import annotations

import asyncio
import time
import urllib.request
import zlib

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_text

from pgque_exporter.body import Encoding
from pgque_exporter.exposition import Format
from pgque_exporter.page import Page
from pgque_exporter.snapshot import Family, Series, Snapshot
from pgque_exporter.state import TargetState
from pgque_exporter.status_page import in_words
from pgque_exporter.telemetry import Telemetry
from pgque_exporter.web import accepts_gzip, preferred_format
from tests.exporter.harness import CATALOGUE, DEPTH, ToyPack, config, running, snapshot, target
from tests.support.database import Database, wait_until

PROMETHEUS = "application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.3,*/*;q=0.1"


@pytest.mark.parametrize(
    ("accept", "form"),
    [
        ("", Format.TEXT),
        ("*/*", Format.TEXT),
        ("text/html,application/xhtml+xml,*/*;q=0.8", Format.TEXT),
        (PROMETHEUS, Format.OPENMETRICS),
        ("Application/OpenMetrics-Text; version=1.0.0", Format.OPENMETRICS),
        ("application/openmetrics-text", Format.OPENMETRICS),
        ("application/openmetrics-text;version=0.0.1", Format.TEXT),
        ("application/openmetrics-text;q=0", Format.TEXT),
        ("application/openmetrics-text;q=0.2,text/plain;q=0.9", Format.TEXT),
        ("application/openmetrics-text;q=nonsense", Format.TEXT),
        (",;,=;q", Format.TEXT),
    ],
)
def test_format_negotiation(accept: str, form: Format) -> None:
    assert preferred_format(accept) is form


@pytest.mark.parametrize(
    ("accept_encoding", "gzip"),
    [
        ("", False),
        ("gzip", True),
        ("GZIP", True),
        ("deflate, gzip;q=1.0, *;q=0.5", True),
        ("gzip;q=0", False),
        ("gzip;q=0, *", False),
        ("*", True),
        ("*;q=0", False),
        ("identity", False),
        ("gzip;q=0.001", True),
        ("br", False),
    ],
)
def test_encoding_negotiation(accept_encoding: str, gzip: bool) -> None:
    assert accepts_gzip(accept_encoding) is gzip


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0.0 s"),
        (9.94, "9.9 s"),
        (59.6, "1 min"),
        (125, "2 min 5 s"),
        (7800, "2 h 10 min"),
        (273600, "3 d 4 h"),
    ],
)
def test_durations_as_people_say_them(seconds: float, text: str) -> None:
    assert in_words(seconds) == text


def test_every_endpoint_of_a_service_with_one_database(database: Database, toy: ToyPack) -> None:
    hostile = '<script>alert("1")</script>&\\\n'
    toy.add("pgque.queue.depth", 1234567, queue=hostile)
    toy.add("pgque.queue.oldest_message_age_seconds", 125, queue=hostile)
    toy.add("pgque.consumer.lag_seconds", 3, queue=hostile, consumer="<b>c</b>")
    toy.add("pgque.message.sent_total", 5, queue=hostile)
    toy.add_health(hostile, "lag<i>", "warning", "<u>late</u>")
    # One poll and a long pause: what the formats and encodings say can be compared.
    with running(config(target(database.dsn(), interval=3600.0))) as service:
        wait_until(lambda: service.sample("pgque_queue_depth{") == 1234567, what="first page")

        text, openmetrics = service.get("/metrics"), service.get("/metrics", Accept=PROMETHEUS)
        assert text.headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
        assert openmetrics.headers["Content-Type"].startswith("application/openmetrics-text; version=1.0.0")
        assert openmetrics.text.endswith("\n# EOF\n")
        for families in (parse_text(text.text), parse_openmetrics(openmetrics.text)):
            samples = {
                (s.name, s.labels.get("queue")): s.value for family in families for s in family.samples
            }
            assert samples["pgque_queue_depth", hostile] == 1234567
            assert samples["pgque_message_sent_total", hostile] == 5
            assert samples["pgque_up", None] == 1
        metrics = {family.name: family for family in parse_openmetrics(openmetrics.text)}
        assert metrics["pgque_snapshot_age_seconds"].unit == "seconds"
        assert metrics["pgque_exporter_polls"].type == "counter"
        assert metrics["pgque_exporter_poll_duration_seconds"].type == "histogram"
        assert metrics["pgque_exporter_build_info"].samples[0].labels.keys() == {"version", "python_version"}
        assert metrics["pgque_queue_health_state"].samples[0].labels["check"] == "lag<i>"

        packed = service.get("/metrics", Accept_Encoding="gzip")
        assert packed.headers["Content-Encoding"] == "gzip"
        stream = zlib.decompressobj(zlib.MAX_WBITS | 16)
        plain = stream.decompress(packed.body)
        assert (stream.eof, stream.unused_data) == (True, b"")
        assert _without_times(plain) == _without_times(text.body)
        assert "Content-Encoding" not in service.get("/metrics", Accept_Encoding="gzip;q=0").headers

        page = service.get("/")
        assert page.headers["Content-Type"] == "text/html; charset=utf-8"
        assert "<script" not in page.text
        assert "&lt;script&gt;alert(&quot;1&quot;)" in page.text
        for raw in ("<b>c", "lag<i>", "<u>late"):
            assert raw not in page.text
        assert 'data-title="depth">1,234,567<' in page.text
        assert "2 min 5 s" in page.text

        health = service.get("/healthz")
        assert (health.status, health.json["status"]) == (200, "warning")
        [one] = health.json["targets"]
        assert (one["name"], one["up"], one["error"]) == ("shop", True, None)
        assert one["checks"][0]["detail"] == "<u>late</u>"

        status = service.get("/api/v1/status").json
        [queue] = status["targets"][0]["queues"]
        assert (queue["engine"], queue["name"], queue["status"]) == ("toy", hostile, "warning")
        assert queue["metrics"]["pgque.queue.depth"] == 1234567
        assert queue["consumers"] == [{"name": "<b>c</b>", "metrics": {"pgque.consumer.lag_seconds": 3.0}}]

        assert service.get("/livez").status == 200
        assert service.get("/readyz").json == {"status": "ok", "waiting_for": []}
        for path in ("/docs", "/openapi.json", "/probe?target=postgresql://x", "/metrics/", "/.env"):
            assert service.get(path).status == 404
        for path in ("/", "/metrics", "/livez", "/nowhere"):
            headers = service.get(path).headers
            assert headers["X-Content-Type-Options"] == "nosniff"
            assert "default-src 'none'" in headers["Content-Security-Policy"]
            assert "server" not in headers
        request = urllib.request.Request(service.url + "/metrics", method="HEAD")  # noqa: S310
        with urllib.request.urlopen(request, timeout=10) as response:  # noqa: S310
            assert (response.status, response.read()) == (200, b"")


def test_a_database_with_poisoned_labels_leaves_the_other_its_pages(
    database: Database, other_database: Database, toy: ToyPack
) -> None:
    toy.add("pgque.queue.depth", 7, queue="fine")
    poisoned = ToyPack(other_database.connect())
    poisoned.replace_metrics(
        """select 'pgque.queue.depth', 'gauge', 1.0, '{"queue": "\\ud800x"}'::json
           union all select 'pgque.queue.health_state', 'gauge', 1.0,
                            '{"queue": "q", "check": "lag", "state": "on holiday"}'""",
        "json",
    )
    targets = target(database.dsn(), "one"), target(other_database.dsn(), "two")
    with running(config(*targets)) as service:
        wait_until(lambda: service.get("/readyz").status == 200, what="both polled")
        wait_until(lambda: service.sample("pgque_queue_depth{") == 7, what="the healthy one's series")
        dropped = 'pgque_exporter_series_dropped_total{database="two",reason="invalid_label"}'
        assert (service.sample(dropped) or 0) >= 1
        for path in ("/", "/api/v1/status", "/healthz"):
            answer = service.get(path)
            assert answer.status == 200
            assert "two" in answer.text


def test_samples_that_can_not_be_written_leave_the_other_targets_theirs(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Should a text ever get past the poll that no page can hold."""
    bad = Snapshot("two", 0, 0, (Family.of(DEPTH, (Series((("queue", "\ud800"),), 1.0),)),), (), 0, {})
    states = [
        TargetState(shot.database, 15, 60, polled=True, snapshot=shot, snapshot_clock=time.monotonic())
        for shot in (snapshot(7), bad)
    ]

    async def render() -> str:
        page = Page(CATALOGUE, lambda: states, Telemetry(CATALOGUE, {}))
        await page._build()
        return (await page.render(Format.TEXT, Encoding.IDENTITY)).decode()

    text = asyncio.run(render())
    assert 'pgque_queue_depth{engine="toy",database="shop",queue="q0"} 7\n' in text
    assert 'pgque_up{database="two"} 1\n' in text
    assert "two: the samples of this poll could not be written" in caplog.text


def _without_times(page: bytes) -> list[bytes]:
    moving = (b"pgque_snapshot_age_seconds{", b"pgque_exporter_event_loop_lag_seconds_")
    return [line for line in page.splitlines() if not line.startswith(moving)]


def test_stale_series_vanish_and_the_target_stays(database: Database, toy: ToyPack) -> None:
    toy.add("pgque.queue.depth", 1, queue="q")
    with running(config(target(database.dsn(), interval=3600.0, stale_after=1.5))) as service:
        wait_until(lambda: service.sample("pgque_queue_depth{") == 1, what="first page")
        wait_until(lambda: service.sample("pgque_queue_depth{") is None, what="series gone")
        assert service.sample("pgque_up{") == 1  # the last poll did succeed
        assert (service.sample("pgque_snapshot_age_seconds{") or 0) >= 1.5
        assert (service.sample("pgque_last_success_timestamp_seconds{") or 0) > time.time() - 600
        assert "No current data" in service.get("/").text
        assert service.get("/healthz").json["targets"][0]["series"] == 0


def test_a_series_that_goes_leaves_the_page(database: Database, toy: ToyPack) -> None:
    toy.add("pgque.queue.depth", 1, queue="old")
    with running(config(target(database.dsn()))) as service:
        wait_until(lambda: service.sample("pgque_queue_depth{") == 1, what="old queue")
        toy.clear()
        toy.add("pgque.queue.depth", 2, queue="new")
        wait_until(lambda: service.sample("pgque_queue_depth{") == 2, what="new queue")
        assert "old" not in service.get("/metrics").text
