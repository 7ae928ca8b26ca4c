from __future__ import annotations

import re

import pytest

from pgque_exporter import status_page
from pgque_exporter.connection import FailureKind
from pgque_exporter.health import assess, ready
from pgque_exporter.overview import queues
from pgque_exporter.snapshot import HealthCheck
from pgque_exporter.state import Failure, TargetState
from tests.exporter.harness import snapshot

CLOCK = 1000.0


def state(*statuses: str, age: float = 1.0, failure: Failure | None = None) -> TargetState:
    checks = tuple(HealthCheck("toy", "q0", "lag", status, "why") for status in statuses)
    return TargetState(
        "shop",
        interval=15,
        stale_after=60,
        polled=True,
        failure=failure,
        snapshot=snapshot(1, checks=checks, checks_ok=3),
        snapshot_clock=CLOCK - age,
        last_success=5.0,
    )


DOWN = Failure(FailureKind.CONNECTION, "refused", 7.0)
FIRST = TargetState("new", interval=15, stale_after=60)


@pytest.mark.parametrize(
    ("states", "status", "code"),
    [
        ([], "ok", 200),
        ([state()], "ok", 200),
        ([state("warning")], "warning", 200),
        ([state("unknown")], "unknown", 200),
        ([state("warning", "critical", "unknown")], "critical", 503),
        ([state(), state("critical")], "critical", 503),
        ([FIRST], "unknown", 200),
        ([state(failure=DOWN)], "critical", 503),
        ([state("critical", age=61)], "ok", 200),  # stale: not judged; the target's own failure is
    ],
)
def test_overall_status_and_code(states: list[TargetState], status: str, code: int) -> None:
    health = assess(states, CLOCK)
    assert (health.status, health.http_status) == (status, code)


def test_a_target_that_is_down_is_a_check_of_its_own() -> None:
    [target] = assess([state("warning", failure=DOWN)], CLOCK).targets
    assert [(check.check, check.status) for check in target.checks] == [
        ("database", "critical"),
        ("lag", "warning"),
    ]
    assert target.checks[0].detail == "connection: refused"
    assert (target.up, target.snapshot_age, target.checks_ok) == (False, 1.0, 3)


def test_the_worst_checks_come_first() -> None:
    mixed = state("unknown", "warning", "critical", "warning", failure=DOWN)
    health = assess([mixed], CLOCK)
    expected = ["critical", "warning", "warning", "unknown"]
    assert [check.status for check in health.targets[0].checks] == ["critical", *expected]
    assert mixed.snapshot is not None
    views = queues(mixed.snapshot)
    assert [check.status for view in views for check in view.checks] == expected
    page = status_page.render(health, {"shop": views})
    rows = page[page.index("<tbody>") :]
    assert re.findall(r'class="note".*?class="pill (\w+)', rows) == expected


def test_ready_means_that_every_target_was_polled_well_or_badly() -> None:
    assert ready([])
    assert ready([state(), state(failure=DOWN)])
    assert not ready([state(), FIRST])
