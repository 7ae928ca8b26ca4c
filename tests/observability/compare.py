"""Holds the contract's answers against the oracle's, and the oracle against what the engine delivers."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from decimal import Decimal
from fractions import Fraction
from typing import LiteralString

import psycopg

from tests.observability import oracle, tables
from tests.support.observed import Connection, Row


@dataclass(frozen=True)
class Function:
    """A function of the contract: how it is asked of all queues, what tells its rows apart, what is right."""

    query: LiteralString
    keys: tuple[str, ...]
    truth: Callable[[tables.Queue, oracle.Arguments], Iterable[Row]]


CONTRACT: Mapping[str, Function] = {
    "queue_stats": Function(
        "select * from pgque.queue_stats()",
        ("queue_name",),
        lambda queue, _: oracle.queue_stats(queue),
    ),
    "consumer_stats": Function(
        "select * from pgque.consumer_stats()",
        ("queue_name", "consumer_name"),
        lambda queue, _: oracle.consumer_stats(queue),
    ),
    "queue_health": Function(
        r"select *, substring(detail from 'blocked by consumer (\S+)') as blocked_by"
        " from pgque.queue_health()",
        ("queue_name", "check_name"),
        lambda queue, _: oracle.queue_health(queue),
    ),
    "otel_metrics": Function(
        "select * from pgque.otel_metrics()",
        ("metric_name", "labels"),
        lambda queue, _: oracle.otel_metrics(queue),
    ),
    "in_flight": Function(
        "select q.queue_name, f.* from pgque.queue q cross join lateral pgque.in_flight(q.queue_name) f",
        ("queue_name", "batch_id"),
        lambda queue, _: oracle.in_flight(queue),
    ),
    "stuck_consumers": Function(
        "select * from pgque.stuck_consumers(%(threshold)s)",
        ("queue_name", "consumer_name"),
        oracle.stuck_consumers,
    ),
    "exact_backlog": Function(
        "select q.queue_name, f.* from pgque.queue q"
        " cross join lateral pgque.exact_backlog(q.queue_name, max_events => %(max_events)s) f",
        ("queue_name", "consumer_name"),
        oracle.exact_backlog,
    ),
    "throughput": Function(
        "select q.queue_name, f.* from pgque.queue q"
        " cross join lateral pgque.throughput(q.queue_name, %(history)s, %(bucket_size)s) f",
        ("queue_name", "bucket_start"),
        oracle.throughput,
    ),
    "error_rate": Function(
        "select q.queue_name, f.* from pgque.queue q"
        " cross join lateral pgque.error_rate(q.queue_name, %(history)s, %(bucket_size)s) f",
        ("queue_name", "bucket_start"),
        oracle.error_rate,
    ),
    "latency_percentiles": Function(
        # materialized: asked about who isn't subscribed, it raises an error
        "with subscribed as materialized ("
        "  select q.queue_name, c.co_name as consumer_name from pgque.subscription s"
        "  join pgque.queue q on q.queue_id = s.sub_queue"
        "  join pgque.consumer c on c.co_id = s.sub_consumer)"
        " select * from subscribed s"
        " cross join lateral pgque.latency_percentiles(s.queue_name, s.consumer_name, %(period)s)",
        ("queue_name", "consumer_name"),
        oracle.latency_percentiles,
    ),
}


# ---- the contract --------------------------------------------------------------------------------------


def disagreements(db: Connection, turn: int = 0) -> list[str]:
    """One line per value, row or rule in which the contract is wrong; `turn` chooses the arguments.

    Tables and contract are read in one snapshot, the contract by the role that monitors.
    """
    asked = oracle.ARGUMENTS[turn % len(oracle.ARGUMENTS)]
    with _one_snapshot(db), db.pipeline():
        raw = {name: db.execute(query) for name, query in tables.QUERIES.items()}
        db.execute("set local role pgque_monitor")
        told = {name: db.execute(function.query, vars(asked)) for name, function in CONTRACT.items()}
    queues = tables.queues({name: cursor.fetchall() for name, cursor in raw.items()})

    found = []
    for name, function in CONTRACT.items():
        rows = told[name].fetchall()
        wanted = [row for queue in queues for row in function.truth(queue, asked)]
        found += [f"{name}: {line}" for line in _broken_rules(rows)]
        found += [f"{name}: {line}" for line in _differences(rows, wanted, function.keys)]
        if name == "consumer_stats":
            found += [f"{name}: {line}" for line in _short_lags(rows, queues)]
    return found


@contextmanager
def _one_snapshot(db: Connection) -> Iterator[None]:
    """A transaction in which now() and every row stay the same and nothing can be written."""
    db.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
    db.read_only = True
    try:
        with db.transaction():
            yield
    finally:
        db.isolation_level = None
        db.read_only = None


def _broken_rules(rows: Iterable[Row]) -> Iterator[str]:
    """What holds whatever the oracle thinks: nothing is negative or not a number."""
    for row in rows:
        for column, value in row.items():
            if isinstance(value, timedelta) and value < tables.ZERO:
                yield f"{column} is negative: {row}"
            if isinstance(value, int | Decimal) and not value >= 0:
                yield f"{column} is negative or no number: {row}"
        if "metric_name" in row and None in row.values():
            yield f"what isn't known makes no row: {row}"
        if "detail" in row and not row["detail"]:
            yield f"a check without a word: {row}"


def _short_lags(rows: Iterable[Row], queues: Iterable[tables.Queue]) -> Iterator[str]:
    """Lags shorter than an event has provably waited."""
    lags = {(row["queue_name"], row["consumer_name"]): row["lag"] for row in rows}
    for queue in queues:
        for consumer in oracle.consumers(queue):
            least, told = oracle.covered(consumer), lags.get((queue.name, consumer.name))
            if told is not None and least is not None and told < least:
                yield f"{queue.name}, {consumer.name}: lag is {told}, but an event waits for {least}"


def _differences(told: Iterable[Row], wanted: Iterable[Row], keys: tuple[str, ...]) -> Iterator[str]:
    by_key: dict[tuple[object, ...], Row] = {}
    for row in told:
        key = _key(row, keys)
        if key in by_key:
            yield f"stands twice: {row}"
        by_key[key] = row
    for row in wanted:
        answer = by_key.pop(_key(row, keys), None)
        if answer is None:
            yield f"is missing: {row}"
            continue
        for column, value in row.items():
            if not _same(answer[column], value):
                place = ", ".join(str(row[name]) for name in keys)
                yield f"{place}: {column} is {answer[column]}, should be {value}"
    for row in by_key.values():
        yield f"should not be there: {row}"


def _key(row: Row, keys: tuple[str, ...]) -> tuple[object, ...]:
    values = (row[name] for name in keys)
    return tuple(frozenset(value.items()) if isinstance(value, dict) else value for value in values)


def _same(told: object, wanted: object) -> bool:
    if isinstance(wanted, frozenset):  # any of them is right
        return told in wanted
    if isinstance(wanted, oracle.Count):
        return isinstance(told, int | Decimal) and wanted.low <= told <= wanted.high
    if isinstance(told, Decimal) and isinstance(wanted, int | Fraction):
        return math.isclose(told, wanted, rel_tol=1e-9)
    return told == wanted


# ---- the oracle ----------------------------------------------------------------------------------------


def undelivered(db: Connection) -> list[str]:
    """One line per consumer of which the oracle doesn't know exactly what the engine would deliver to it."""
    with _one_snapshot(db), db.pipeline():
        raw = {name: db.execute(query) for name, query in tables.QUERIES.items()}
    found = []
    for queue in tables.queues({name: cursor.fetchall() for name, cursor in raw.items()}):
        for consumer in oracle.consumers(queue):
            known = oracle.receivable(consumer)
            wanted = None if known is None else Counter(event.event_id for event in known)
            got = delivered(db, consumer)
            # The engine notices that a tick is gone only when there is something to give.
            if got != wanted and not (wanted is None and not got):
                found.append(f"{queue.name}, {consumer.name}: receives {got}, should receive {wanted}")
    return found


def delivered(db: Connection, consumer: oracle.Consumer) -> Counter[int] | None:
    """How often each event comes when the consumer receives until nothing is left; none of it is kept.

    None if the engine refuses, because a tick is gone.
    """
    queue_name = consumer.queue.name
    ids: Counter[int] = Counter()
    try:
        with db.transaction(force_rollback=True):
            if consumer.members:  # what one of them failed on is the group's
                events = consumer.queue.row["queue_data_pfx"]
                share = f"update {events} set ev_owner = null where ev_owner = any (%s)"
                db.execute(share.encode(), ([row.sub_id for row in consumer.rows],))
            for row in consumer.open_batches:
                if row.role == "coop_member":
                    taken = db.execute("select ev_id from pgque.get_batch_events(%s)", (row.batch,))
                    ids.update(event["ev_id"] for event in taken)
            # The rest of a group's events are what its main row would get on its own.
            db.execute(
                "update pgque.subscription set sub_role = 'normal' where sub_id = %s",
                (consumer.main.sub_id,),
            )
            while messages := db.execute(
                "select msg_id, batch_id from pgque.receive(%s, %s, 1000000)", (queue_name, consumer.name)
            ).fetchall():
                ids.update(message["msg_id"] for message in messages)
                db.execute("select pgque.ack(%s)", (messages[0]["batch_id"],))
    except psycopg.errors.DataCorrupted:
        return None
    return ids
