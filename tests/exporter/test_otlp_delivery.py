"""What becomes of points, whatever the collector does: the ledger, with real servers of gRPC and HTTP."""

from __future__ import annotations

import asyncio
import random
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any

import grpc
import pytest
from google.protobuf.json_format import MessageToJson
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest

from pgque_exporter.config import OtlpConfig
from pgque_exporter.otlp.delivery import Pace
from pgque_exporter.otlp.layout import MAX_BYTES, MAX_POINTS
from pgque_exporter.otlp.ledger import Drop, Ledger
from pgque_exporter.otlp.push import Pusher
from pgque_exporter.redaction import Redactor
from pgque_exporter.snapshot import Family, HistogramFamily, HistogramSeries, Series, Snapshot
from tests.exporter.harness import CATALOGUE, DEPTH, SENT, labels, silent_server, snapshot
from tests.exporter.receivers import (
    JSON,
    OK,
    PROTOBUF,
    RECEIVERS,
    Answer,
    Failure,
    Flood,
    Hang,
    Partial,
    Reply,
    Trickle,
    grpc_receiver,
    http_receiver,
    status_with_delay,
)
from tests.support.collector import Point, points

FRESH = 3600.0  # seconds; longer than any test
QUICK = Pace(first=0.02, longest=0.1)
BOTH = pytest.mark.parametrize("protocol", ["grpc", "http"])
SIZES = CATALOGUE["pgque.batch.size"]

Work = Callable[[Pusher], Any]


def otlp(url: str, protocol: str, **options: Any) -> OtlpConfig:
    given = {"headers": {"x-key": "hunter2"}, "timeout": 20.0, **options}
    return OtlpConfig(url, protocol, **given)  # type: ignore[arg-type]


def push(config: OtlpConfig, work: Work, *, pace: Pace = QUICK, flush: float = 0.0, **options: Any) -> Ledger:
    """Run `work` on a pusher and close it; the books, which balance at each step."""

    async def run() -> Ledger:
        given = {"own_metrics": tuple, "interval": 3600.0, "count": lambda *_: None, **options}
        pusher = Pusher(config, {}, given["own_metrics"], given["interval"], given["count"], Redactor(), pace)
        pusher.start()
        watching = asyncio.create_task(watch(pusher))
        await work(pusher)
        watching.cancel()
        with suppress(asyncio.CancelledError):
            await watching  # which raises what it has found
        await pusher.close(flush)
        assert pusher.queued == 0
        assert pusher.ledger.queued == 0
        return pusher.ledger

    async def watch(pusher: Pusher) -> None:
        while True:
            assert pusher.queued == pusher.ledger.queued
            await asyncio.sleep(0.005)

    return asyncio.run(run())


async def until(condition: Callable[[], object]) -> None:
    """Wait for something that will be so soon."""
    async with asyncio.timeout(60):
        while not condition():  # noqa: ASYNC110 - what is waited for happens in other threads too
            await asyncio.sleep(0.005)


async def settled(pusher: Pusher) -> None:
    """Wait until nothing is queued."""
    await until(lambda: not pusher.queued)


def books(ledger: Ledger) -> tuple[int, int, Mapping[str, int]]:
    """Sent, rejected, dropped by reason."""
    return ledger.sent, ledger.rejected, {reason.value: n for reason, n in ledger.dropped.items() if n}


def deliver(config: OtlpConfig, *shots: Snapshot, pace: Pace = QUICK) -> tuple[int, int, Mapping[str, int]]:
    """Push snapshots one after the other until the last one is settled; what became of them."""

    async def work(pusher: Pusher) -> None:
        for shot in shots:
            pusher.push(shot, time.monotonic() + FRESH)
            await settled(pusher)

    ledger = push(config, work, pace=pace)
    assert ledger.polled == sum(shot.points for shot in shots)
    return books(ledger)


def let_go_stale(config: OtlpConfig) -> None:
    """Push a snapshot that is soon stale; it, and the marks that its series end, must go."""

    async def work(pusher: Pusher) -> None:
        pusher.push(snapshot(1, 2), time.monotonic() + 0.5)
        await until(lambda: pusher.ledger.dropped[Drop.STALE] == 4)

    assert books(push(config, work)) == (0, 0, {"stale": 4})


@BOTH
def test_points_and_headers_arrive(protocol: str) -> None:
    with RECEIVERS[protocol]() as receiver:
        first, second = snapshot(1, 2, 3), snapshot(4, 5, 6, taken_at=2000)
        assert deliver(otlp(receiver.url, protocol), first, second) == (6, 0, {})
        assert [point.value for point in receiver.points()] == [1, 2, 3, 4, 5, 6]
        assert receiver.headers[0]["x-key"] == "hunter2"
        if protocol == "http":
            assert receiver.headers[0]["path"] == "/v1/metrics"


# --- what an answer means ------------------------------------------------------------------------


@dataclass(frozen=True)
class Case:
    """Answers to three points, what becomes of them, and how many requests that takes."""

    answers: Sequence[Answer]
    sent: int = 0
    rejected: int = 0
    undeliverable: int = 0
    calls: int = 1


def text(status: int, kind: str, body: bytes = b"") -> Reply:
    return Reply(status, {"Content-Type": kind}, body)


SOON = format_datetime(datetime.now(UTC) - timedelta(hours=1), usegmt=True)  # past: at once

HTTP_CASES = {
    "partial success": Case([Partial(2)], sent=1, rejected=2),
    "more rejected than sent": Case([Partial(99)], rejected=3),
    "a warning": Case([Partial(0, "deprecated")], sent=3),
    "partial success as json": Case(
        [Reply(200, JSON, b'{"partialSuccess": {"rejectedDataPoints": "1"}}')], sent=2, rejected=1
    ),
    "json": Case([Reply(200, JSON, b"{}")], sent=3),
    "json of a newer version": Case([Reply(200, JSON, b'{"new": 1}')], sent=3),
    "nothing but 200": Case([Reply(200, {})], sent=3),
    "nothing but 202": Case([Reply(202, {})], sent=3),
    "redirect": Case([Reply(302, {"Location": "/elsewhere"})], undeliverable=3),
    "permanent redirect": Case([Reply(308, {"Location": "/elsewhere"})], undeliverable=3),
    "not modified": Case([Reply(304, {})], undeliverable=3),
    "log-in page": Case([text(200, "text/html; charset=utf-8", b"<html>")], undeliverable=3),
    "plain text": Case([text(200, "text/plain", b"ok")], undeliverable=3),
    "something without a type": Case([Reply(200, {}, b"ok")], undeliverable=3),
    "not protobuf": Case([Reply(200, PROTOBUF, b"\xff\xff\xff")], undeliverable=3),
    "not json": Case([Reply(200, JSON, b"<html>")], undeliverable=3),
    "an answer without an end": Case([Flood()], undeliverable=3),
    "bad request": Case([Reply(400, {})], rejected=3),
    "unauthorised": Case([Reply(401, {})], rejected=3),
    "not found": Case([text(404, "text/html", b"<html>")], rejected=3),
    "too large": Case([Reply(413, {})], rejected=3),
    "server error": Case([Reply(500, {})], rejected=3),
    "not implemented": Case([Reply(501, {})], rejected=3),
    "429": Case([Reply(429, {}), OK], sent=3, calls=2),
    "502, 503 and 504": Case([Reply(502, {}), Reply(503, {}), Reply(504, {}), OK], sent=3, calls=4),
    "retry at once": Case([Reply(503, {"Retry-After": "0"}), OK], sent=3, calls=2),
    "retry at a date": Case([Reply(503, {"Retry-After": SOON}), OK], sent=3, calls=2),
    "retry when?": Case([Reply(503, {"Retry-After": "soon"}), OK], sent=3, calls=2),
    "garbage of a status": Case([Reply(503, PROTOBUF, b"\xff\xff"), OK], sent=3, calls=2),
}  # fmt: skip


@pytest.mark.parametrize("name", HTTP_CASES)
def test_what_http_answers_mean(name: str) -> None:
    check("http", HTTP_CASES[name])


CODE = grpc.StatusCode
RETRYABLE = ["CANCELLED", "DEADLINE_EXCEEDED", "ABORTED", "OUT_OF_RANGE", "UNAVAILABLE", "DATA_LOSS"]
FINAL = [
    "UNKNOWN", "INVALID_ARGUMENT", "NOT_FOUND", "ALREADY_EXISTS", "PERMISSION_DENIED", "UNAUTHENTICATED",
    "FAILED_PRECONDITION", "UNIMPLEMENTED", "INTERNAL",
]  # fmt: skip

GRPC_CASES = {
    "partial success": Case([Partial(2)], sent=1, rejected=2),
    "more rejected than sent": Case([Partial(99)], rejected=3),
    "a warning": Case([Partial(0, "deprecated")], sent=3),
    "exhausted for good": Case([Failure(CODE.RESOURCE_EXHAUSTED)], rejected=3),
    "exhausted for now": Case([Failure(CODE.RESOURCE_EXHAUSTED, 0.01), OK], sent=3, calls=2),
    "exhausted, retry at once": Case([Failure(CODE.RESOURCE_EXHAUSTED, 0), OK], sent=3, calls=2),
    **{name: Case([Failure(CODE[name]), OK], sent=3, calls=2) for name in RETRYABLE},
    **{name: Case([Failure(CODE[name], 0.01)], rejected=3) for name in FINAL},
}


@pytest.mark.parametrize("name", GRPC_CASES)
def test_what_grpc_answers_mean(name: str) -> None:
    check("grpc", GRPC_CASES[name])


def check(protocol: str, case: Case) -> None:
    with RECEIVERS[protocol](*case.answers) as receiver:
        dropped = {"undeliverable": case.undeliverable} if case.undeliverable else {}
        expected = (case.sent, case.rejected, dropped)
        assert deliver(otlp(receiver.url, protocol), snapshot(1, 2, 3)) == expected
        assert receiver.calls == case.calls


def test_no_code_of_grpc_is_forgotten() -> None:
    assert {*RETRYABLE, *FINAL, "RESOURCE_EXHAUSTED", "OK"} == {code.name for code in CODE}


# --- when to come back ---------------------------------------------------------------------------

LATER = 3600.0
THEN = format_datetime(datetime.now(UTC) + timedelta(seconds=LATER), usegmt=True)
STATUS = status_with_delay(LATER, "too much")

COME_BACK_LATER: dict[str, tuple[str, Answer]] = {
    "http, seconds": ("http", Reply(429, {"Retry-After": "3600"})),
    "http, date": ("http", Reply(503, {"Retry-After": THEN})),
    "http, date in local time": ("http", Reply(503, {"Retry-After": THEN.replace("GMT", "-0000")})),
    "http, status in the body": ("http", Reply(503, PROTOBUF, STATUS.SerializeToString())),
    "http, status as json": ("http", Reply(503, JSON, MessageToJson(STATUS).encode())),
    "grpc, unavailable": ("grpc", Failure(CODE.UNAVAILABLE, LATER)),
    "grpc, exhausted": ("grpc", Failure(CODE.RESOURCE_EXHAUSTED, LATER)),
}


@pytest.mark.parametrize("name", COME_BACK_LATER)
def test_a_collector_is_left_alone_for_as_long_as_it_asks(name: str) -> None:
    protocol, answer = COME_BACK_LATER[name]
    with RECEIVERS[protocol](answer, OK) as receiver:
        let_go_stale(otlp(receiver.url, protocol))  # time enough for many more tries at this pace
        assert receiver.calls == 1


@pytest.mark.parametrize("name", COME_BACK_LATER)
def test_but_not_for_ever(name: str) -> None:
    protocol, answer = COME_BACK_LATER[name]
    pace = Pace(first=0.02, longest=0.1, longest_asked=0.05)
    with RECEIVERS[protocol](answer, OK) as receiver:
        assert deliver(otlp(receiver.url, protocol), snapshot(1, 2), pace=pace) == (2, 0, {})
        assert receiver.calls == 2


# --- collectors that are down, hang, or never come to an end -------------------------------------


def closed_port() -> str:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return f"http://127.0.0.1:{server.getsockname()[1]}"


@BOTH
def test_points_of_a_collector_that_is_down_go_when_they_are_stale(protocol: str) -> None:
    let_go_stale(otlp(closed_port(), protocol))


@BOTH
def test_points_of_a_collector_that_never_answers_go_when_they_are_stale(protocol: str) -> None:
    with silent_server() as port:
        let_go_stale(otlp(f"http://127.0.0.1:{port}", protocol, timeout=0.2))


@BOTH
def test_a_request_without_an_answer_is_sent_again(protocol: str) -> None:
    with RECEIVERS[protocol](Hang(), OK) as receiver:
        assert deliver(otlp(receiver.url, protocol, timeout=1.0), snapshot(1, 2)) == (2, 0, {})
        assert receiver.calls == 2


@pytest.mark.parametrize("trickle", [Trickle(), Trickle(head=True)], ids=["body", "head"])
def test_an_answer_that_trickles_does_not_hold_up_the_next_request(trickle: Trickle) -> None:
    with http_receiver(trickle, OK) as receiver:
        assert deliver(otlp(receiver.url, "http", timeout=1.0), snapshot(1, 2)) == (2, 0, {})
        assert receiver.calls == 2


@BOTH
def test_the_end_comes_with_a_collector_that_never_answers(protocol: str) -> None:
    async def work(pusher: Pusher) -> None:
        for number in range(5):
            pusher.push(snapshot(1, 2, taken_at=number), time.monotonic() + FRESH)
            await asyncio.sleep(0.02)

    with silent_server() as port:
        config = otlp(f"http://127.0.0.1:{port}", protocol, timeout=3600.0)
        assert books(push(config, work, flush=0.2)) == (0, 0, {"shutdown": 10})


@BOTH
def test_what_waits_at_the_end_is_flushed(protocol: str) -> None:
    async def work(pusher: Pusher) -> None:
        for number in range(5):
            pusher.push(snapshot(number, taken_at=number), time.monotonic() + FRESH)
            await asyncio.sleep(0.02)

    # Between two tries: without the end, the next one would come in an hour.
    never = Pace(first=3600.0, longest=3600.0)
    unwilling = Failure(CODE.UNAVAILABLE) if protocol == "grpc" else Reply(503, {})
    with RECEIVERS[protocol](unwilling, OK) as receiver:
        ledger = push(otlp(receiver.url, protocol), work, pace=never, flush=30.0)
        assert books(ledger) == (5, 0, {})
        assert [point.value for point in receiver.points()] == [0, 1, 2, 3, 4]


# --- the queue -----------------------------------------------------------------------------------


@BOTH
def test_the_oldest_goes_when_the_queue_is_full(protocol: str) -> None:
    ready = threading.Event()

    def decide(_: ExportMetricsServiceRequest) -> Answer:
        if ready.is_set():
            return OK
        return Failure(CODE.UNAVAILABLE) if protocol == "grpc" else Reply(503, {})

    async def work(pusher: Pusher) -> None:
        for number in range(20):
            pusher.push(snapshot(*[number] * 1000, taken_at=number), time.monotonic() + FRESH)
            await until(lambda: pusher.queued == pusher._outbox.points + pusher._delivery.in_flight)
        await until(lambda: pusher.queued == 5000)
        ready.set()
        await settled(pusher)

    with RECEIVERS[protocol](decide=decide) as receiver:
        ledger = push(otlp(receiver.url, protocol, queue_points=5000), work)
        assert books(ledger) == (5000, 0, {"queue_full": 15_000})
        assert {point.value for point in receiver.points()} == {15, 16, 17, 18, 19}


def test_databases_share_requests_within_the_limits() -> None:
    async def work(pusher: Pusher) -> None:
        for number in range(30):
            shot = snapshot(*range(400), name=f"db{number}")
            pusher.push(shot, time.monotonic() + FRESH)
        await settled(pusher)

    # While the collector wants to be left alone, they come together.
    with grpc_receiver(Failure(CODE.UNAVAILABLE, 0.5), OK) as receiver:
        ledger = push(otlp(receiver.url, "grpc"), work)
        assert books(ledger) == (12_000, 0, {})
        found = receiver.points()
        assert len({(dict(point.resource)["db.namespace"], point.attributes) for point in found}) == 12_000
        assert receiver.calls < 30
        assert all(request.ByteSize() <= MAX_BYTES for request in receiver.taken)
        assert all(len(points([request])) <= MAX_POINTS for request in receiver.taken)


@BOTH
def test_a_request_that_is_refused_for_one_database_costs_no_other(protocol: str) -> None:
    held = [0]

    def decide(request: ExportMetricsServiceRequest) -> Answer:
        held[0] += 1
        if held[0] == 1:  # until all are in the queue
            return Failure(CODE.UNAVAILABLE, 0.5) if protocol == "grpc" else Reply(503, {"Retry-After": "1"})
        if any(dict(point.resource)["db.namespace"] == "bad" for point in points([request])):
            return Failure(CODE.INVALID_ARGUMENT) if protocol == "grpc" else Reply(400, {})
        return OK

    async def work(pusher: Pusher) -> None:
        for name in ("a", "b", "bad", "c"):
            pusher.push(snapshot(1, 2, name=name), time.monotonic() + FRESH)
        await settled(pusher)

    with RECEIVERS[protocol](decide=decide) as receiver:
        assert books(push(otlp(receiver.url, protocol), work)) == (6, 2, {})
        assert [dict(p.resource)["db.namespace"] for p in receiver.points()] == ["a", "a", "b", "b", "c", "c"]


# --- the end of a series -------------------------------------------------------------------------


def marks(found: Sequence[Point]) -> list[tuple[str, str]]:
    return [(p.name, str(dict(p.attributes)["queue"])) for p in found if p.flags == 1]


@BOTH
def test_series_of_a_database_that_is_silent_end_once(protocol: str) -> None:
    async def work(pusher: Pusher) -> None:
        pusher.push(snapshot(1, 2), time.monotonic() + 0.5)
        await settled(pusher)
        await until(lambda: len(receiver.taken) == 2)
        await settled(pusher)
        pusher.push(snapshot(3, taken_at=2000), time.monotonic() + FRESH)
        await settled(pusher)

    with RECEIVERS[protocol]() as receiver:
        assert books(push(otlp(receiver.url, protocol), work)) == (5, 0, {})
        assert [point.flags for point in receiver.points()] == [0, 0, 1, 1, 0]


def test_series_of_a_database_that_is_removed_end_after_its_last_snapshot() -> None:
    async def work(pusher: Pusher) -> None:
        pusher.push(snapshot(1), time.monotonic() + FRESH)
        pusher.push(snapshot(5, name="other"), time.monotonic() + FRESH)
        pusher.remove("shop")
        pusher.remove("never heard of")
        await settled(pusher)
        await until(lambda: len(receiver.points()) == 3)
        await settled(pusher)
        pusher.push(snapshot(2, taken_at=3000), time.monotonic() + FRESH)  # it is back
        await settled(pusher)

    with grpc_receiver() as receiver:
        assert books(push(otlp(receiver.url, "grpc"), work)) == (4, 0, {})
        found = [p for p in receiver.points() if dict(p.resource)["db.namespace"] == "shop"]
        assert [(point.flags, point.value) for point in found] == [(0, 1), (1, None), (0, 2)]


def test_a_first_delta_is_counted() -> None:
    with http_receiver() as receiver:
        config = otlp(receiver.url, "http", temporality="delta")
        shots = [snapshot(value, metric=SENT, taken_at=1000 + value) for value in (5, 7)]
        assert deliver(config, *shots) == (1, 0, {"first_delta": 1})
        assert [(point.value, point.temporality) for point in receiver.points()] == [(2, "delta")]


# --- what a person reads -------------------------------------------------------------------------


def test_trouble_is_one_line_with_the_endpoint_and_what_to_do(caplog: pytest.LogCaptureFixture) -> None:
    with grpc_receiver(Failure(CODE.INVALID_ARGUMENT)) as receiver:
        deliver(otlp(f"{receiver.url}/secret-path", "grpc"), snapshot(1), snapshot(2, taken_at=2000))
    [record] = [record for record in caplog.records if record.levelname == "WARNING"]
    line = record.getMessage()
    assert line.startswith(f"metrics not delivered to {receiver.url}: INVALID_ARGUMENT: no key *** xxx")
    assert line.endswith("xxx...; check otlp.endpoint and otlp.headers, and see the collector's log")
    assert len(line) < 700


def test_what_a_collector_says_about_rejected_points_is_to_be_read(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    with http_receiver(Partial(1, "too old"), OK) as receiver:
        deliver(otlp(receiver.url, "http"), snapshot(1, 2), snapshot(1, 2, taken_at=2000))
        lines = [record.getMessage() for record in caplog.records if "127.0.0.1" in record.getMessage()]
    assert [line for line in lines if "HTTP Request" not in line] == [
        f"metrics not delivered to {receiver.url}: 1 of 2 points rejected: too old; see the collector's log",
        f"{receiver.url} takes metrics again",
    ]


# --- all of it together --------------------------------------------------------------------------


class Hostile:
    """Decides by chance until it calms down, and keeps books of its own."""

    KINDS = ("ok", "ok", "ok", "partial", "busy", "delay", "final", "odd", "hang")

    def __init__(self, protocol: str, seed: int) -> None:
        self.calm = False
        self.requests = self.accepted = self.rejected = 0  # requests: those that were taken
        self.kinds: set[str] = set()
        self._random = random.Random(seed)
        self._grpc = protocol == "grpc"

    def __call__(self, request: ExportMetricsServiceRequest) -> Answer:
        count = len(points([request]))
        kind = "ok" if self.calm else self._random.choice(self.KINDS)
        self.kinds.add(kind)
        match kind:
            case "ok" | "partial":
                rejected = self._random.randint(1, count) if kind == "partial" else 0
                self.requests += 1
                self.accepted += count - rejected
                self.rejected += rejected
                return Partial(rejected)
            case "final":
                self.rejected += count
                return Failure(CODE.UNAUTHENTICATED) if self._grpc else Reply(401, {})
            case "delay":
                return (
                    Failure(CODE.RESOURCE_EXHAUSTED, 0.02) if self._grpc else Reply(429, {"Retry-After": "0"})
                )
            case "odd" if not self._grpc:
                return self._random.choice([text(200, "text/html", b"<p>"), Reply(301, {"Location": "/"})])
            case "hang" if self._random.random() < 0.1:
                return Hang() if self._grpc else Trickle()
        return Failure(CODE.UNAVAILABLE) if self._grpc else Reply(503, {})


@BOTH
@pytest.mark.parametrize("temporality", ["cumulative", "delta"])
def test_the_books_balance_in_a_hostile_world(protocol: str, temporality: str) -> None:
    chance = random.Random(4711)
    hostile = Hostile(protocol, seed=17)
    results: Counter[str] = Counter()

    def shot(name: str, number: int) -> Snapshot:
        queues = chance.sample(range(40), chance.randint(0, 30))
        numbers = tuple(Series(labels(queue=f"q{queue}"), chance.randint(0, 100)) for queue in queues)
        sizes = tuple(
            HistogramSeries(labels(queue=f"q{queue}"), (1.0,), (chance.randint(0, 9), 1), 1.0)
            for queue in queues[:5]
        )
        families = (Family.of(DEPTH, numbers), Family.of(SENT, numbers))
        origin = chance.choice(["one", "one", "one", "two", None])
        taken_at = 1000.0 + number - 2 * (chance.random() < 0.05)  # now and then the clock is set back
        return Snapshot(name, taken_at, 0, families, (), 0, {}, (HistogramFamily(SIZES, sizes),), origin)

    async def work(pusher: Pusher) -> None:
        for number in range(300):
            name = chance.choice(["a", "b", "c"])
            if chance.random() < 0.02:
                pusher.remove(name)
            else:
                pusher.push(shot(name, number), time.monotonic() + chance.choice([0.0, 0.05, 0.5, FRESH]))
            if chance.random() < 0.7:
                await asyncio.sleep(0.01)
        hostile.calm = True
        await settled(pusher)

    with RECEIVERS[protocol](decide=hostile) as receiver:
        config = otlp(receiver.url, protocol, timeout=1.5, temporality=temporality)
        ledger = push(config, work, count=lambda result, _: results.update([result]), flush=30.0)
        assert hostile.kinds >= {"ok", "partial", "busy", "final", "delay", "hang"}
        assert receiver.calls >= results.total()
        assert ledger.dropped[Drop.STALE] > 0
        assert (ledger.dropped[Drop.FIRST_DELTA] > 0) == (temporality == "delta")
        assert (ledger.dropped[Drop.UNDELIVERABLE] > 0) == (protocol == "http")
        # A slow machine may miss an answer, and then send again what the collector has.
        assert hostile.accepted >= ledger.sent > 0
        if hostile.requests == results["ok"] + results["partial"]:
            assert (ledger.sent, ledger.rejected) == (hostile.accepted, hostile.rejected)


def test_a_mistake_of_ours_costs_what_it_is_about_and_nothing_else(caplog: pytest.LogCaptureFixture) -> None:
    def own_metrics() -> Sequence[Any]:
        raise ZeroDivisionError

    async def work(pusher: Pusher) -> None:
        for taken_at in (1000.0, float("nan"), 2000.0):  # no point in time can be made of the second
            pusher.push(snapshot(1, 2, taken_at=taken_at), time.monotonic() + FRESH)
            await settled(pusher)
        await until(lambda: "own metrics could not" in caplog.text)
        pusher.push(snapshot(1, 2, taken_at=3000), time.monotonic() + FRESH)
        await settled(pusher)

    with http_receiver() as receiver:
        ledger = push(otlp(receiver.url, "http"), work, own_metrics=own_metrics, interval=0.05)
        assert books(ledger) == (6, 0, {"encoding": 2})
