"""Short words for what the engine's tests say over and over."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tests.support.database import Connection


def rows(connection: Connection, query: str, *args: object) -> list[tuple[Any, ...]]:
    return connection.execute(query, args).fetchall()


def value(connection: Connection, query: str, *args: object) -> Any:
    """The only column of the only row."""
    row = connection.execute(query, args).fetchone()
    assert row is not None
    return row[0]


@dataclass(frozen=True)
class Message:
    id: int
    batch_id: int
    type: str
    payload: str | None
    retry_count: int | None


def create_queue(connection: Connection, queue: str, *consumers: str) -> None:
    value(connection, "select pgque.create_queue(%s)", queue)
    for consumer in consumers:
        value(connection, "select pgque.subscribe(%s, %s)", queue, consumer)


def send(connection: Connection, queue: str, *payloads: str) -> list[int]:
    """One event per payload; their ids."""
    return [int(value(connection, "select pgque.send(%s, %s)", queue, item)) for item in payloads]


def tick(connection: Connection, queue: str) -> int:
    """Write a tick now, whatever the queue's limits say."""
    value(connection, "select pgque.force_next_tick(%s)", queue)
    tick_id = value(connection, "select pgque.ticker(%s)", queue)
    assert tick_id is not None, "no tick, though forced: is another ticker at work?"
    return int(tick_id)


def receive(connection: Connection, queue: str, consumer: str, limit: int = 1_000_000) -> list[Message]:
    found = rows(
        connection,
        "select msg_id, batch_id, type, payload, retry_count from pgque.receive(%s, %s, %s)",
        queue, consumer, limit,
    )
    return [Message(*row) for row in found]


def ack(connection: Connection, batch_id: int) -> int:
    return int(value(connection, "select pgque.ack(%s)", batch_id))


def nack(
    connection: Connection, message: Message, *, after: str = "0 seconds", reason: str | None = None
) -> int:
    """Give a message back the way a client does: with a composite of which only the id counts."""
    return int(value(
        connection,
        "select pgque.nack(%s, row(%s, null, null, null, null, null, null, null, null, null)::pgque.message,"
        " %s::interval, %s)",
        message.batch_id, message.id, after, reason,
    ))


def consume(connection: Connection, queue: str, consumer: str) -> list[str | None]:
    """Receive and acknowledge everything there is; the payloads in order."""
    payloads: list[str | None] = []
    while messages := receive(connection, queue, consumer):
        payloads += [message.payload for message in messages]
        assert ack(connection, messages[0].batch_id) == 1
    return payloads


def rotate(connection: Connection, queue: str) -> bool:
    """Make a rotation due and try it, both steps; whether the current table moved on."""
    connection.execute(
        "update pgque.queue set queue_switch_time = queue_switch_time - queue_rotation_period * 2"
        " where queue_name = %s", (queue,),
    )
    switched = value(connection, "select pgque.maint_rotate_tables_step1(%s)", queue)
    value(connection, "select pgque.maint_rotate_tables_step2()")
    return bool(switched)
