"""Whether the service works, and whether the queues do: three answers, none of which asks a database.

`/livez`    200 while the event loop runs and every poll task is alive; else 503: restart the process.
`/readyz`   200 once every target has finished a first poll, well or badly; before that 503.
`/healthz`  200 unless something is critical, then 503: a target that is down (reported as the check
            `database`) or a check of a queue whose state is critical. Warnings and unknown states
            leave it at 200 and are listed. Data that has become stale is not judged any more.

All three tell what is known and how old it is.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from pgque_exporter.snapshot import HealthCheck
from pgque_exporter.state import Failure, TargetState

DATABASE_CHECK = "database"


@dataclass(frozen=True, slots=True)
class TargetHealth:
    """One target. Ages in seconds, times in Unix seconds.

    `checks` are those that aren't ok, the worst first.
    """

    name: str
    status: str  # ok, warning, critical, or unknown before the first poll
    up: bool
    snapshot_age: float | None
    last_success: float | None
    failure: Failure | None
    series: int
    checks_ok: int
    checks: tuple[HealthCheck, ...]
    packs: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Health:
    """All targets and the worst of their states."""

    status: str
    targets: tuple[TargetHealth, ...]

    @property
    def http_status(self) -> int:
        """The status code of /healthz."""
        return 503 if self.status == "critical" else 200


STATUSES = ("ok", "unknown", "warning", "critical")  # from nothing to worry about to the worst


def worst(statuses: Sequence[str]) -> str:
    """The one to worry about most; ok if there is none."""
    return max(statuses, key=STATUSES.index, default="ok")


def by_urgency(checks: Iterable[HealthCheck]) -> list[HealthCheck]:
    """Those to worry about most first; equals stay in their order."""
    return sorted(checks, key=lambda check: STATUSES.index(check.status), reverse=True)


def assess(states: Sequence[TargetState], clock: float) -> Health:
    """The health of all targets at monotonic time `clock`."""
    targets = tuple(_assess_target(state, clock) for state in states)
    return Health(worst([target.status for target in targets]), targets)


def _assess_target(state: TargetState, clock: float) -> TargetHealth:
    snapshot = state.fresh(clock)
    checks = snapshot.checks if snapshot is not None else ()
    if state.failure is not None:
        down = HealthCheck(
            "", "", DATABASE_CHECK, "critical", f"{state.failure.kind}: {state.failure.message}"
        )
        checks = (down, *checks)
    age = state.age(clock)
    return TargetHealth(
        name=state.name,
        status=worst([check.status for check in checks]) if state.polled else "unknown",
        up=state.up,
        snapshot_age=None if age is None else round(age, 3),
        last_success=state.last_success,
        failure=state.failure,
        series=snapshot.points if snapshot is not None else 0,
        checks_ok=snapshot.checks_ok if snapshot is not None else 0,
        checks=tuple(by_urgency(checks)),
        packs=tuple(f"{pack.engine} {pack.engine_version}".strip() for pack in state.packs),
    )


def ready(states: Sequence[TargetState]) -> bool:
    """Whether every target has finished a first poll, well or badly."""
    return all(state.polled for state in states)
