"""What a running service pushes: its polls, the end of its series, and itself."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import grpc
import psycopg
import pytest
from prometheus_client.parser import text_string_to_metric_families
from psycopg import sql

from pgque_exporter.config import OtlpConfig
from pgque_exporter.connection import FailureKind
from pgque_exporter.otlp.layout import MAX_POINTS, Batch
from pgque_exporter.otlp.ledger import Drop, Ledger
from pgque_exporter.otlp.own import encode_own, service_resource
from pgque_exporter.state import TargetState
from pgque_exporter.target import PollOutcome
from pgque_exporter.telemetry import Telemetry, target_families
from tests.exporter.harness import CATALOGUE, Running, ToyPack, config, running, target
from tests.exporter.receivers import OK, RECEIVERS, Failure, Receiver, Reply, grpc_receiver
from tests.exporter.test_otlp_encode import of
from tests.support.collector import Point, run_collector
from tests.support.database import Database, wait_until

pytestmark = pytest.mark.servers("pg18")  # what is tested isn't the server's

BOTH = pytest.mark.parametrize("protocol", ["grpc", "http"])
RESOURCE = service_resource("here:1")


@contextmanager
def pushing(
    receiver: Receiver, dsn: str, protocol: str = "grpc", temporality: Any = "cumulative", **options: Any
) -> Iterator[Running]:
    """A service that polls one database every 0.2 s and pushes to a receiver."""
    otlp = OtlpConfig(receiver.url, protocol, {}, temporality=temporality)  # type: ignore[arg-type]
    with running(config(target(dsn, **options), otlp=otlp)) as service:
        yield service


def named(receiver: Receiver, name: str) -> list[Point]:
    return [point for point in receiver.points() if point.name == name]


@BOTH
def test_a_service_pushes_its_polls_and_itself(database: Database, toy: ToyPack, protocol: str) -> None:
    toy.add("pgque.queue.depth", 5, queue="q")
    toy.add("pgque.message.sent_total", 9, queue="q")
    with RECEIVERS[protocol]() as receiver:
        with pushing(receiver, database.dsn(), protocol) as service:
            wait_until(lambda: len(named(receiver, "pgque.queue.depth")) > 3, what="several pushes")
            wait_until(lambda: len(named(receiver, "pgque.up")) > 3, what="own metrics")
            assert service.get("/api/v1/status").json["otlp"]["sent"] > 0
        names = {point.name for point in receiver.points()}
        assert {
            "pgque.queue.depth",
            "pgque.message.sent_total",
            "pgque.up",
            "pgque.exporter.polls_total",
            "pgque.exporter.poll_duration_seconds",
            "pgque.exporter.otlp_points_sent_total",
            "pgque.exporter.otlp_queue_points",
            "pgque.exporter.otlp_request_duration_seconds",
        } <= names
        times = [point.time for point in named(receiver, "pgque.queue.depth")]
        assert len(times) == len(set(times)), "no snapshot was pushed twice"


def test_a_target_that_is_down_pushes_up_and_no_series() -> None:
    with grpc_receiver() as receiver, pushing(receiver, "host=127.0.0.1 port=1 dbname=x"):
        wait_until(lambda: named(receiver, "pgque.up"), what="pgque.up")
        assert {point.value for point in named(receiver, "pgque.up")} == {0.0}
        assert not named(receiver, "pgque.queue.depth")


def test_series_end_once_when_the_database_is_lost_and_go_on_when_it_is_back(
    database: Database, toy: ToyPack
) -> None:
    for queue in ("a", "b"):
        toy.add("pgque.message.sent_total", 9, queue=queue)

    def sent() -> list[Point]:
        return named(receiver, "pgque.message.sent_total")

    def flags() -> list[int]:
        return [point.flags for point in sent()]

    with grpc_receiver() as receiver, pushing(receiver, database.dsn(), stale_after=1.0):
        wait_until(lambda: len(sent()) > 4, what="data")
        toy.replace_metrics("select 'x', '', (1 / 0)::numeric, '{}'::jsonb")
        wait_until(lambda: flags().count(1) == 2, what="marks")
        toy.replace_metrics("select 'pgque.message.sent_total', '', 11::numeric, '{\"queue\": \"a\"}'::jsonb")
        wait_until(lambda: flags()[-1] == 0, what="data again")
        assert flags().count(1) == 2
        first, last = sent()[0], sent()[-1]
        assert (first.value, last.value, last.start_time) == (9, 11, first.start_time)


def test_counters_start_anew_when_another_database_takes_the_name(database: Database, toy: ToyPack) -> None:
    def sent() -> list[Point]:
        return named(receiver, "pgque.message.sent_total")

    toy.add("pgque.message.sent_total", 5, queue="q")
    name = sql.Identifier(database.name)
    with grpc_receiver() as receiver, pushing(receiver, database.dsn()):
        wait_until(lambda: len(sent()) > 2, what="data")
        with psycopg.connect(database.cluster.dsn(), autocommit=True) as admin:
            admin.execute(sql.SQL("drop database {} with (force)").format(name))
            admin.execute(sql.SQL("create database {}").format(name))
        ToyPack(database.connect()).add("pgque.message.sent_total", 5000, queue="q")
        wait_until(lambda: sent()[-1].value == 5000, what="data of the other database")
        first = next(point for point in sent() if point.value == 5000)
        before = sent()[0]
        assert first.start_time == first.time > before.start_time == before.time


def test_deltas_of_polls_and_of_the_service_itself(database: Database, toy: ToyPack) -> None:
    toy.add("pgque.message.sent_total", 9, queue="q")
    with grpc_receiver() as receiver:
        with pushing(receiver, database.dsn(), temporality="delta") as service:
            wait_until(lambda: len(named(receiver, "pgque.message.sent_total")) > 2, what="data")
            wait_until(lambda: len(named(receiver, "pgque.exporter.polls_total")) > 9, what="own metrics")
            cumulative = service.sample('pgque_exporter_polls_total{database="shop",result="ok"}')
        found = receiver.points()
        assert {point.temporality for point in found if point.type != "gauge"} == {"delta"}
        assert {point.value for point in named(receiver, "pgque.message.sent_total")} == {0.0}
        polls = [
            int(point.value)  # type: ignore[arg-type]
            for point in named(receiver, "pgque.exporter.polls_total")
            if dict(point.attributes)["result"] == "ok"
        ]
        assert cumulative is not None
        assert sum(polls) >= cumulative > max(polls)  # all of them at last, and no page has differences


# --- the ledger, as anyone may read it -----------------------------------------------------------


def ledger_of(page: str) -> dict[str, float]:
    """The ledger's metrics on a Prometheus page, the reasons of what was dropped added up."""
    prefix = "pgque_exporter_otlp_"
    found: dict[str, float] = {}
    for family in text_string_to_metric_families(page):
        for sample in family.samples:
            if sample.name.startswith(prefix) and "request" not in sample.name:
                name = sample.name.removeprefix(prefix)
                found[name] = found.get(name, 0) + sample.value
    return found


@BOTH
def test_the_books_balance_on_every_page(database: Database, toy: ToyPack, protocol: str) -> None:
    for number in range(50):
        toy.add("pgque.queue.depth", number, queue=f"q{number}")
    busy, final = (
        (Failure(grpc.StatusCode.UNAVAILABLE), Failure(grpc.StatusCode.UNAUTHENTICATED))
        if protocol == "grpc"
        else (Reply(503, {}), Reply(401, {}))
    )
    answers = (OK, busy, final, OK, final, OK)
    with RECEIVERS[protocol](*answers) as receiver, pushing(receiver, database.dsn(), protocol) as service:

        def balanced() -> bool:
            books = ledger_of(service.get("/metrics").text)
            assert books["points_polled_total"] == (
                books["points_sent_total"]
                + books["points_rejected_total"]
                + books["points_dropped_total"]
                + books["queue_points"]
            )
            return books["points_rejected_total"] > 100 and books["points_sent_total"] > 200

        wait_until(balanced, what="points of every fate")
        page = service.get("/metrics").text
        for reason in Drop:
            assert f'pgque_exporter_otlp_points_dropped_total{{reason="{reason}"}} 0' in page
        for result in ("ok", "retry", "rejected"):
            start = f'pgque_exporter_otlp_request_duration_seconds_count{{result="{result}"}}'
            assert (service.sample(start) or 0) > 0
        status = service.get("/api/v1/status").json["otlp"]
        parts = status["sent"], status["rejected"], sum(status["dropped"].values()), status["queued"]
        assert status["polled"] == sum(parts)


def test_a_service_without_a_collector_keeps_no_books(database: Database, toy: ToyPack) -> None:
    with running(config(target(database.dsn()))) as service:
        wait_until(lambda: service.get("/readyz").status == 200, what="the first poll")
        assert ledger_of(service.get("/metrics").text) == {}
        assert "otlp" not in service.get("/api/v1/status").json


# --- own metrics of a large fleet ----------------------------------------------------------------


def own_batches(databases: int, temporality: Any) -> Sequence[Batch]:
    telemetry = Telemetry(CATALOGUE, RESOURCE, temporality)
    states = [
        TargetState(f"database {number}", 15, 60, polled=True, last_success=1.0)
        for number in range(databases)
    ]
    for state in states:
        telemetry.expect(state.name)
        telemetry.count_poll(PollOutcome(state, None, FailureKind.TIMEOUT, 0.1, 0))
    telemetry.watch_otlp(Ledger(), lambda: 7)
    gauges = target_families(CATALOGUE, states, 0.0)
    counted = telemetry.collect_for_push()
    telemetry.close()
    return encode_own(CATALOGUE, RESOURCE, gauges, time.time_ns(), counted, temporality)


@pytest.mark.parametrize("temporality", ["cumulative", "delta"])
def test_own_metrics_of_hundreds_of_databases_are_cut_to_size(temporality: str) -> None:
    batches = own_batches(700, temporality)
    assert len(batches) > 1
    assert all(batch.points <= MAX_POINTS for batch in batches)
    found = of(batches)
    up = [point for point in found if point.name == "pgque.up"]
    assert len({point.attributes for point in up}) == 700
    assert {point.temporality for point in found if point.type != "gauge"} == {temporality}
    assert {point.resource for point in found} == {tuple(sorted(RESOURCE.items()))}
    assert [point.value for point in found if point.name == "pgque.exporter.otlp_queue_points"] == [7]
    assert all((point.unit, point.description) == (CATALOGUE[point.name].unit, CATALOGUE[point.name].help)
               for point in found)  # fmt: skip


# --- a real collector ----------------------------------------------------------------------------


@BOTH
def test_nothing_is_lost_while_the_collector_is_restarted(
    database: Database, toy: ToyPack, tmp_path: Any, protocol: str
) -> None:
    toy.add("pgque.queue.depth", 5, queue="q")

    def times() -> set[int]:
        return {point.time for point in collector.sink.points() if point.name == "pgque.queue.depth"}

    def books() -> Any:
        return service.get("/api/v1/status").json["otlp"]

    with run_collector(tmp_path) as collector:
        url = f"http://{collector.grpc_address}" if protocol == "grpc" else collector.http_url
        otlp = OtlpConfig(url, protocol, {})  # type: ignore[arg-type]
        with running(config(target(database.dsn()), otlp=otlp)) as service:
            wait_until(lambda: len(times()) > 2, what="data at the collector")
            collector.process.stop()
            before = books()["sent"]
            wait_until(lambda: books()["queued"] > 20, what="points that wait")
            assert books()["sent"] == before
            collector.process.start()
            wait_until(lambda: books()["sent"] > before + 20, what="what waited to be sent")
            after = books()
    assert after["rejected"] == 0
    assert sum(after["dropped"].values()) == 0
