"""What PgQue's tables hold, read as it is: every row, nothing worked out."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import LiteralString

from tests.support.observed import Row

ZERO = timedelta(0)


@dataclass(frozen=True)
class Snapshot:
    """Which transactions had ended at one moment."""

    xmin: int
    xmax: int
    running: frozenset[int]

    @classmethod
    def parse(cls, text: str) -> Snapshot:
        """From PostgreSQL's spelling, xmin:xmax:running,running."""
        xmin, xmax, running = text.split(":")
        return cls(int(xmin), int(xmax), frozenset(int(txid) for txid in running.split(",") if txid))

    def sees(self, txid: int) -> bool:
        return txid < self.xmax and txid not in self.running


@dataclass(frozen=True)
class Tick:
    """One remembered snapshot of a queue."""

    tick_id: int
    time: datetime
    seq: int
    snapshot: Snapshot


@dataclass(frozen=True)
class Subscription:
    """One row of pgque.subscription with its consumer's name."""

    sub_id: int
    consumer: str
    last_tick: int | None
    next_tick: int | None
    active: datetime
    batch: int | None
    role: str
    parent: int | None


@dataclass(frozen=True)
class Event:
    """What matters of a stored event."""

    event_id: int
    time: datetime
    txid: int
    owner: int | None  # the subscription that a retry is meant for
    retry: int | None


@dataclass(frozen=True)
class Queue:
    """One row of pgque.queue and everything that belongs to it, at one moment."""

    now: datetime
    next_txid: int  # no transaction that began has this id or a higher one
    row: Row
    sent: int
    ticks: list[Tick]  # by id
    subscriptions: list[Subscription]
    events: list[Event]
    retries: list[datetime]  # when due
    dead_letters: list[datetime]  # when they died
    thresholds: Row  # its own; what is null or missing here is found in the common ones
    common_thresholds: Row

    @property
    def name(self) -> str:
        return str(self.row["queue_name"])

    @property
    def last_tick(self) -> Tick | None:
        return self.ticks[-1] if self.ticks else None

    def tick(self, tick_id: int | None) -> Tick | None:
        """The tick of this id, if it is still there."""
        for tick in self.ticks:
            if tick.tick_id == tick_id:
                return tick
        return None

    def age(self, moment: datetime) -> timedelta:
        """Time since then; 0 for what lies ahead, as a clock set back can make it."""
        return max(ZERO, self.now - moment)


QUERIES: Mapping[str, LiteralString] = {
    "now": "select now() as now, pg_snapshot_xmax(pg_current_snapshot())::text::int8 as next_txid",
    "queue": "select * from pgque.queue",
    "tick": "select tick_queue, tick_id, tick_time, tick_event_seq, tick_snapshot::text as snapshot"
    " from pgque.tick order by tick_id",
    "subscription": "select s.*, c.co_name from pgque.subscription s"
    " join pgque.consumer c on c.co_id = s.sub_consumer",
    "retry": "select ev_queue, ev_retry_after from pgque.retry_queue",
    "dead_letter": "select dl_queue_id, dl_time from pgque.dead_letter",
    "threshold": "select * from pgque.health_threshold",
    "event": "select tableoid::regclass::text as stored_in, ev_id, ev_time, ev_txid::text::int8 as txid,"
    " ev_owner, ev_retry from pgque.event_template",
    "sequence": "select format('pgque.%I', sequencename) as name, last_value"
    " from pg_sequences where schemaname = 'pgque'",
}


def queues(rows: Mapping[str, list[Row]]) -> list[Queue]:
    """The queues, from the rows of all QUERIES, read in one snapshot."""
    now = rows["now"][0]
    sent = {row["name"]: row["last_value"] for row in rows["sequence"]}

    ticks: dict[int, list[Tick]] = defaultdict(list)
    for row in rows["tick"]:
        snapshot = Snapshot.parse(row["snapshot"])
        ticks[row["tick_queue"]].append(
            Tick(row["tick_id"], row["tick_time"], row["tick_event_seq"], snapshot)
        )

    subscriptions: dict[int, list[Subscription]] = defaultdict(list)
    for row in rows["subscription"]:
        subscriptions[row["sub_queue"]].append(
            Subscription(
                sub_id=row["sub_id"],
                consumer=row["co_name"],
                last_tick=row["sub_last_tick"],
                next_tick=row["sub_next_tick"],
                active=row["sub_active"],
                batch=row["sub_batch"],
                role=row["sub_role"],
                parent=row["sub_parent"],
            )
        )

    events: dict[str, list[Event]] = defaultdict(list)
    for row in rows["event"]:
        prefix, _, _ = row["stored_in"].rpartition("_")  # a queue's tables are numbered
        events[prefix].append(
            Event(row["ev_id"], row["ev_time"], row["txid"], row["ev_owner"], row["ev_retry"])
        )

    retries: dict[int, list[datetime]] = defaultdict(list)
    for row in rows["retry"]:
        retries[row["ev_queue"]].append(row["ev_retry_after"])

    dead_letters: dict[int, list[datetime]] = defaultdict(list)
    for row in rows["dead_letter"]:
        dead_letters[row["dl_queue_id"]].append(row["dl_time"])

    thresholds = {row["queue_name"]: row for row in rows["threshold"]}

    return [
        Queue(
            now=now["now"],
            next_txid=now["next_txid"],
            row=row,
            sent=sent[row["queue_event_seq"]] or 0,  # null: never used
            ticks=ticks[row["queue_id"]],
            subscriptions=subscriptions[row["queue_id"]],
            events=events[row["queue_data_pfx"]],
            retries=retries[row["queue_id"]],
            dead_letters=dead_letters[row["queue_id"]],
            thresholds=thresholds.get(row["queue_name"], {}),
            common_thresholds=thresholds["*"],
        )
        for row in rows["queue"]
    ]
