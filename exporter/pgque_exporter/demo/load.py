"""The demo's load: producers, consumers and the driver of the queues, all over the public API."""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import time
from collections.abc import Awaitable, Callable
from typing import Any

import psycopg
from psycopg import AsyncConnection
from psycopg.types.json import Jsonb

from pgque_exporter.demo.stories import (
    LEDGER_STOPS_AFTER,
    MAILER_CATCHES_UP_AT,
    MAILER_RATE,
    RETRY_AFTER,
    STORIES,
    Story,
    delivery_problem,
)

Connection = AsyncConnection[tuple[Any, ...]]
Message = tuple[Any, ...]
Handler = Callable[[Connection, list[Message]], Awaitable[None]]

TICK_EVERY = 0.2  # seconds
MAINTAIN_EVERY = 1.0
POLL_EVERY = 0.3
_LARGER_THAN_ANY_BATCH = 10_000
_MSG_ID, _BATCH_ID, _PAYLOAD, _CREATED_AT = 0, 1, 3, 5


async def run_load(*, app_dsn: str, operator_dsn: str) -> None:
    """Run until cancelled. `app_dsn` may send and receive, `operator_dsn` may run the queues."""
    handlers: dict[str, Handler] = {
        "fulfilment": _fulfil,
        "analytics": _analyse,
        "mailer": _mail,
        "ledger": _Ledger(time.monotonic()),
        "deliver": _deliver,
    }
    async with asyncio.TaskGroup() as group:
        group.create_task(_forever(operator_dsn, _drive))
        for story in STORIES:
            group.create_task(_forever(app_dsn, _producer(story)))
            for consumer in story.consumers:
                group.create_task(_forever(app_dsn, _consumer(story.queue, consumer, handlers[consumer])))


async def _forever(dsn: str, work: Callable[[Connection], Awaitable[None]]) -> None:
    # People will restart the database or drop a queue by hand, to see what the service makes of it.
    while True:
        with contextlib.suppress(psycopg.Error):
            # Autocommit: send, tick and receive each need a transaction of their own.
            async with await AsyncConnection.connect(dsn, autocommit=True) as connection:
                await work(connection)
        await asyncio.sleep(1)


async def _drive(connection: Connection) -> None:
    """What a scheduler does in production: tick, bring retries back, rotate."""
    maintain_at = 0.0
    while True:
        await connection.execute("select pgque.ticker()")
        if time.monotonic() >= maintain_at:
            maintain_at = time.monotonic() + MAINTAIN_EVERY
            await connection.execute("select pgque.maint_retry_events()")
            await connection.execute("select pgque.maint()")
            await connection.execute("select pgque.maint_rotate_tables_step2()")
            await connection.execute("select pgque.instrumentation_rollup()")
        await asyncio.sleep(TICK_EVERY)


def _producer(story: Story) -> Callable[[Connection], Awaitable[None]]:
    async def produce(connection: Connection) -> None:
        due = time.monotonic()
        sent = 0
        while True:
            sent += 1
            kind, payload = story.event(sent)
            await connection.execute("select pgque.send(%s, %s, %s)", (story.queue, kind, Jsonb(payload)))
            due += random.uniform(0.5, 1.5) / story.rate
            await asyncio.sleep(due - time.monotonic())

    return produce


def _consumer(queue: str, consumer: str, handle: Handler) -> Callable[[Connection], Awaitable[None]]:
    async def consume(connection: Connection) -> None:
        while True:
            cursor = await connection.execute(
                "select * from pgque.receive(%s, %s, %s)", (queue, consumer, _LARGER_THAN_ANY_BATCH)
            )
            if messages := await cursor.fetchall():
                await handle(connection, messages)
                await connection.execute("select pgque.ack(%s)", (messages[0][_BATCH_ID],))
            else:
                await asyncio.sleep(POLL_EVERY)

    return consume


async def _fulfil(_connection: Connection, messages: list[Message]) -> None:
    await asyncio.sleep(0.01 * len(messages))


async def _analyse(_connection: Connection, _messages: list[Message]) -> None:
    await asyncio.sleep(0.05)


async def _mail(_connection: Connection, messages: list[Message]) -> None:
    """Slower than the producer; once far behind a little faster, so that the backlog stays what it is."""
    for message in messages:
        created_at = message[_CREATED_AT]
        lag = time.time() - created_at.timestamp()
        await asyncio.sleep(1 / MAILER_RATE if lag < MAILER_CATCHES_UP_AT else 0.4 / MAILER_RATE)


class _Ledger:
    """Works for a while and then hangs in the middle of a batch, as on a lock that nobody releases."""

    def __init__(self, started: float) -> None:
        self._stops_at = started + LEDGER_STOPS_AFTER

    async def __call__(self, _connection: Connection, messages: list[Message]) -> None:
        await asyncio.sleep(0.02 * len(messages))
        if time.monotonic() >= self._stops_at:
            await asyncio.Event().wait()


async def _deliver(connection: Connection, messages: list[Message]) -> None:
    for message in messages:
        await asyncio.sleep(0.02)
        problem = delivery_problem(json.loads(message[_PAYLOAD]))
        if problem is not None:
            await connection.execute(_NACK, (message[_BATCH_ID], message[_MSG_ID], RETRY_AFTER, problem))


# Only the id of the message counts; all else is read from the stored event.
_NACK = """
select pgque.nack(
    batch_id => %s,
    msg => jsonb_populate_record(null::pgque.message, jsonb_build_object('msg_id', %s::bigint)),
    retry_after => make_interval(secs => %s),
    reason => %s)
"""
