"""What happened to the shop's queues in the generated weeks, told backwards from the end.

A shorter history holds what falls into it; the end is the same in all of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

MINUTE, HOUR, DAY = 60, 3600, 86400


@dataclass(frozen=True)
class Span:
    """From `since` to `until`, in Unix seconds, with what it is about as a number."""

    since: int
    until: int
    amount: float = 0.0

    def __contains__(self, moment: float) -> bool:
        return self.since < moment <= self.until


@dataclass(frozen=True)
class ConsumerPlan:
    """How a consumer works.

    speed     events that it can take, for each event sent on a usual day at noon
    batch     seconds that it works on a batch, the median
    hangs     it takes nothing
    falls     it falls behind by `amount` seconds a second
    retried   share of its events that fail once and then succeed
    rejected  `amount` of its events fail at every try
    """

    name: str
    speed: float
    batch: float
    hangs: Sequence[Span] = ()
    falls: Sequence[Span] = ()
    retried: float = 0.0
    rejected: Sequence[Span] = ()


@dataclass(frozen=True)
class QueuePlan:
    """How a queue is used.

    rate      events a second on a usual day at noon
    rotation  seconds of its rotation period
    surges    `amount` times the events that the hour would bring
    replays   when all its dead letters are sent again
    purges    when all its dead letters are thrown away
    """

    name: str
    rate: float
    rotation: int
    consumers: Sequence[ConsumerPlan]
    surges: Sequence[Span] = ()
    replays: Sequence[int] = ()
    purges: Sequence[int] = ()


@dataclass(frozen=True)
class Plan:
    """All that happens.

    stopped     the ticker doesn't run
    unwatched   nobody polls
    restarts    the exporter starts anew
    recounted   the instrumentation is installed again and counts from 0
    """

    queues: Sequence[QueuePlan]
    stopped: Sequence[Span]
    unwatched: Sequence[Span]
    restarts: Sequence[int]
    recounted: Sequence[int]


def plan(end: int, days: int) -> Plan:
    """The plan of the `days` before `end`, in Unix seconds."""

    def span(hours_before: float, hours: float, amount: float = 0.0) -> Span:
        since = end - round(hours_before * HOUR)
        return Span(since, min(end, since + round(hours * HOUR)), amount)

    # Of the weekend two weeks ago: Saturday evening until Sunday afternoon.
    saturday = _last_weekday(end - 9 * DAY, 5) + 20 * HOUR
    weekend = Span(saturday, saturday + 17 * HOUR + 30 * MINUTE)
    mondays = [
        monday
        for monday in (_last_weekday(end, 0) - 7 * DAY * week for week in range(days // 7 + 1))
        if end - days * DAY < monday + 8 * HOUR and monday + 18 * HOUR < end - 12 * HOUR
    ]
    newsletters = [Span(monday + 8 * HOUR, monday + 11 * HOUR, 2.1) for monday in mondays]
    return Plan(
        queues=(
            QueuePlan(
                "orders",
                rate=20,
                rotation=2 * HOUR,
                consumers=(
                    ConsumerPlan("fulfilment", speed=4.0, batch=0.2),
                    ConsumerPlan("analytics", speed=3.0, batch=0.05, hangs=[span(100, 0.25), span(438, 0.5)]),
                ),
            ),
            QueuePlan(
                "emails",
                rate=8,
                rotation=2 * HOUR,
                consumers=(ConsumerPlan("mailer", speed=1.3, batch=0.6, falls=[span(7.5, 7.5, 0.11)]),),
                surges=newsletters,
            ),
            QueuePlan(
                "billing",
                rate=5,
                rotation=12 * HOUR,
                consumers=(ConsumerPlan("ledger", speed=6.0, batch=0.4, hangs=[weekend, span(7, 7)]),),
            ),
            QueuePlan(
                "webhooks",
                rate=4,
                rotation=2 * HOUR,
                consumers=(
                    ConsumerPlan(
                        "deliver",
                        speed=5.0,
                        batch=0.9,
                        retried=0.05,
                        # A shop closed for good, until somebody took it off the list; a partner's bad hours.
                        rejected=[span(254, 50, 0.04), span(30, 2, 0.33)],
                    ),
                ),
                purges=[end - 204 * HOUR],
                replays=[end - 26 * HOUR],
            ),
        ),
        stopped=[span(292, 25 / 60)],
        unwatched=[
            span(520, 50 / 60),
            Span(weekend.since + 6 * HOUR, weekend.since + 9 * HOUR),
            span(172, 25 / 60),
        ],
        restarts=[end - round((172 - 25 / 60) * HOUR), end - 610 * HOUR],
        recounted=[end - 410 * HOUR],
    )


def _last_weekday(before: int, weekday: int) -> int:
    """Midnight UTC of the last such day (0 is Monday) that had begun at `before`."""
    day = datetime.fromtimestamp(before, UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    return round((day - timedelta(days=(day.weekday() - weekday) % 7)).timestamp())
