"""Replicas of the service: all can be scraped, one pushes, and never two at a time."""

from __future__ import annotations

import asyncio
import logging
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml
from psycopg.conninfo import conninfo_to_dict

from pgque_exporter.config import LeaderConfig, OtlpConfig, TargetConfig
from pgque_exporter.demo.cluster import Cluster, embedded_bindir
from pgque_exporter.leader import Leader
from pgque_exporter.otlp.gate import Gated, NotLeading
from pgque_exporter.otlp.ledger import Drop, Ledger
from pgque_exporter.otlp.push import Pusher, make_transport
from pgque_exporter.redaction import Redactor
from pgque_exporter.sharding import Shard
from tests.exporter.harness import Running, ToyPack, config, get, running, silent_server, snapshot, target
from tests.support.collector import OtlpSink, Point, run_sink
from tests.support.database import Database, wait_until
from tests.support.pgbouncer import pgbouncer
from tests.support.processes import Process
from tests.support.standby import Standby
from tests.support.tools import Unavailable

pytestmark = pytest.mark.servers("pg18")

LEADER = "pgque_exporter_leader"
POLLS = 'pgque_exporter_polls_total{database="shop",result="ok"}'
LEASE = 2.0


def leader_config(dsn: str, name: str = "test", *, lease: float = LEASE) -> LeaderConfig:
    return LeaderConfig(TargetConfig("leader", dsn, interval=lease / 4, timeout=lease / 4), name, lease)


@pytest.fixture
def sink() -> Iterator[OtlpSink]:
    with run_sink() as receiver:
        yield receiver


@contextmanager
def replica(database: Database, sink: OtlpSink, *, lock: str | None = None) -> Iterator[Running]:
    """A service that polls the database, and pushes if it leads."""
    otlp = OtlpConfig(f"http://{sink.grpc_address}", "grpc", {})
    leader = leader_config(lock or database.dsn())
    with running(config(target(database.dsn()), otlp=otlp, leader=leader)) as service:
        yield service


def port(url: str) -> str:
    return url.rpartition(":")[2]


def pushers(points: list[Point]) -> set[str]:
    """The ports of the services that sent these points."""
    return {str(dict(point.resource)["service.instance.id"]).rpartition(":")[2] for point in points}


def test_one_of_two_pushes_and_both_can_be_scraped(
    database: Database, toy: ToyPack, sink: OtlpSink
) -> None:
    toy.add("pgque.queue.depth", 1, queue="q")
    with ExitStack() as first_stack, replica(database, sink) as second:
        wait_until(lambda: second.sample(LEADER) == 1, what="the only one leads")
        first = first_stack.enter_context(replica(database, sink))
        wanted = {"pgque.queue.depth", "pgque.up"}
        sink.wait_for(lambda points: wanted <= {one.name for one in points}, "it pushes all")
        wait_until(lambda: first.sample("pgque_queue_depth{") == 1, what="the other one polls")
        before = first.sample(POLLS) or 0
        wait_until(lambda: (first.sample(POLLS) or 0) > before + 5, what="and goes on")
        assert (first.sample(LEADER), second.sample(LEADER)) == (0, 1)
        assert pushers(sink.points()) == {port(second.url)}
        assert locks(database) == 1


def test_the_lead_passes_on_when_the_leader_ends(database: Database, toy: ToyPack, sink: OtlpSink) -> None:
    with ExitStack() as first_stack:
        first = first_stack.enter_context(replica(database, sink))
        wait_until(lambda: first.sample(LEADER) == 1, what="the first leads")
        with replica(database, sink) as second:
            wait_until(lambda: second.sample(LEADER) == 0, what="the second doesn't")
            first_stack.close()
            wait_until(lambda: second.sample(LEADER) == 1, what="now it does")
            sink.wait_for(lambda points: port(second.url) in pushers(points), "it pushes")


def test_a_leader_whose_session_ends_stops_and_one_leads_again(
    database: Database, toy: ToyPack, sink: OtlpSink, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "pgque_exporter.leader")
    with replica(database, sink) as service:
        wait_until(lambda: service.sample(LEADER) == 1, what="leads")
        database.connect().execute(
            "select pg_terminate_backend(l.pid) from pg_locks l join pg_database d on d.oid = l.database "
            "where l.locktype = 'advisory' and d.datname = current_database()"
        )
        wait_until(lambda: service.sample(LEADER) == 0, what="lost")
        wait_until(lambda: service.sample(LEADER) == 1, what="leads again")
    messages = [record.getMessage() for record in caplog.records]
    assert messages.count("leading: metrics are pushed from here") == 2
    assert "the lead is lost: metrics are no longer pushed from here" in messages


@pytest.mark.slow
def test_a_frozen_leader_loses_the_lead_and_knows_when_it_wakes(
    database: Database, toy: ToyPack, sink: OtlpSink, tmp_path: Path
) -> None:
    toy.add("pgque.queue.depth", 1, queue="q")
    path = tmp_path / "exporter.yaml"
    path.write_text(
        yaml.safe_dump(
            {
                "listen": "127.0.0.1:0",
                "interval": "200ms",
                "timeout": "20s",
                "targets": [{"name": "shop", "dsn": database.dsn()}],
                "otlp": {"endpoint": f"http://{sink.grpc_address}", "protocol": "grpc"},
                "leader": {"dsn": database.dsn(), "lease": f"{LEASE:g}s"},
            }
        )
    )
    argv = (sys.executable, "-m", "pgque_exporter", "run", "--config", path)

    def started(process: Process) -> str:
        process.wait_for(lambda: "listening on" in process.output(), "started")
        return process.output().partition("listening on ")[2].partition(",")[0]

    def leads(url: str) -> bool:
        return f"\n{LEADER} 1\n" in get(f"{url}/metrics").text

    with (
        Process(argv, log=tmp_path / "first.log") as first,
        Process(argv, log=tmp_path / "second.log") as second,
    ):
        urls = [started(first), started(second)]
        wait_until(lambda: sum(leads(url) for url in urls) == 1, what="one leads")
        frozen, other = (first, second) if leads(urls[0]) else (second, first)
        frozen_url, other_url = urls if frozen is first else reversed(urls)
        sink.wait_for(lambda points: pushers(points) == {port(frozen_url)}, "it pushes, and it alone")
        frozen.send_signal(signal.SIGSTOP)
        try:
            wait_until(lambda: leads(other_url), what="the other takes over")
            sink.wait_for(lambda points: port(other_url) in pushers(points), "and pushes")
        finally:
            woken = time.time_ns()
            frozen.send_signal(signal.SIGCONT)
        frozen.wait_for(lambda: "the lead is lost" in frozen.output(), "it knows")
        woken_up = Running(frozen_url, lambda: None)
        before = woken_up.sample(POLLS) or 0
        frozen.wait_for(lambda: (woken_up.sample(POLLS) or 0) > before + 5, "it polls on")
        assert not leads(frozen_url)
        assert leads(other_url)
        late = [point for point in sink.points() if point.time > woken]
        assert pushers(late) == {port(other_url)}
        assert other.returncode is None


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not condition():  # noqa: ASYNC110 - of a thing that offers no event
            await asyncio.sleep(0.01)


def while_it_runs(leader: Leader, act: Callable[[], None]) -> None:
    """Let the leader run until it leads, then call `act` in its event loop, which so stands still."""

    async def run() -> None:
        task = asyncio.create_task(leader.run())
        await until(leader.leads)
        act()
        task.cancel()
        await asyncio.wait({task})

    asyncio.run(run())


def locks(database: Database) -> int:
    query = (
        "select count(*) from pg_locks l join pg_database d on d.oid = l.database "
        "where l.locktype = 'advisory' and l.granted and d.datname = %s"
    )
    [(count,)] = database.connect().execute(query, (database.name,)).fetchall()
    assert isinstance(count, int)
    return count


def test_the_server_takes_the_lead_from_a_silent_leader_that_has_given_up_by_then(database: Database) -> None:
    states: list[bool] = []
    leader = Leader(leader_config(database.dsn(), lease=1.0), None, Redactor(), states.append)

    def stand_still() -> None:
        assert locks(database) == 1
        wait_until(lambda: locks(database) == 0, what="the server ends the session")
        assert not leader.leads()

    while_it_runs(leader, stand_still)
    assert states == [False, True, False]


def test_the_lock_is_free_at_the_end(database: Database) -> None:
    leader = Leader(leader_config(database.dsn()), None, Redactor(), lambda _: None)
    while_it_runs(leader, lambda: None)
    wait_until(lambda: locks(database) == 0, what="free")


def test_each_group_and_each_shard_has_a_leader_of_its_own(database: Database) -> None:
    async def run() -> None:
        ways = [("a", None), ("b", None), ("a", Shard(1, 2)), ("a", Shard(2, 2))]
        leaders = [
            Leader(leader_config(database.dsn(), name), shard, Redactor(), lambda _: None)
            for name, shard in ways
        ]
        tasks = [asyncio.create_task(leader.run()) for leader in leaders]
        for leader in leaders:
            await until(leader.leads)
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)

    asyncio.run(run())


class Lead:
    """A lead that a test takes away."""

    def __init__(self) -> None:
        self.gone = asyncio.Event()

    def leads(self) -> bool:
        return not self.gone.is_set()

    async def lost(self) -> None:
        await self.gone.wait()


@pytest.mark.parametrize("protocol", ["grpc", "http"])
def test_a_request_under_way_is_broken_off_and_none_is_begun_without_the_lead(protocol: Any) -> None:
    async def run(endpoint: str) -> None:
        lead = Lead()
        gated = Gated(make_transport(OtlpConfig(endpoint, protocol, {}, 3600.0)), lead)
        request = asyncio.create_task(gated.send(b"", 3600.0))
        await asyncio.sleep(0.2)
        assert not request.done()
        lead.gone.set()
        for sending in (request, gated.send(b"", 3600.0)):
            with pytest.raises(NotLeading):
                async with asyncio.timeout(60):
                    await sending
        await gated.close()

    with silent_server() as number:
        asyncio.run(run(f"http://127.0.0.1:{number}"))


def test_points_that_lose_the_lead_are_counted_as_such() -> None:
    async def run(endpoint: str) -> Ledger:
        lead = Lead()
        way = OtlpConfig(endpoint, "http", {}, 3600.0)
        pusher = Pusher(way, {}, tuple, 3600.0, lambda *_: None, Redactor(), lead=lead)
        pusher.start()
        pusher.push(snapshot(1, 2, 3), time.monotonic() + 3600)
        await asyncio.sleep(0.2)
        assert pusher.queued == 3
        lead.gone.set()
        while pusher.queued:  # noqa: ASYNC110 - there is no event for it
            await asyncio.sleep(0.01)
        await pusher.close(0)
        return pusher.ledger

    with silent_server() as number:
        ledger = asyncio.run(run(f"http://127.0.0.1:{number}"))
    assert (ledger.polled, ledger.sent, +ledger.dropped) == (3, 0, {Drop.NOT_LEADING: 3})


def refusal(config: LeaderConfig, caplog: pytest.LogCaptureFixture) -> str:
    """What a leader says that will not lead."""
    states: list[bool] = []

    async def run() -> None:
        leader = Leader(config, None, Redactor(), states.append)
        task = asyncio.create_task(leader.run())
        await until(lambda: bool(caplog.records))
        task.cancel()
        await asyncio.wait({task})

    caplog.set_level(logging.INFO, "pgque_exporter.leader")
    asyncio.run(run())
    assert states == [False]
    return caplog.records[0].getMessage()


def test_a_pooler_is_refused(database: Database, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    upstream = {key: value for key, value in conninfo_to_dict(database.dsn()).items() if value is not None}
    try:
        with pgbouncer(tmp_path / "pooler", database.name, upstream) as pooler:
            dsn = f"host=127.0.0.1 port={pooler.port} dbname={database.name} user=x"
            message = refusal(leader_config(dsn), caplog)
    except Unavailable as error:
        pytest.skip(f"pgbouncer: {error}")
    assert message == (
        "leader: the leader's dsn leads through a connection pooler, where two could hold the lock; "
        "give it one that leads to the server itself"
    )
    assert locks(database) == 0


@pytest.mark.slow
def test_a_standby_is_refused(caplog: pytest.LogCaptureFixture) -> None:
    with Cluster(embedded_bindir()) as primary, Standby(primary) as standby:
        assert "leads to a standby" in refusal(leader_config(standby.dsn()), caplog)


def test_a_database_that_is_down_is_noted_and_nobody_leads(caplog: pytest.LogCaptureFixture) -> None:
    message = refusal(leader_config("host=127.0.0.1 port=1 user=x password=hunter2"), caplog)
    assert message.startswith('leader: server at "127.0.0.1", port 1: Connection refused; check host')
