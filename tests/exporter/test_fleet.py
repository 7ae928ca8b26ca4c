"""Many targets in one service: labels of their own, and their places in time."""

from __future__ import annotations

import asyncio
from collections import Counter

import psycopg
import pytest
from opentelemetry.exporter.otlp.proto.common.metrics_encoder import encode_metrics
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest

from pgque_exporter.config import DiscoveryConfig
from pgque_exporter.demo.cluster import Cluster, embedded_bindir
from pgque_exporter.errors import UserError
from pgque_exporter.otlp.encode import SnapshotEncoder
from pgque_exporter.redaction import Redactor
from pgque_exporter.sharding import Shard, parse_shard, phase
from pgque_exporter.state import TargetState
from pgque_exporter.target import PollOutcome, Target
from pgque_exporter.telemetry import RELOAD_SUCCESS, Telemetry
from tests.exporter.harness import CATALOGUE, ToyPack, config, poll, running, target
from tests.support.database import Database, wait_until

pytestmark = pytest.mark.servers("pg18")

LABELS = (("env", "prod"), ("team", "blue"))


def test_labels_of_a_target_are_on_all_of_its_series(database: Database, toy: ToyPack) -> None:
    toy.add("pgque.queue.depth", 1, queue="q")
    toy.add_health("q", "lag", "critical", "far behind")
    with running(config(target(database.dsn(), labels=LABELS))) as service:
        wait_until(lambda: service.sample("pgque_queue_depth{"), what="polled")
        lines = service.get("/metrics").text.splitlines()
    of_target = [line for line in lines if 'database="shop"' in line]
    names = {line.partition("{")[0] for line in of_target}
    assert {
        "pgque_queue_depth", "pgque_queue_health_state", "pgque_up", "pgque_snapshot_age_seconds",
        "pgque_exporter_polls_total", "pgque_exporter_poll_duration_seconds_bucket",
    } <= names  # fmt: skip
    assert [line for line in of_target if 'env="prod",team="blue"' not in line] == []
    assert 'pgque_queue_depth{engine="toy",database="shop",env="prod",team="blue",queue="q"} 1' in lines


def test_labels_of_a_target_leave_the_health_checks_as_they_are(database: Database, toy: ToyPack) -> None:
    toy.add_health("q", "lag", "critical", "far behind")
    toy.add("pgque.queue.health_status", 2, queue="q")
    plain, labelled = (poll(database.dsn(), labels=labels).snapshot for labels in ((), LABELS))
    assert labelled.checks == plain.checks
    assert labelled.checks_ok == plain.checks_ok
    assert labelled.points == plain.points > 4


def test_labels_of_a_target_are_attributes_over_otlp(database: Database, toy: ToyPack) -> None:
    toy.add("pgque.queue.depth", 1, queue="q")
    [batch] = SnapshotEncoder({}, "shop").encode(poll(database.dsn(), labels=LABELS).snapshot).data
    request = ExportMetricsServiceRequest.FromString(batch.payload)
    [point] = request.resource_metrics[0].scope_metrics[0].metrics[0].gauge.data_points
    attributes = {one.key: one.value.string_value for one in point.attributes}
    assert attributes.items() >= {"env": "prod", "team": "blue", "queue": "q"}.items()


def test_no_counter_of_a_large_fleet_is_lost_and_none_of_a_gone_target_stays() -> None:
    telemetry = Telemetry(CATALOGUE, {})
    polls = CATALOGUE["pgque.exporter.polls_total"]
    names = [f"db{number}" for number in range(500)]  # more label sets than one instrument of the SDK keeps
    for name in names:
        telemetry.expect(name, ())
        telemetry.count_poll(PollOutcome(TargetState(name, 1.0, 4.0), None, None, 0.1, 0))

    def lines() -> list[str]:
        [samples] = [found for metric, found in telemetry.target_samples() if metric is polls]
        return [line for line in b"".join(samples).decode().splitlines() if 'result="ok"' in line]

    assert lines() == [f'pgque_exporter_polls_total{{database="{name}",result="ok"}} 1' for name in names]
    assert pushed(telemetry) == set(names)
    for name in names[1:]:
        telemetry.forget(name)
    assert lines() == ['pgque_exporter_polls_total{database="db0",result="ok"} 1']
    assert pushed(telemetry) == {"db0"}
    telemetry.close()


def pushed(telemetry: Telemetry) -> set[str]:
    """The databases whose polls are counted in what is pushed, beside the service's own counters."""
    telemetry.set(RELOAD_SUCCESS, 1.0)
    data = telemetry.collect_for_push()
    assert data is not None
    [metrics] = [
        {metric.name: metric for metric in scope.metrics}
        for resource in encode_metrics(data).resource_metrics
        for scope in resource.scope_metrics
    ]
    assert RELOAD_SUCCESS in metrics
    points = metrics["pgque.exporter.polls_total"].sum.data_points
    return {one.value.string_value for point in points for one in point.attributes if one.key == "database"}


@pytest.mark.slow
def test_hundreds_of_databases_have_one_connection_each() -> None:
    names = [f"db{number:03}" for number in range(200)]
    with Cluster(embedded_bindir(), settings={"max_connections": "250"}) as cluster:
        with psycopg.connect(cluster.dsn(), autocommit=True) as connection:
            ToyPack(connection).add("pgque.queue.depth", 1, queue="q")
        targets = [target(cluster.dsn(), name, interval=2.0) for name in names]
        with running(config(*targets)) as service:
            wait_until(lambda: service.get("/readyz").status == 200, what="all polled", timeout=60)
            series = "\npgque_queue_depth{"
            wait_until(lambda: service.get("/metrics").text.count(series) == 200, what="all on the page")
            assert service.databases() == set(names)
            with psycopg.connect(cluster.dsn()) as connection:
                query = "select count(*) from pg_stat_activity where application_name = 'pgque-exporter'"
                assert connection.execute(query).fetchone() == (200,)
            assert service.get("/healthz").status == 200


def test_polls_of_many_targets_are_spread_over_the_interval() -> None:
    tenths = Counter(int(phase(f"server-{number}/shop") * 10) for number in range(1000))
    assert sorted(tenths) == list(range(10))
    assert min(tenths.values()) > 60


def test_shards_partition_the_targets() -> None:
    names = [f"server-{number % 7}/database-{number}" for number in range(1000)]
    shards = [Shard(number, 8) for number in range(1, 9)]
    owners = {name: [str(shard) for shard in shards if shard.owns(name)] for name in names}
    assert all(len(owned) == 1 for owned in owners.values())
    counts = Counter(owned[0] for owned in owners.values())
    assert len(counts) == 8
    assert min(counts.values()) > 80
    # A name's place is a promise: another release must not shuffle running fleets.
    assert [owners[name] for name in names[:4]] == [["6/8"], ["7/8"], ["7/8"], ["4/8"]]
    assert Shard(1, 1).owns("anything")


@pytest.mark.parametrize("text", ["0/8", "9/8", "1/0", "1", "1/8/2", "-1/8", "a/b", "", "1 / 8", "1/1001"])
def test_what_is_no_shard_is_refused_with_its_place(text: str) -> None:
    with pytest.raises(UserError) as caught:
        parse_shard(text, "--shard")
    assert str(caught.value) == (
        f"--shard: {text!r} is not a shard. Write 1/8 for the first of eight, 8/8 for the last"
    )


def test_each_shard_polls_its_own_and_searches_for_its_own(
    database: Database, toy: ToyPack, other_database: Database
) -> None:
    ToyPack(other_database.connect())
    names = [f"t{number}" for number in range(6)]
    targets = [target(database.dsn(), name) for name in names]
    found = [database.name, other_database.name]
    server = DiscoveryConfig(target(database.cluster.dsn(), "db1"), tuple(found), interval=0.2)
    seen: list[set[str]] = []
    for number in (1, 2):
        shard = Shard(number, 2)
        expected = {name for name in (*names, *(f"db1/{one}" for one in found)) if shard.owns(name)}
        with running(config(*targets, discoveries=(server,), shard=shard)) as service:
            wait_until(lambda: service.databases() == expected | {"db1"}, what="its share")  # noqa: B023
            seen.append(expected)
    assert seen[0] | seen[1] == {*names, *(f"db1/{one}" for one in found)}
    assert not seen[0] & seen[1]


def test_a_target_is_polled_at_its_own_moments(database: Database, toy: ToyPack) -> None:
    clocks: list[float] = []

    async def run() -> None:
        stop = asyncio.Event()

        def publish(outcome: PollOutcome) -> None:
            clocks.append(outcome.state.snapshot_clock)
            if len(clocks) == 4:
                stop.set()

        one = Target(target(database.dsn(), interval=0.5), CATALOGUE, Redactor(), publish)
        await asyncio.wait_for(one.run(stop), 60)

    asyncio.run(run())
    # The first comes at once; no other before its moment.
    numbers = [clock / 0.5 - phase("shop") for clock in clocks]
    assert [int(number) for number in numbers[1:]] == sorted({int(number) for number in numbers[1:]})
