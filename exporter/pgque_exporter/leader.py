"""The lead among replicas of the service: a lock in a database that only one of them can hold.

The lock belongs to a session, so it is free as soon as that session ends. The server ends it when
nothing was heard on it for the time of the lease; the leader itself counts from the moment before it last
asked, and so gives up earlier than another can take over, also after it was frozen.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import time
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

import psycopg

from pgque_exporter.config import LeaderConfig
from pgque_exporter.connection import (
    Connection,
    FailureKind,
    PollError,
    classified,
    close,
    connect,
    in_time,
)
from pgque_exporter.redaction import Redactor
from pgque_exporter.sharding import Shard

log = logging.getLogger(__name__)

T = TypeVar("T")

_HELD = 0.8  # share of the lease after which a leader that got no answer stops by itself

# What the server does about a leader that is silent or can't be reached. The last three are for a peer that
# vanished while the server had something to tell it; on a local socket they do nothing.
_SETTINGS = """
select pg_catalog.set_config(name, value, false)
from (values ('idle_session_timeout', %(lease)s), ('statement_timeout', %(lease)s),
             ('tcp_user_timeout', %(lease)s), ('tcp_keepalives_idle', %(seconds)s),
             ('tcp_keepalives_interval', %(seconds)s), ('tcp_keepalives_count', '2')) setting (name, value)
"""
_WHO = "select pg_catalog.pg_backend_pid(), pg_catalog.pg_is_in_recovery()"
_CLAIM = "select pg_catalog.pg_try_advisory_lock(%s)"


class Leader:
    """One replica's part in it. `changed` is told whether it leads, at first and at each change."""

    def __init__(
        self, config: LeaderConfig, shard: Shard | None, redact: Redactor, changed: Callable[[bool], None]
    ) -> None:
        self._config = config
        self._redact = redact
        self._changed = changed
        # Each shard has a leader of its own: the others don't poll what it polls.
        name = f"pgque-exporter leader {config.name} {shard or '1/1'}"
        self._key = int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], signed=True)
        self._until = 0.0  # monotonic time up to which we lead
        self._expiry: asyncio.TimerHandle | None = None
        self._lost = asyncio.Event()
        self._lost.set()
        self._trouble: str | None = None

    def leads(self) -> bool:
        """Whether this replica leads at this moment."""
        return time.monotonic() < self._until

    async def lost(self) -> None:
        """Wait until it doesn't lead."""
        await self._lost.wait()

    async def run(self) -> None:
        """Try to lead, again and again, until cancelled; the lock is free at the end."""
        self._changed(False)
        while True:
            try:
                await self._hold()
            except PollError as error:
                self._note(f"{error.message}; {error.hint}" if error.hint else error.message)
            except Exception as error:  # a mistake of ours must not end the tries
                log.debug("unexpected", exc_info=True)
                self._note(f"unexpected {type(error).__name__}")
            await asyncio.sleep(self._config.lease / 4)

    async def _hold(self) -> None:
        connection = await self._in_time(connect(self._config.database, self._redact), None)
        try:
            # First: what is set in a session of a pooler would stay there for others.
            await self._require_own_session(connection)
            await self._ask(connection, _SETTINGS, self._settings())
            self._trouble = None
            while True:
                asked = time.monotonic()
                if self.leads():
                    # The lock is the session's: as long as there is an answer, we hold it.
                    await self._require_own_session(connection)
                    self._confirm(asked)
                elif (await self._ask(connection, _CLAIM, (self._key,)))[0]:
                    self._confirm(asked)
                await asyncio.sleep(self._config.lease / 4)
        finally:
            self._lose()
            await close(connection)

    def _settings(self) -> dict[str, str]:
        lease = self._config.lease
        return {"lease": str(int(lease * 1000)), "seconds": str(max(1, int(lease / 4)))}

    async def _require_own_session(self, connection: Connection) -> None:
        pid, standby = await self._ask(connection, _WHO)
        if pid != connection.info.backend_pid:
            raise PollError(
                FailureKind.CONTRACT,
                "the leader's dsn leads through a connection pooler, where two could hold the lock",
                "give it one that leads to the server itself",
            )
        if standby:
            raise PollError(
                FailureKind.CONTRACT,
                "the leader's dsn leads to a standby, which has locks of its own",
                "name all servers in the dsn, with target_session_attrs=read-write",
            )

    async def _ask(self, connection: Connection, query: str, values: Any = None) -> tuple[Any, ...]:
        async def fetch() -> tuple[Any, ...]:
            row = await (await connection.execute(query.encode(), values)).fetchone()
            return row or ()

        return await self._in_time(fetch(), connection)

    async def _in_time(self, work: Coroutine[Any, Any, T], connection: Connection | None) -> T:
        def give_up() -> Connection | None:
            self._lose()
            return connection

        try:
            return await in_time(self._config.database, work, give_up)
        except psycopg.Error as error:
            raise classified(error, self._redact) from None

    def _confirm(self, asked: float) -> None:
        self._until = asked + self._config.lease * _HELD
        if self._expiry is not None:
            self._expiry.cancel()
        # A timer and not a look now and then: it is the first thing that happens when a frozen process wakes.
        loop = asyncio.get_running_loop()
        self._expiry = loop.call_later(max(0.0, self._until - time.monotonic()), self._lose)
        if self._lost.is_set():
            self._lost.clear()
            log.info("leading: metrics are pushed from here")
            self._changed(True)

    def _lose(self) -> None:
        self._until = 0.0
        if self._expiry is not None:
            self._expiry.cancel()
            self._expiry = None
        if not self._lost.is_set():
            self._lost.set()
            log.warning("the lead is lost: metrics are no longer pushed from here")
            self._changed(False)

    def _note(self, trouble: str) -> None:
        if trouble != self._trouble:
            self._trouble = trouble
            log.warning("leader: %s", trouble)
