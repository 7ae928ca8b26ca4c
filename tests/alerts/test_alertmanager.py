"""The example for Alertmanager: who is told, and which alerts keep quiet because another one says why."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pytest

from tests.alerts.documents import ALERTMANAGER, alerts, read
from tests.support.alertmanager import Alertmanager, amtool, run_alertmanager
from tests.support.processes import wait_for

Labels = Mapping[str, str]

SHOP = {"job": "pgque-exporter", "database": "shop"}
BILLING = {**SHOP, "engine": "pgque", "queue": "billing"}
LEDGER = {**BILLING, "consumer": "ledger"}


def alert(name: str, labels: Labels, **more: str) -> Labels:
    return {"alertname": name, "severity": alerts()[name]["labels"]["severity"], **labels, **more}


UNREACHABLE = alert("PgQueDatabaseUnreachable", SHOP)
DOWN = alert("PgQueExporterDown", {"job": "pgque-exporter", "instance": "a:9718"})
STALLED = alert("PgQueTickerStalled", BILLING, check="ticker_running")
FAR_BEHIND = alert("PgQueHealthCritical", LEDGER, check="consumer_lag")
MISSING_TICK = alert("PgQueHealthCritical", LEDGER, check="missing_tick")
DYING = alert("PgQueHealthCritical", BILLING, check="dlq_health")
NO_PG_CRON = alert("PgQueHealthCritical", {**BILLING, "queue": "system"}, check="pg_cron_ticker")
RESTORED = alert("PgQueHealthCritical", BILLING, check="xid_regression")
STUCK = alert("PgQueConsumerStuck", LEDGER)
NEAR = alert("PgQueConsumerLagNearRotation", LEDGER)
BLOCKED = alert("PgQueRotationBlocked", BILLING)
BACKLOG = alert("PgQueBacklogGrowing", LEDGER)
LAG_WARNING = alert("PgQueHealthWarning", LEDGER, check="consumer_lag")
DLQ_WARNING = alert("PgQueHealthWarning", BILLING, check="dlq_health")
NOBODY = alert("PgQueHealthWarning", BILLING, check="no_consumers")
UNKNOWN = alert("PgQueHealthUnknown", LEDGER, check="consumer_lag")
LETTERS = alert("PgQueDeadLettersGrowing", BILLING)
NACKS = alert("PgQueNackRatioHigh", LEDGER)
PAUSED = alert("PgQueQueuePausedTooLong", BILLING)
FAST = alert("PgQueFreshnessBudgetBurningFast", LEDGER)
SLOW = alert("PgQueFreshnessBudgetBurningSlowly", LEDGER)
UNUSUAL = alert("PgQueConsumerLagUnusual", LEDGER)
FORESEEN = alert("PgQueRotationWillBeBlocked", LEDGER)
STALE = alert("PgQueMetricsStale", SHOP)
ABSENT = alert("PgQueMetricsAbsent", SHOP)
REPLICA = alert("PgQueExporterReplicaDown", {"job": "pgque-exporter", "instance": "a:9718"})
WATCHDOG = alert("PgQueWatchdog", {})

OF_QUEUES = [
    *(STALLED, FAR_BEHIND, STUCK, NEAR, BLOCKED, BACKLOG, LAG_WARNING),
    *(UNKNOWN, LETTERS, NACKS, PAUSED, FAST, SLOW, UNUSUAL, FORESEEN),
]

# What fires together -> what of it is told.
SITUATIONS: Mapping[str, tuple[list[Labels], list[Labels]]] = {
    "PostgreSQL is gone": ([UNREACHABLE, STALE, *OF_QUEUES, WATCHDOG], [UNREACHABLE, WATCHDOG]),
    "the exporter is gone": ([DOWN, ABSENT, STALE, FAR_BEHIND], [DOWN, FAR_BEHIND]),
    "the only exporter left is gone": ([DOWN, REPLICA], [DOWN]),
    "pg_cron stands still": ([NO_PG_CRON, STALLED, FAST, BACKLOG], [NO_PG_CRON]),
    "a dump was restored": ([RESTORED, STALLED], [RESTORED]),
    "the ticker stands still": ([STALLED, FAST, SLOW, NEAR, BACKLOG], [STALLED]),
    "a consumer is dead": (
        [FAR_BEHIND, STUCK, NEAR, BLOCKED, BACKLOG, LAG_WARNING, FAST, SLOW],
        [FAR_BEHIND],
    ),
    "a consumer can't go on": ([MISSING_TICK, UNKNOWN, BLOCKED], [MISSING_TICK]),
    "a consumer has stopped": ([STUCK, NEAR, BLOCKED, BACKLOG, LAG_WARNING, SLOW], [STUCK]),
    "a warning silences no page": ([STUCK, FAST, NEAR, SLOW], [STUCK, FAST]),
    "a consumer is slow": ([NEAR, LAG_WARNING, UNUSUAL, FORESEEN], [NEAR]),
    "a consumer gets slow": ([UNUSUAL, FORESEEN], [UNUSUAL, FORESEEN]),
    "no tick was foretold": ([STALLED, UNUSUAL, FORESEEN], [STALLED]),
    "what was foretold has come": ([FAR_BEHIND, UNUSUAL, FORESEEN], [FAR_BEHIND]),
    "events die": ([DYING, LETTERS, NACKS], [DYING]),
    "some events die": ([LETTERS, DLQ_WARNING, NACKS], [LETTERS, NACKS]),
    "four troubles are four alerts": (
        [FAR_BEHIND, PAUSED, NOBODY, DLQ_WARNING],
        [FAR_BEHIND, PAUSED, NOBODY, DLQ_WARNING],
    ),
}


def elsewhere(labels: Labels, label: str) -> Labels:
    """The same alert of another job, database, queue or consumer."""
    return {**labels, label: f"other {labels[label]}"}


@pytest.fixture(scope="module")
def alertmanager(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Alertmanager]:
    with run_alertmanager(read(ALERTMANAGER), folder=tmp_path_factory.mktemp("alertmanager")) as server:
        yield server


def told(server: Alertmanager, posted: list[Labels], world: str) -> list[Labels]:
    """What Alertmanager lets through of these, in a world of their own."""
    # Judged in the order of their coming: once the last of all is suppressed, the others are as they will be.
    last = {"database": "of the last"}
    everything = [*posted, {**UNREACHABLE, **last}, {**STALE, **last}]
    moved = [{**labels, "job": f"{labels.get('job', '')} {world}"} for labels in everything]
    server.post(moved)

    def suppressed() -> list[Labels] | None:
        found = {frozenset(one["labels"].items()): one["status"]["state"] for one in server.alerts()}
        states = [found.get(frozenset(labels.items())) for labels in moved]
        quiet = [labels for labels, state in zip(everything, states, strict=True) if state == "suppressed"]
        return quiet if states[-1] == "suppressed" and "unprocessed" not in states else None

    quiet = wait_for(suppressed, "Alertmanager has judged the alerts")
    assert quiet is not None
    return [labels for labels in posted if labels not in quiet]


@pytest.mark.parametrize("situation", SITUATIONS)
def test_the_cause_is_told_and_its_consequences_are_not(situation: str, alertmanager: Alertmanager) -> None:
    fires, expected = SITUATIONS[situation]
    assert told(alertmanager, fires, situation) == expected


@pytest.mark.parametrize("situation", SITUATIONS)
def test_what_happens_elsewhere_is_told(situation: str, alertmanager: Alertmanager) -> None:
    """The consequences without their cause, which is in another database or queue."""
    fires, expected = SITUATIONS[situation]
    consequences = [labels for labels in fires if labels not in expected]
    if not consequences:
        return
    causes = [labels for labels in expected if labels is not WATCHDOG]
    label = "consumer" if all("consumer" in one for one in causes) else "database"
    label = label if all(label in one for one in causes) else "job"
    moved = [elsewhere(labels, label) for labels in causes]
    heard = told(alertmanager, [*moved, *consequences], f"not {situation}")
    assert [labels for labels in moved if labels not in heard] == []
    # Among themselves the consequences may still be cause and consequence.
    assert any(labels in heard for labels in consequences)


def test_amtool_accepts_it() -> None:
    result = amtool("check-config", ALERTMANAGER)
    assert result.returncode == 0, result.stdout + result.stderr
    assert "SUCCESS" in result.stdout


@pytest.mark.parametrize("name", alerts())
def test_each_alert_goes_where_its_severity_says(name: str) -> None:
    severity = alerts()[name]["labels"]["severity"]
    receiver = {"critical": "pager", "warning": "tickets", "none": "watchdog"}[severity]
    labels = (f"alertname={name}", f"severity={severity}")
    result = amtool("config", "routes", "test", f"--config.file={ALERTMANAGER}", *labels)
    assert result.stdout.strip() == receiver, result.stderr
