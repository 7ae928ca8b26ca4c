"""Whatever happens to the collector costs no poll, and no point without a word in the books."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import grpc
import pytest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest

from pgque_exporter.config import OtlpConfig
from pgque_exporter.otlp.ledger import Drop, Ledger
from pgque_exporter.otlp.push import Pusher
from pgque_exporter.redaction import Redactor
from pgque_exporter.target import PollOutcome
from tests.exporter.receivers import OK, RECEIVERS, Answer, Failure, Hang, Partial, Receiver, Reply, Trickle
from tests.faults.proxy import Network, Proxy
from tests.faults.stage import Stage
from tests.faults.trial import Record, longest_gap
from tests.faults.watch import INTERVAL, Watch
from tests.support.processes import wait_for

pytestmark = pytest.mark.slow

REQUEST_TIMEOUT = 0.5  # seconds
CODE = grpc.StatusCode


@dataclass(frozen=True)
class Lost:
    """The one entry in the books, beside what was sent, that a fault may cause; none if nothing is lost."""

    rejected: bool = False
    reason: Drop | None = None


NOTHING = Lost()
REJECTED = Lost(rejected=True)
UNDELIVERABLE = Lost(reason=Drop.UNDELIVERABLE)

FAULTS: dict[str, tuple[str, Answer | Network, Lost]] = {
    "collector down, grpc": ("grpc", Network.RESET, NOTHING),
    "collector down, http": ("http", Network.RESET, NOTHING),
    "collector a black hole, grpc": ("grpc", Network.BLACK_HOLE, NOTHING),
    "collector a black hole, http": ("http", Network.BLACK_HOLE, NOTHING),
    "collector hangs, grpc": ("grpc", Hang(), NOTHING),
    "collector hangs, http": ("http", Hang(), NOTHING),
    "collector answers 429": ("http", Reply(429, {}), NOTHING),
    "collector answers 503": ("http", Reply(503, {"Retry-After": "0"}), NOTHING),
    "collector unavailable": ("grpc", Failure(CODE.UNAVAILABLE), NOTHING),
    "collector exhausted for now": ("grpc", Failure(CODE.RESOURCE_EXHAUSTED, 0.1), NOTHING),
    "collector exhausted": ("grpc", Failure(CODE.RESOURCE_EXHAUSTED), REJECTED),
    "collector takes a part, grpc": ("grpc", Partial(1), REJECTED),
    "collector takes a part, http": ("http", Partial(1), REJECTED),
    "collector redirects": ("http", Reply(302, {"Location": "/elsewhere"}), UNDELIVERABLE),
    "collector shows a page": ("http", Reply(200, {"Content-Type": "text/html"}, b"<p>"), UNDELIVERABLE),
    "collector trickles": ("http", Trickle(), NOTHING),
}


@dataclass
class Mood:
    """How a receiver answers at the moment."""

    answer: Answer = OK

    def __call__(self, _: ExportMetricsServiceRequest) -> Answer:
        return self.answer


@dataclass
class Pushed:
    """Snapshots that were handed over, and what became of requests."""

    times: set[tuple[str, int]] = field(default_factory=set)  # database, Unix nanoseconds
    results: list[str] = field(default_factory=list)


class PushingWatch(Watch):
    """Pushes what it polls."""

    def __init__(self, victim: str, bystander: str, otlp: OtlpConfig) -> None:
        super().__init__(victim, bystander)
        self.pushed = Pushed()
        self._otlp = otlp
        self._pusher: Pusher | None = None

    @property
    def ledger(self) -> Ledger:
        assert self._pusher is not None
        return self._pusher.ledger

    async def _poll(self) -> None:
        def count(result: str, _: float) -> None:
            self.pushed.results.append(result)

        pusher = self._pusher = Pusher(self._otlp, {}, tuple, INTERVAL, count, Redactor())
        pusher.start()
        try:
            await super()._poll()
        finally:
            await pusher.close(30.0)

    def note(self, outcome: PollOutcome) -> None:
        if outcome.result is not None:
            assert self._pusher is not None
            shot = outcome.result.snapshot
            self.pushed.times.add((shot.database, int(shot.taken_at * 1e9)))
            self._pusher.push(shot, outcome.state.stale_at)
        super().note(outcome)


def arrived(receiver: Receiver) -> set[tuple[str, int]]:
    return {(str(dict(p.resource)["db.namespace"]), p.time) for p in receiver.points()}


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_of_the_collector_costs_no_poll(
    name: str, victim: Stage, bystander: Stage, record_property: Record
) -> None:
    protocol, what, lost = FAULTS[name]
    mood = Mood()
    with RECEIVERS[protocol](decide=mood) as receiver, Proxy(_port(receiver)) as proxy:
        otlp = OtlpConfig(f"http://127.0.0.1:{proxy.port}", protocol, {}, REQUEST_TIMEOUT)  # type: ignore[arg-type]
        with PushingWatch(victim.dsn, bystander.dsn, otlp) as watch:
            wait_for(lambda: len(receiver.taken) > 2, "all is well")
            begin, end = _switches(what, mood, proxy)
            results = watch.pushed.results
            well = len(results)
            begin()
            acting = time.monotonic()
            for polls in (watch.victim, watch.bystander):
                polls.wait(lambda found: len(found) >= 3, "polls meanwhile", since=acting)
            wait_for(lambda: any(result != "ok" for result in results[well:]), "a request that fails")
            end()
            ended = time.monotonic()
            settled = len(receiver.taken)
            wait_for(lambda: len(receiver.taken) > settled, "the collector takes points again")
            recovery = time.monotonic() - ended
    for polls in (watch.victim, watch.bystander):
        assert {poll.failure for poll in polls.polls} == {None}
    ledger = watch.ledger
    dropped = {reason for reason, points in ledger.dropped.items() if points}
    assert ledger.queued == 0
    assert ledger.sent > 0
    assert (ledger.rejected > 0) == lost.rejected
    assert dropped == ({lost.reason} if lost.reason is not None else set())
    if lost is NOTHING:
        assert arrived(receiver) == watch.pushed.times
    record_property("longest poll", max(poll.ended - poll.begun for poll in watch.victim.polls))
    record_property("recovery", recovery)
    record_property("bystander's longest gap", longest_gap(watch.bystander))


def _port(receiver: Receiver) -> int:
    return int(receiver.url.rpartition(":")[2])


def _switches(
    what: Answer | Network, mood: Mood, proxy: Proxy
) -> tuple[Callable[[], Any], Callable[[], Any]]:
    """What begins a fault, and what ends it."""
    if isinstance(what, Network):
        return lambda: proxy.become(what), lambda: proxy.become(Network.UP)

    def answer(given: Answer) -> None:
        mood.answer = given

    return lambda: answer(what), lambda: answer(OK)
