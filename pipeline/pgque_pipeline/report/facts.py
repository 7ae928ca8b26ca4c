"""What a report tells, as plain data: the tables' rows that matter most, and how many others there are.

Times are UTC. What isn't known is None.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime


@dataclass(frozen=True)
class Entity:
    """A queue, or a consumer of it. `others` are labels beside these that tell it from its like."""

    engine: str | None
    database: str | None
    queue: str | None
    consumer: str | None
    others: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class Gap:
    """A time in which nobody watched a database."""

    database: str | None
    begin: datetime
    end: datetime


@dataclass(frozen=True)
class Scope:
    """What the report is about.

    begin          of the window that is reported; it ends with `as_of`
    first, as_of   first and newest point of all
    time_zone      IANA name
    databases      the first of them by name; `database_count` are all
    points         in the window
    generated      whether the data say of themselves that they were generated
    """

    begin: datetime
    first: datetime
    as_of: datetime
    time_zone: str
    databases: Sequence[str]
    database_count: int
    queue_count: int
    consumer_count: int
    points: int
    generated: bool


@dataclass(frozen=True)
class Promise:
    """How an objective was kept for one queue or consumer.

    attainment, burn  over the report's window; `burns` the burn over others, by their hours
    budget            (end of a stretch of time, share of the error budget that was left then)
    """

    objective: str
    entity: Entity
    target: float
    attainment: float
    burn: float
    burns: Mapping[int, float] = field(default_factory=dict)
    budget: Sequence[tuple[datetime, float]] = ()


@dataclass(frozen=True)
class Objective:
    """An objective, what it means in words, and those of its promises that came off worst."""

    name: str
    meaning: str
    target: float
    promised: int
    broken: int
    worst: Sequence[Promise]


@dataclass(frozen=True)
class Incident:
    """A time in which a check was warning or critical; `ended` is None while no end is known."""

    entity: Entity
    check: str
    started: datetime
    ended: datetime | None
    last_seen: datetime
    worst: str
    warning_seconds: float
    critical_seconds: float
    unknown_seconds: float


@dataclass(frozen=True)
class Turn:
    """A time in which a check was in one state."""

    state: str
    begin: datetime
    end: datetime


@dataclass(frozen=True)
class Track:
    """What was known of a check all along; between the turns nothing was."""

    entity: Entity
    check: str
    incidents: int
    bad_seconds: float
    turns: Sequence[Turn]


@dataclass(frozen=True)
class Incidents:
    """Incidents of the window: how many in all, those that matter most, and the checks behind them.

    worst    those that are going on, then those that were critical longest
    longest  of those that are over
    """

    count: int = 0
    critical: int = 0
    going_on: int = 0
    worst: Sequence[Incident] = ()
    longest: Sequence[Incident] = ()
    tracks: Sequence[Track] = ()
    track_count: int = 0


@dataclass(frozen=True)
class Flow:
    """Events a second of a queue by hour: (begin, sent, acknowledged by the slowest consumer)."""

    entity: Entity
    sent: float
    hours: Sequence[tuple[datetime, float | None, float | None]]


@dataclass(frozen=True)
class Lag:
    """Seconds of a consumer's lag by hour: (begin, p50, p95, p99)."""

    entity: Entity
    rotation_period: float | None
    hours: Sequence[tuple[datetime, float, float, float]]


@dataclass(frozen=True)
class Week:
    """The usual rate of a queue, in events a second, by hour of the week; 0 is Monday's first."""

    entity: Entity
    medians: Mapping[int, float]


@dataclass(frozen=True)
class Forecast:
    """Seconds until a consumer's lag passes the rotation period, from `as_of` on.

    earliest, latest  95 % interval; None where lag may as well not grow
    trail             (time, lag) of the newest hours
    """

    entity: Entity
    as_of: datetime
    lag: float
    rotation_period: float
    left: float
    earliest: float | None
    latest: float | None
    trail: Sequence[tuple[datetime, float]] = ()


@dataclass(frozen=True)
class DeadLetters:
    """Dead letters of one fault."""

    entity: Entity
    event_type: str | None
    reason: str | None
    count: int
    first: datetime | None
    last: datetime | None
    example: str | None


@dataclass(frozen=True)
class Refused:
    """Input that could not be used for one reason."""

    reason: str
    count: int
    files: int


@dataclass(frozen=True)
class Facts:
    """All that a report tells. Lists are bounded; beside each stands how many there are in all.

    unjudged  objectives by name that nothing in the window is about
    """

    scope: Scope
    objectives: Sequence[Objective] = ()
    unjudged: Sequence[str] = ()
    incidents: Incidents = field(default_factory=Incidents)
    flows: Sequence[Flow] = ()
    flow_count: int = 0
    lags: Sequence[Lag] = ()
    lag_count: int = 0
    weeks: Sequence[Week] = ()
    week_count: int = 0
    forecasts: Sequence[Forecast] = ()
    growing: int = 0
    judged: int = 0
    dead_letters: Sequence[DeadLetters] = ()
    dead_letter_count: int = 0
    dead_letter_groups: int = 0
    refused: Sequence[Refused] = ()
    refused_count: int = 0
    gaps: Sequence[Gap] = ()
    gap_count: int = 0
    unwatched_seconds: float = 0.0
