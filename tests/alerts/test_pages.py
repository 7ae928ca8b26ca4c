"""From a real trouble in a real PostgreSQL to a page at a webhook, over all of the parts in between."""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
import psycopg
import pytest
import yaml

from pgque_exporter.demo.cluster import Cluster, embedded_bindir, free_port
from tests.alerts.delays import PROPERTY
from tests.alerts.documents import ALERTMANAGER, alerts, read
from tests.alerts.stack import HURRIED, SHIPPED, Pace, Stack, run_stack
from tests.alerts.worker import worker
from tests.support.alertmanager import Notified, Receiver, run_receiver
from tests.support.database import ENGINE_INSTALL, PACK_INSTALL, Connection, run_file
from tests.support.processes import Process, wait_for
from tests.support.queue import create_queue, rows, value

SHOP, QUIET = "shop", "quiet"
CONSUMERS = ("ledger", "audit", "mirror")
JOB = "pgque-exporter"
POLL = 1.0  # seconds
QUIET_TIME = 180.0
PATIENCE = 300.0  # only ends what would have failed anyway

Record = Callable[[str, object], None]


@dataclass(frozen=True)
class Scene:
    """A server with two databases, those who work there, and the service that watches."""

    cluster: Cluster
    workers: dict[str, Process]
    exporter: Process
    address: str

    def wait_ready(self) -> None:
        self.exporter.wait_for(
            lambda: httpx.get(f"http://{self.address}/readyz", timeout=10).is_success,
            "the first poll is done",
            ignoring=(httpx.TransportError,),
        )


def lay(cluster: Cluster) -> None:
    """Databases and queues, with limits of their own so that nobody waits for hours."""
    with psycopg.connect(cluster.dsn(), autocommit=True) as admin:
        for database in (SHOP, QUIET):
            admin.execute(f"create database {database}".encode())
    for database in (SHOP, QUIET):
        run_file(cluster.dsn(database), ENGINE_INSTALL)
        run_file(cluster.dsn(database), PACK_INSTALL)
    with psycopg.connect(cluster.dsn(SHOP), autocommit=True) as db:
        db.execute("create role watcher login")
        db.execute("grant pgque_monitor to watcher")
        create_queue(db, "billing", *CONSUMERS)
        create_queue(db, "emails", "mailer")
        for queue in ("billing", "emails"):
            value(db, "select pgque.set_queue_config(%s, 'ticker_max_lag', '500 ms')", queue)
        db.execute(
            "insert into pgque.health_threshold (queue_name, lag_critical, unticked_grace)"
            " values ('billing', '5 s', null), ('emails', null, '4 s')"
        )
    with psycopg.connect(cluster.dsn(QUIET), autocommit=True) as db:
        create_queue(db, "idle", "app")
        create_queue(db, "nobody there")


@contextmanager
def scene(folder: Path) -> Iterator[Scene]:
    with ExitStack() as stack:
        cluster = stack.enter_context(Cluster(embedded_bindir()))
        lay(cluster)
        shop, quiet = cluster.dsn(SHOP), cluster.dsn(QUIET)
        workers = {
            "producer": worker(folder, "send", shop, "billing", "emails"),
            "ticker of billing": worker(folder, "tick", shop, "billing"),
            "ticker of emails": worker(folder, "tick", shop, "emails"),
            "ticker of idle queues": worker(folder, "tick", quiet, "idle", "nobody there"),
            "mailer": worker(folder, "consume", shop, "emails", "mailer"),
            **{name: worker(folder, "consume", shop, "billing", name) for name in CONSUMERS},
        }
        for process in workers.values():
            stack.enter_context(process)
        address = f"127.0.0.1:{free_port()}"
        targets = [{"name": name, "dsn": cluster.dsn(name, "watcher")} for name in (SHOP, QUIET)]
        config = folder / "exporter.yaml"
        config.write_text(yaml.safe_dump({"listen": address, "interval": "1s", "targets": targets}))
        program = Path(sys.executable).with_name("pgque-exporter")
        exporter = Process([program, "run", "--config", config], log=folder / "exporter.log")
        stack.enter_context(exporter)
        staged = Scene(cluster, workers, exporter, address)
        staged.wait_ready()
        yield staged


@dataclass(frozen=True)
class Watch:
    """One of the stacks, and what came of it."""

    pace: Pace
    stack: Stack
    receiver: Receiver
    record: Record

    def notified(self) -> list[Notified]:
        """All but the watchdog."""
        ours = [one for one in list(self.receiver.notified) if one.path.startswith(self.stack.path + "/")]
        return [one for one in ours if one.name != "PgQueWatchdog"]

    def page(self, alert: str, **labels: str) -> Notified:
        """Wait for a page."""

        def come() -> Notified | None:
            for one in self.notified():
                if one.name == alert and one.status == "firing" and labels.items() <= one.labels.items():
                    return one
            return None

        found = wait_for(come, f"{alert} {labels} at the webhook", timeout=PATIENCE)
        assert found is not None
        assert found.path == f"{self.stack.path}/pager"
        return found

    def note(self, what: str, page: Notified, *, cause: float, true: float) -> None:
        """Record how long a page took; no one is judged by it."""
        rule = alerts()[page.name]
        at_most = self.pace.at_most(
            poll=POLL, wait=_seconds(rule.get("for", "0s")), group_wait=_seconds(_group_wait())
        )
        self.record(PROPERTY, [self.pace.name, what, page.time - cause, page.time - true, at_most])

    def firing(self) -> set[tuple[str, str]]:
        """Alerts that fire in Prometheus: name, and consumer or else queue or database."""
        return {
            (one["labels"]["alertname"], *_whose(one["labels"]))
            for one in self.stack.prometheus.alerts()
            if one["state"] == "firing" and one["labels"]["alertname"] != "PgQueWatchdog"
        }


def _whose(labels: dict[str, str]) -> tuple[str]:
    return (labels.get("consumer") or labels.get("queue") or labels.get("database") or "",)


def _seconds(duration: str) -> float:
    return float(duration[:-1]) * {"s": 1, "m": 60, "h": 3600}[duration[-1]]


def _group_wait() -> str:
    """Of pages, in the shipped example."""
    routes = read(ALERTMANAGER)["route"]["routes"]
    (wait,) = {route["group_wait"] for route in routes if route["receiver"] == "pager"}
    return str(wait)


def until_critical(db: Connection, queue: str, check: str) -> float:
    """When the database itself calls a check critical."""
    wait_for(
        lambda: rows(
            db,
            "select from pgque.queue_health() where (queue_name, check_name, status) = (%s, %s, 'critical')",
            queue,
            check,
        ),
        f"{check} of {queue} is critical",
        timeout=60,
    )
    return time.monotonic()


@pytest.fixture
def staged(tmp_path: Path) -> Iterator[Scene]:
    with scene(tmp_path) as laid:
        yield laid


@contextmanager
def watch(pace: Pace, staged: Scene, folder: Path, record: Record) -> Iterator[Watch]:
    """A stack that is at work and has nothing to tell."""
    with (
        run_receiver() as receiver,
        run_stack(pace, {JOB: [staged.address]}, receiver, folder / "stack") as stack,
    ):
        stack.prometheus.wait_for("count(pgque_up == 1) == 2", timeout=60)
        wait_for(stack.prometheus.alertmanagers, "Prometheus knows its Alertmanager")
        begun = Watch(pace, stack, receiver, record)
        assert begun.notified() == []
        yield begun
        # Told again after a minute, since Prometheus knew no Alertmanager when it began to fire.
        watchdog = wait_for(
            lambda: receiver.first(lambda one: one.name == "PgQueWatchdog"), "the watchdog", timeout=90
        )
        assert watchdog is not None
        assert watchdog.path == f"{stack.path}/watchdog"
        assert [rule["lastError"] for rule in stack.prometheus.rules() if "lastError" in rule] == []


@pytest.mark.slow
def test_trouble_pages_and_its_consequences_do_not(
    staged: Scene, tmp_path: Path, record_property: Record
) -> None:
    with watch(HURRIED, staged, tmp_path, record_property) as hurried:
        for consumer in CONSUMERS:
            page = the_consumer_is_killed(consumer, staged, hurried)
        assert page.labels["database"] == SHOP
        assert page.annotations["summary"] == f"shop/billing/{CONSUMERS[-1]}: consumer_lag is critical"
        assert page.annotations["runbook_url"] == "/alerts/runbooks/PgQueHealthCritical.md"
        assert page.annotations["dashboard_url"] == "/d/pgque-queue?var-database=shop&var-queue=billing"
        the_ticker_is_stopped(staged, hurried)
        the_exporter_is_killed(staged, hurried)
        postgresql_is_stopped(staged, hurried)


@pytest.mark.slow
def test_three_quiet_minutes_beside_a_page_as_shipped(
    staged: Scene, tmp_path: Path, record_property: Record
) -> None:
    with watch(SHIPPED, staged, tmp_path, record_property) as shipped:
        begun = time.monotonic()
        the_consumer_is_killed(CONSUMERS[0], staged, shipped)
        wait_for(lambda: time.monotonic() - begun > QUIET_TIME, "three minutes are over", timeout=PATIENCE)
        assert {(one.name, one.labels.get("consumer")) for one in shipped.notified()} == {
            ("PgQueHealthCritical", CONSUMERS[0])
        }
        assert {one.labels["database"] for one in shipped.notified()} == {SHOP}


def the_consumer_is_killed(name: str, staged: Scene, watch: Watch) -> Notified:
    """It has its own page."""
    assert not [one for one in watch.notified() if one.labels.get("consumer") == name]
    with psycopg.connect(staged.cluster.dsn(SHOP), autocommit=True) as db:
        cause = time.monotonic()
        staged.workers[name].send_signal(signal.SIGKILL)
        true = until_critical(db, "billing", f"consumer_lag:{name}")
    page = watch.page("PgQueHealthCritical", consumer=name, check="consumer_lag")
    watch.note("a consumer is killed", page, cause=cause, true=true)
    return page


def the_ticker_is_stopped(staged: Scene, hurried: Watch) -> None:
    with psycopg.connect(staged.cluster.dsn(SHOP), autocommit=True) as db:
        cause = time.monotonic()
        staged.workers["ticker of emails"].stop()
        true = until_critical(db, "emails", "ticker_running")
    page = hurried.page("PgQueTickerStalled", queue="emails")
    hurried.note("the ticker is stopped", page, cause=cause, true=true)
    assert "PgQueTickerStalled" not in {
        one.name for one in hurried.notified() if one.labels["queue"] != "emails"
    }


def the_exporter_is_killed(staged: Scene, hurried: Watch) -> None:
    """It has its own page, and the old ones stay."""
    pages = hurried.firing()
    assert {alert for alert, _ in pages} == {"PgQueHealthCritical", "PgQueTickerStalled"}
    cause = time.monotonic()
    staged.exporter.send_signal(signal.SIGKILL)
    page = hurried.page("PgQueExporterDown", instance=staged.address)
    hurried.note("the exporter is killed", page, cause=cause, true=cause)
    # Until nothing of what it told is left, not even in the window of a rule.
    prometheus = hurried.stack.prometheus
    prometheus.wait_for("absent(pgque_up)")
    window = 'max_over_time(pgque_queue_health_state{state="critical"}[1m]) == 1'
    prometheus.wait_for(window, lambda samples: not samples, timeout=PATIENCE)
    assert hurried.firing() >= pages
    assert [one for one in hurried.notified() if one.status == "resolved"] == []
    staged.exporter.wait(20)
    staged.exporter.start()
    staged.wait_ready()
    prometheus.wait_for("count(pgque_up == 1) == 2", timeout=60)


def postgresql_is_stopped(staged: Scene, hurried: Watch) -> None:
    """One page, whatever else fires of its databases."""
    before = len(hurried.notified())
    cause = time.monotonic()
    staged.cluster.stop()
    pages = [hurried.page("PgQueDatabaseUnreachable", database=name) for name in (SHOP, QUIET)]
    hurried.note("PostgreSQL is stopped", min(pages, key=lambda page: page.time), cause=cause, true=cause)

    def suppressed() -> set[str]:
        return {
            one["labels"]["alertname"]
            for one in hurried.stack.alertmanager.alerts()
            if one["labels"].get("database") == SHOP and one["status"]["state"] == "suppressed"
        }

    wait_for(lambda: suppressed() >= {"PgQueHealthCritical", "PgQueTickerStalled"}, "the symptoms keep quiet")
    # What a stale page and a look-back leave behind is over after some seconds more.
    hurried.stack.prometheus.wait_for("absent(pgque_queue_health_state)", timeout=60)
    since = [one for one in hurried.notified()[before:] if one.status == "firing"]
    assert {one.name for one in since} == {"PgQueDatabaseUnreachable"}
