"""What the contract must answer, worked out a second time: plain loops over every row of the tables.

Nothing here calls a function of the pack or looks like its SQL. Where the two differ, one of them is wrong.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from fractions import Fraction

from tests.observability.tables import ZERO, Event, Queue, Subscription, Tick
from tests.support.observed import Row

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
COUNTED = 2000  # dead letters and retries are counted up to here
LOOKED_AT = 200  # a poll looks at fewer events than these of a queue or a consumer
HOUR = timedelta(hours=1)


@dataclass(frozen=True)
class Thresholds:
    """Where the checks of one queue leave ok."""

    idle_periods: float  # an idle queue is ticked once in each,
    tick_grace: timedelta  # a bit late at worst
    unticked_grace: timedelta  # beyond the ticker's max lag
    lag_warning: timedelta
    lag_critical: timedelta
    stuck_after: timedelta
    rotation_periods: float
    rotation_grace: timedelta
    retry_grace: timedelta
    dead_letters_warning: int  # more than these
    dead_letters_hour_warning: int
    dead_letters_hour_critical: int


def thresholds(queue: Queue) -> Thresholds:
    """The queue's own where it has any, else those for all queues, else by its rotation period."""
    period = queue.row["queue_rotation_period"]
    values = {
        "idle_periods": 1.5,
        "lag_warning": period / 2,
        "lag_critical": period,
        "stuck_after": max(HOUR, period / 2),
        "rotation_periods": 2.0,
    }
    for row in (queue.common_thresholds, queue.thresholds):
        values |= {name: value for name, value in row.items() if name != "queue_name" and value is not None}
    return Thresholds(**values)


@dataclass(frozen=True)
class Arguments:
    """What the functions that take arguments are asked."""

    threshold: timedelta
    history: timedelta
    bucket_size: timedelta
    period: timedelta
    max_events: int


ARGUMENTS = (
    Arguments(HOUR, timedelta(minutes=15), timedelta(seconds=30), HOUR, 100_000),
    Arguments(timedelta(seconds=20), 3 * HOUR, timedelta(minutes=7), timedelta(seconds=90), 100_000),
    Arguments(timedelta(minutes=5), timedelta(seconds=100), timedelta(seconds=1.7), 4 * HOUR, 6),
)


# ---- consumers -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Span:
    """Events between two ticks that are to be processed; without a tick it can't be known which."""

    start: Tick | None
    end: Tick | None


@dataclass(frozen=True)
class Consumer:
    """One logical consumer: a subscription of its own, or the main row of a group with its members."""

    queue: Queue
    main: Subscription
    members: list[Subscription]

    @property
    def name(self) -> str:
        return self.main.consumer

    @property
    def rows(self) -> list[Subscription]:
        return [self.main, *self.members]

    @property
    def last_active(self) -> datetime:
        return max(row.active for row in self.rows)

    @property
    def position(self) -> Tick | None:
        return self.queue.tick(self.main.last_tick)

    @property
    def open_batches(self) -> list[Subscription]:
        return [row for row in self.rows if row.batch is not None]

    @property
    def spans(self) -> list[Span]:
        """All it has to process: what follows its position, and what members took from before it."""
        return [Span(self.position, self.queue.last_tick)] + [
            batch(self.queue, member) for member in self.members if member.batch is not None
        ]

    @property
    def missing_tick(self) -> bool:
        """Whether it can't go on: a tick that it needs is gone."""
        needed = self.spans + [batch(self.queue, row) for row in self.open_batches]
        return any(span.start is None or span.end is None for span in needed)

    @property
    def base(self) -> Tick | None:
        """The tick after which its oldest pending event came."""
        starts = [span.start for span in self.spans if span.start is not None]
        return min(starts, key=lambda tick: tick.tick_id, default=None)

    def owns(self, event: Event) -> bool:
        """A retried event is for the subscription that failed on it."""
        return event.owner is None or event.owner in [row.sub_id for row in self.rows]


def consumers(queue: Queue) -> list[Consumer]:
    """The logical consumers of a queue."""
    return [
        Consumer(
            queue,
            main,
            [row for row in queue.subscriptions if row.role == "coop_member" and row.parent == main.sub_id],
        )
        for main in queue.subscriptions
        if main.role != "coop_member"
    ]


def batch(queue: Queue, holder: Subscription) -> Span:
    """An open batch."""
    return Span(queue.tick(holder.last_tick), queue.tick(holder.next_tick))


# ---- how much waits ------------------------------------------------------------------------------------


def events_after(queue: Queue, tick: Tick) -> list[Event]:
    """Committed events that the tick doesn't cover; also older ones, if they were committed late."""
    return [event for event in queue.events if not tick.snapshot.sees(event.txid)]


def events_between(queue: Queue, start: Tick, end: Tick) -> list[Event]:
    """Those that the later tick covers and the earlier one doesn't."""
    return [event for event in events_after(queue, start) if end.snapshot.sees(event.txid)]


def events_of(consumer: Consumer, span: Span) -> list[Event] | None:
    """Exactly those of a span that are the consumer's."""
    if span.start is None or span.end is None:
        return None
    return [event for event in events_between(consumer.queue, span.start, span.end) if consumer.owns(event)]


def receivable(consumer: Consumer) -> list[Event] | None:
    """Exactly the events that it would still get if no further tick came, its open batches included."""
    if consumer.missing_tick:
        return None
    return [event for span in consumer.spans for event in events_of(consumer, span) or []]


def unticked_of(consumer: Consumer) -> list[Event] | None:
    """Exactly those that it will get by the next tick."""
    start, end = consumer.position, consumer.queue.last_tick
    if start is None or end is None:
        return None
    after = events_after(consumer.queue, start)
    return [event for event in after if not end.snapshot.sees(event.txid) and consumer.owns(event)]


@dataclass(frozen=True)
class Count:
    """How many events the contract may say there are, from `low` to `high`."""

    low: int
    high: int

    @classmethod
    def exactly(cls, number: int) -> Count:
        return cls(number, number)

    @classmethod
    def by_sequence(cls, bound: int, exact: int) -> Count:
        """As many as the event sequence went on, and up to all if those are more."""
        return cls(bound, max(bound, exact))

    def __add__(self, other: Count) -> Count:
        return Count(self.low + other.low, self.high + other.high)


@dataclass(frozen=True)
class Pending:
    """Events that a consumer has to process."""

    ticked: Count | None  # it could take them now, or took them and hasn't finished
    unticked: Count | None

    @property
    def total(self) -> Count | None:
        return None if self.ticked is None or self.unticked is None else self.ticked + self.unticked


def pending(consumer: Consumer) -> Pending:
    """What the contract may say of it: the truth, unless there are too many events to look at."""
    queue, base = consumer.queue, consumer.base
    exact, coming = receivable(consumer), unticked_of(consumer)
    bound = known_sum(steps(span) for span in consumer.spans)
    if exact is None or coming is None or bound is None or base is None:
        return Pending(None, unticked(queue))
    if len(events_after(queue, base)) < LOOKED_AT:
        return Pending(Count.exactly(len(exact)), Count.exactly(len(coming)))
    return Pending(Count.by_sequence(bound, len(exact)), unticked(queue))


def unticked(queue: Queue) -> Count | None:
    """Events that no tick covers yet."""
    last = queue.last_tick
    if last is None:
        return None
    exact = len(events_after(queue, last))
    if exact < LOOKED_AT:
        return Count.exactly(exact)
    return Count.by_sequence(max(0, queue.sent - last.seq), exact)


def unticked_since(queue: Queue) -> datetime | None:
    """Since when the oldest of them waits. A retried event keeps its first time, and would look old."""
    last = queue.last_tick
    if last is None or not events_after(queue, last):
        return None
    first_times = [event.time for event in events_after(queue, last) if event.retry is None]
    since = min(first_times, default=last.time)
    # A tick that lies ahead has the time of another clock.
    return since if last.time > queue.now else max(last.time, since)


def lag(consumer: Consumer) -> timedelta | None:
    """How long its oldest pending event may have waited."""
    waiting, base, last = pending(consumer), consumer.base, consumer.queue.last_tick
    if waiting.ticked is None or waiting.unticked is None or base is None or last is None:
        return None
    if waiting.ticked.high > 0:
        since = base.time
        for tick in consumer.queue.ticks:
            if tick.tick_id > base.tick_id and not some_late(consumer):
                if tick.seq != base.seq:
                    break
                since = tick.time  # nothing came before: the event sequence stood still
        return consumer.queue.age(since)
    if waiting.unticked.high > 0:
        return consumer.queue.age(unticked_since(consumer.queue) or last.time)
    return ZERO


def some_late(consumer: Consumer) -> bool:
    """Whether an event is among them whose transaction was running when its span began.

    It drew its number earlier, so the event sequence doesn't tell where it lies.
    """
    return any(
        event.txid < span.start.snapshot.xmax
        for span in consumer.spans
        if span.start is not None
        for event in events_of(consumer, span) or []
    )


def covered(consumer: Consumer) -> timedelta | None:
    """How long ago a tick first covered an event that it still has to process: no lag may be shorter."""
    events, times = receivable(consumer), [tick.time for tick in consumer.queue.ticks]
    if events and times == sorted(times):
        for tick in consumer.queue.ticks:
            if any(tick.snapshot.sees(event.txid) for event in events):
                return consumer.queue.age(tick.time)
    return None


def open_events(consumer: Consumer) -> int | None:
    """Events in its open batches, by the event sequence."""
    return known_sum(steps(batch(consumer.queue, row)) for row in consumer.open_batches)


def steps(span: Span) -> int | None:
    """How far the event sequence went between two ticks; never backwards."""
    return None if span.start is None or span.end is None else max(0, span.end.seq - span.start.seq)


def known_sum(values: Iterable[int | None]) -> int | None:
    """The sum; unknown as soon as one part is unknown."""
    total = 0
    for value in values:
        if value is None:
            return None
        total += value
    return total


# ---- queues --------------------------------------------------------------------------------------------


def depth(queue: Queue) -> Count | None:
    """Pending events of the slowest consumer; nothing waits for anybody where there is none."""
    if not consumers(queue):
        return Count.exactly(0)
    known = [total for consumer in consumers(queue) if (total := pending(consumer).total) is not None]
    return Count(max(c.low for c in known), max(c.high for c in known)) if known else None


def oldest(queue: Queue) -> timedelta | None:
    """Longest lag of a consumer."""
    if not consumers(queue):
        return ZERO
    return max((age for consumer in consumers(queue) if (age := lag(consumer)) is not None), default=None)


def tick_overdue(queue: Queue) -> bool:
    """Whether no tick came for longer than an idle queue may be without one."""
    limits, last = thresholds(queue), queue.last_tick
    allowed = queue.row["queue_ticker_idle_period"] * limits.idle_periods + limits.tick_grace
    return last is not None and queue.age(last.time) > allowed


def ticker_late(queue: Queue) -> bool:
    """Whether events wait for a tick for longer than the ticker lets them."""
    since, last = unticked_since(queue), queue.last_tick
    # It goes by the event sequence: late commits alone wait for the next idle tick.
    if since is None or last is None or queue.sent <= last.seq:
        return False
    return bool(queue.age(since) > queue.row["queue_ticker_max_lag"] + thresholds(queue).unticked_grace)


def rotation_overdue(queue: Queue) -> bool:
    limits = thresholds(queue)
    allowed = queue.row["queue_rotation_period"] * limits.rotation_periods + limits.rotation_grace
    return bool(queue.age(queue.row["queue_switch_time"]) > allowed)


def blockers(queue: Queue) -> frozenset[str | None]:
    """Who may be named as holding an overdue rotation: the slowest of those that it waits for."""
    holding = [consumer for consumer in consumers(queue) if holds_rotation(consumer)]
    if not holding or not rotation_overdue(queue):
        return frozenset({None})
    slowest = max(holding, key=_slowness)
    return frozenset(c.name for c in holding if _slowness(c) == _slowness(slowest))


def _slowness(consumer: Consumer) -> tuple[bool, timedelta]:
    age = lag(consumer)
    return age is None, age or ZERO


def holds_rotation(consumer: Consumer) -> bool:
    """Whether step 1 of a rotation waits for it, or will for ever because it can't go on."""
    step2 = consumer.queue.row["queue_switch_step2"]
    return consumer.missing_tick or any(
        step2 is not None and span.start is not None and span.start.snapshot.xmin <= int(step2)
        for span in consumer.spans
    )


def events_per_sec(queue: Queue) -> Fraction | None:
    """Rate between the last two ticks; unknown once the ticker is late."""
    if len(queue.ticks) < 2 or tick_overdue(queue) or ticker_late(queue):
        return None
    before, last = queue.ticks[-2:]
    if last.seq < before.seq or last.time <= before.time:
        return None
    events = last.seq - before.seq
    if events and len(events_after(queue, before)) < LOOKED_AT:
        events = len(events_between(queue, before, last))
    return events / seconds(last.time - before.time)


def seconds(duration: timedelta) -> Fraction:
    return Fraction(duration // timedelta(microseconds=1), 1_000_000)


# ---- health --------------------------------------------------------------------------------------------


def queue_checks(queue: Queue) -> dict[str, str]:
    """Status by check."""
    return {
        "ticker_running": _ticker_running(queue),
        "paused": "warning" if queue.row["queue_ticker_paused"] else "ok",
        "xid_regression": _xid_regression(queue),
        "no_consumers": _no_consumers(queue),
        "rotation_health": "warning" if rotation_overdue(queue) else "ok",
        "dlq_health": _dlq_health(queue),
        "retry_overdue": _retry_overdue(queue),
    }


def consumer_checks(consumer: Consumer) -> dict[str, str]:
    """Status by check."""
    return {
        "missing_tick": "critical" if consumer.missing_tick else "ok",
        "consumer_lag": _consumer_lag(consumer),
        "consumer_stuck": _consumer_stuck(consumer),
    }


def worst(checks: Mapping[str, str]) -> int | None:
    """0 ok, 1 warning, 2 critical; unknown only if nothing worse is known."""
    for state, number in (("critical", 2), ("warning", 1), ("unknown", None)):
        if state in checks.values():
            return number
    return 0


def _ticker_running(queue: Queue) -> str:
    if queue.row["queue_ticker_paused"]:
        return "ok"
    if queue.last_tick is None:
        return "critical"
    if queue.row["queue_external_ticker"]:
        return "ok"
    return "critical" if tick_overdue(queue) or ticker_late(queue) else "ok"


def _xid_regression(queue: Queue) -> str:
    last = queue.last_tick
    return "critical" if last is not None and last.snapshot.xmin > queue.next_txid else "ok"


def _no_consumers(queue: Queue) -> str:
    unread = bool(queue.ticks) and queue.sent > queue.ticks[0].seq
    return "warning" if unread and not consumers(queue) else "ok"


def _dlq_health(queue: Queue) -> str:
    limits = thresholds(queue)
    recent = sum(died > queue.now - HOUR for died in queue.dead_letters)
    if recent >= limits.dead_letters_hour_critical:
        return "critical"
    many = len(queue.dead_letters) > limits.dead_letters_warning
    return "warning" if many or recent >= limits.dead_letters_hour_warning else "ok"


def _retry_overdue(queue: Queue) -> str:
    grace = thresholds(queue).retry_grace
    return "warning" if any(due < queue.now - grace for due in queue.retries) else "ok"


def _consumer_lag(consumer: Consumer) -> str:
    limits, takeable, behind = thresholds(consumer.queue), pending(consumer).ticked, lag(consumer)
    if takeable is None or behind is None:
        return "unknown"
    if takeable.high > 0 and behind > limits.lag_critical:
        return "critical"
    return "warning" if takeable.high > 0 and behind > limits.lag_warning else "ok"


def _consumer_stuck(consumer: Consumer) -> str:
    takeable, behind = pending(consumer).ticked, lag(consumer)
    if takeable is None or behind is None:
        return "unknown"
    silent = consumer.queue.age(consumer.last_active)
    patience = thresholds(consumer.queue).stuck_after
    return "warning" if takeable.high > 0 and min(behind, silent) > patience else "ok"


# ---- the contract's functions --------------------------------------------------------------------------


def queue_stats(queue: Queue) -> Iterator[Row]:
    row, last = queue.row, queue.last_tick
    yield {
        "queue_name": queue.name,
        "queue_id": row["queue_id"],
        "depth": depth(queue),
        "oldest_msg_age": oldest(queue),
        "consumers": len(consumers(queue)),
        "events_per_sec": events_per_sec(queue),
        "cur_table": row["queue_cur_table"],
        "rotation_age": queue.age(row["queue_switch_time"]),
        "rotation_period": row["queue_rotation_period"],
        "ticker_paused": row["queue_ticker_paused"],
        "last_tick_time": last and last.time,
        "last_tick_id": last and last.tick_id,
        "dlq_count": min(COUNTED, len(queue.dead_letters)),
    }


def consumer_stats(queue: Queue) -> Iterator[Row]:
    for consumer in consumers(queue):
        batches = [row.batch for row in consumer.open_batches if row.batch is not None]
        yield {
            "queue_name": queue.name,
            "consumer_name": consumer.name,
            "lag": lag(consumer),
            "pending_events": pending(consumer).total,
            "last_seen": consumer.last_active,
            "batch_active": bool(batches),
            "batch_id": min(batches, default=None),
        }


def queue_health(queue: Queue) -> Iterator[Row]:
    for check, status in queue_checks(queue).items():
        blocked_by = blockers(queue) if check == "rotation_health" else None
        yield {"queue_name": queue.name, "check_name": check, "status": status, "blocked_by": blocked_by}
    for consumer in consumers(queue):
        for check, status in consumer_checks(consumer).items():
            yield {
                "queue_name": queue.name,
                "check_name": f"{check}:{consumer.name}",
                "status": status,
                "blocked_by": None,
            }


def otel_metrics(queue: Queue) -> Iterator[Row]:
    row, last, labels = queue.row, queue.last_tick, {"queue": queue.name}
    yield from _metrics(
        labels,
        {
            "pgque.queue.depth": depth(queue),
            "pgque.queue.oldest_message_age_seconds": oldest(queue),
            "pgque.queue.throughput": events_per_sec(queue),
            "pgque.queue.consumers": len(consumers(queue)),
            "pgque.queue.unticked_events": unticked(queue),
            "pgque.queue.paused": int(row["queue_ticker_paused"]),
            "pgque.queue.rotation_age_seconds": queue.age(row["queue_switch_time"]),
            "pgque.queue.rotation_period_seconds": row["queue_rotation_period"],
            "pgque.ticker.last_tick_age_seconds": queue.age(last.time) if last else None,
            "pgque.message.sent_total": queue.sent,
            "pgque.message.retry_waiting": min(COUNTED, len(queue.retries)),
            "pgque.message.dead_lettered": min(COUNTED, len(queue.dead_letters)),
        },
    )
    yield from _health_metrics(labels, queue_checks(queue))

    for consumer in consumers(queue):
        of_consumer, position = labels | {"consumer": consumer.name}, consumer.position
        taken = min((batch.active for batch in consumer.open_batches), default=None)
        yield from _metrics(
            of_consumer,
            {
                "pgque.consumer.lag_seconds": lag(consumer),
                "pgque.consumer.pending_events": pending(consumer).total,
                "pgque.consumer.idle_seconds": queue.age(consumer.last_active),
                "pgque.consumer.open_batch_events": open_events(consumer) if taken else None,
                "pgque.consumer.open_batch_age_seconds": queue.age(taken) if taken else None,
                "pgque.message.acked_total": position.seq if position else None,
            },
        )
        yield from _health_metrics(of_consumer, consumer_checks(consumer))


def _health_metrics(labels: Mapping[str, str], checks: Mapping[str, str]) -> Iterator[Row]:
    yield from _metrics(labels, {"pgque.queue.health_status": worst(checks)})
    for check, state in checks.items():
        if state != "ok":
            yield from _metrics({**labels, "check": check, "state": state}, {"pgque.queue.health_state": 1})


def _metrics(
    labels: Mapping[str, str], values: Mapping[str, int | Fraction | timedelta | Count | None]
) -> Iterator[Row]:
    for name, value in values.items():
        if value is not None:  # what isn't known makes no row
            yield {
                "metric_name": name,
                "metric_type": "counter" if name.endswith("_total") else "gauge",
                "value": seconds(value) if isinstance(value, timedelta) else value,
                "labels": labels,
            }


def in_flight(queue: Queue) -> Iterator[Row]:
    for row in queue.subscriptions:
        if row.batch is not None:
            yield {
                "queue_name": queue.name,
                "consumer_name": row.consumer,
                "batch_id": row.batch,
                "batch_age": queue.age(row.active),
                "estimated_events": steps(batch(queue, row)),
            }


def stuck_consumers(queue: Queue, asked: Arguments) -> Iterator[Row]:
    for consumer in consumers(queue):
        takeable, behind = pending(consumer).ticked, lag(consumer)
        late = takeable and takeable.high > 0 and behind is not None and behind > asked.threshold
        if queue.age(consumer.last_active) > asked.threshold and (late or consumer.missing_tick):
            yield {
                "queue_name": queue.name,
                "consumer_name": consumer.name,
                "lag": behind,
                "last_active": consumer.last_active,
            }


def exact_backlog(queue: Queue, asked: Arguments) -> Iterator[Row]:
    for consumer in consumers(queue):
        found = [events_of(consumer, span) for span in consumer.spans]
        pending_events = known_sum(None if events is None else len(events) for events in found)
        coming = unticked_of(consumer)
        examined = [
            len(events_after(queue, span.start))
            for span in consumer.spans
            if span.start is not None and span.end is not None
        ]
        capped = any(number >= asked.max_events for number in examined)
        yield {
            "queue_name": queue.name,
            "consumer_name": consumer.name,
            "pending_events": _up_to(pending_events, capped),
            "unticked_events": _up_to(None if coming is None else len(coming), capped),
            "is_capped": capped if examined else None,
        }


def _up_to(events: int | None, capped: bool) -> Count | None:
    return None if events is None else Count(0 if capped else events, events)


def throughput(queue: Queue, asked: Arguments) -> Iterator[Row]:
    first = bucket(queue.now - asked.history, asked)
    events: Counter[datetime] = Counter()
    covered: dict[datetime, timedelta] = defaultdict(timedelta)
    for before, tick in zip(queue.ticks, queue.ticks[1:], strict=False):
        start = bucket(tick.time, asked)
        if start >= first:
            events[start] += max(0, tick.seq - before.seq)
            covered[start] += tick.time - before.time
    for start, time in covered.items():
        yield {
            "queue_name": queue.name,
            "bucket_start": start,
            "events": events[start],
            "events_per_sec": rounded(events[start] / seconds(time)) if time > ZERO else None,
        }


def error_rate(queue: Queue, asked: Arguments) -> Iterator[Row]:
    died = Counter(bucket(moment, asked) for moment in queue.dead_letters)
    start = bucket(queue.now - asked.history, asked)
    while start <= queue.now:
        yield {
            "queue_name": queue.name,
            "bucket_start": start,
            "retries": None,
            "dead_letters": died[start],
        }
        start += asked.bucket_size


def latency_percentiles(queue: Queue, asked: Arguments) -> Iterator[Row]:
    for subscription in queue.subscriptions:
        samples: list[timedelta] = []  # one per event
        for before, tick in zip(queue.ticks, queue.ticks[1:], strict=False):
            if subscription.last_tick is None or tick.tick_id < subscription.last_tick:
                continue
            if tick.time > queue.now - asked.period:
                consumed = tick.tick_id == subscription.last_tick
                latency = max(ZERO, (subscription.active if consumed else queue.now) - tick.time)
                samples += [latency] * (tick.seq - before.seq)
        samples.sort()
        yield {"queue_name": queue.name, "consumer_name": subscription.consumer} | {
            # the smallest sample that so many per cent of them don't exceed
            f"p{percent}": samples[-(-len(samples) * percent // 100) - 1] if samples else None
            for percent in (50, 95, 99)
        }


def bucket(moment: datetime, asked: Arguments) -> datetime:
    """Start of its bucket; they are counted from the epoch."""
    return EPOCH + (moment - EPOCH) // asked.bucket_size * asked.bucket_size


def rounded(value: Fraction) -> Fraction:
    """To three decimals."""
    return Fraction(int(value * 1000 + Fraction(1, 2)), 1000)
