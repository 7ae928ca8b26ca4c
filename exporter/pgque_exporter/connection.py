"""One connection to one database: opening it, giving it up at once, and naming what went wrong."""

from __future__ import annotations

import asyncio
import contextlib
import math
import os
import re
import socket
import time
from collections.abc import Awaitable, Callable, Collection, Coroutine
from enum import StrEnum
from typing import Any, TypeVar

import psycopg
from psycopg import AsyncConnection

from pgque_exporter import passwords
from pgque_exporter.config import TargetConfig
from pgque_exporter.redaction import Redactor, one_line

Connection = AsyncConnection[tuple[Any, ...]]
T = TypeVar("T")

APPLICATION_NAME = "pgque-exporter"
_PASSWORD_LOOK = 1.0  # seconds between two looks for another password
_GIVE_UP = 0.5  # seconds that a broken-off operation gets to notice


class FailureKind(StrEnum):
    """What kind of trouble kept a poll from succeeding; the `result` label of polls_total."""

    TIMEOUT = "timeout"
    CONNECTION = "connection"
    PERMISSION = "permission"
    CONTRACT = "contract"


class PollError(Exception):
    """A poll that failed. The message is one line and holds no secret; `hint` says what to do."""

    def __init__(self, kind: FailureKind, message: str, hint: str | None = None) -> None:
        self.kind = kind
        self.message = message
        self.hint = hint
        super().__init__(message)


class PasswordRefused(PollError):
    """The server didn't take the password, or there was none; `tried` is `passwords.state` before that."""

    def __init__(self, error: PollError, config: TargetConfig, tried: bytes) -> None:
        super().__init__(error.kind, error.message, error.hint)
        self._config = config
        self._tried = tried

    async def outdated(self) -> bool:
        """Whether another password may be had by now."""
        return await asyncio.to_thread(passwords.state, self._config) != self._tried


async def connect(config: TargetConfig, redact: Redactor) -> Connection:
    """Open a connection; PollError when that fails.

    The password is looked up each time, so that a rotated one needs no restart. If it was rotated at
    this very moment, the new one is tried at once.
    """
    try:
        return await _connect(config, redact)
    except PasswordRefused as error:
        if not await error.outdated():
            raise
    return await _connect(config, redact)


async def pause(seconds: float, error: PollError | None, stopping: asyncio.Task[bool]) -> bool:
    """Wait for `seconds` after a poll that ended with `error`, or until `stopping` is done.

    After a refused password no longer than until there may be another, which is worth a poll at once; then
    the answer is True.
    """
    until = time.monotonic() + seconds
    while not stopping.done() and (left := until - time.monotonic()) > 0:
        if not isinstance(error, PasswordRefused):
            await asyncio.wait({stopping}, timeout=left)
        else:
            await asyncio.wait({stopping}, timeout=min(left, _PASSWORD_LOOK))
            look = asyncio.create_task(error.outdated())  # of files that may be far away and not answer
            await asyncio.wait({look, stopping}, timeout=left, return_when=asyncio.FIRST_COMPLETED)
            if look.done() and look.result():
                return True
            look.cancel()
    return False


async def _connect(config: TargetConfig, redact: Redactor) -> Connection:
    redact.add_dsn(config.dsn)
    redact.add(os.environ.get("PGPASSWORD", ""))
    options: dict[str, Any] = {}
    # Before the password itself is read: should it change in between, it is tried once more, not too seldom.
    tried = await asyncio.to_thread(passwords.state, config)
    if config.password_file is not None:
        try:
            password = await asyncio.to_thread(passwords.read, config.password_file)
        except (OSError, UnicodeDecodeError):
            what = f"can't read the password file {config.password_file}"
            missing = PollError(FailureKind.CONNECTION, what, "check its permissions")
            raise PasswordRefused(missing, config, tried) from None
        redact.add(password)
        options["password"] = password
    try:
        return await AsyncConnection.connect(
            config.dsn,
            autocommit=True,  # a transaction begins when we say so and never lingers
            prepare_threshold=None,  # a transaction pooler hands the next statement to another session
            fallback_application_name=APPLICATION_NAME,
            connect_timeout=max(2, math.ceil(config.timeout)),  # the poll's own deadline is the finer one
            client_encoding="UTF8",
            **options,
        )
    except (psycopg.Error, OSError, UnicodeError) as error:
        failure = classified(error, redact)
        attempt = error.pgconn if isinstance(error, psycopg.Error) else None
        if attempt is not None and (attempt.used_password or attempt.needs_password):
            failure = PasswordRefused(failure, config, tried)
        raise failure from None


async def briefly(
    config: TargetConfig, redact: Redactor, work: Callable[[Connection], Awaitable[T]]
) -> T:
    """Connect, do `work`, disconnect, all within the target's timeout; PollError when that fails."""
    opened: list[Connection] = []

    async def act() -> T:
        opened.append(await connect(config, redact))
        try:
            return await work(opened[0])
        except psycopg.Error as error:
            raise classified(error, redact) from None

    def held() -> Connection | None:
        return opened[0] if opened else None

    try:
        return await in_time(config, act(), held)
    finally:
        await close(held())


async def in_time(
    config: TargetConfig,
    work: Coroutine[Any, Any, T],
    give_up: Callable[[], Connection | None],
    stopping: Collection[asyncio.Task[bool]] = (),
) -> T:
    """The result of `work`, which is over afterwards whatever happens.

    PollError if it takes longer than the target's timeout, or one of `stopping` is done first. Work that
    isn't done by then is broken off: `give_up` is called and tells the connection that it uses.
    """
    task = asyncio.create_task(work)
    try:
        await asyncio.wait(
            {task, *stopping}, timeout=config.timeout, return_when=asyncio.FIRST_COMPLETED
        )
        if task.done():
            return task.result()
    finally:
        if not task.done():
            await _settle(task, give_up())
    raise PollError(
        FailureKind.TIMEOUT,
        f"no answer within {config.timeout:g} s",
        "see whether the database is reachable and responsive, or raise `timeout`",
    )


def abort(connection: Connection) -> None:
    """Break the connection off without a word to the server, which may not be listening.

    Not `close()`: the descriptor has to stay open until psycopg has stopped watching it, or its
    number may be taken by another socket in the meantime. Whoever waits on the connection gets an
    OperationalError at once; cancelling the waiter instead would have psycopg ask the server to
    cancel the query, and wait for seconds on a server that is frozen.
    """
    with contextlib.suppress(OSError, psycopg.Error):
        duplicate = os.dup(connection.pgconn.socket)
        with socket.socket(fileno=duplicate) as sock:
            sock.shutdown(socket.SHUT_RDWR)


async def _settle(task: asyncio.Task[T], connection: Connection | None) -> None:
    """End `task`, which uses `connection`, before its time; afterwards neither is in use."""
    if connection is not None:
        abort(connection)
        await asyncio.wait({task}, timeout=_GIVE_UP)
        connection.pgconn.finish()
    if not task.done():
        task.cancel()
        await asyncio.wait({task}, timeout=_GIVE_UP)
    if task.done() and not task.cancelled():
        task.exception()  # seen: the caller knows better what happened


async def close(connection: Connection | None) -> None:
    """Close politely; never fails and never waits."""
    if connection is not None:
        with contextlib.suppress(psycopg.Error, OSError):
            await connection.close()


_TIMEOUTS = (psycopg.errors.QueryCanceled, psycopg.errors.LockNotAvailable)
_GONE = (psycopg.OperationalError, psycopg.InterfaceError, OSError)


def classified(error: BaseException, redact: Redactor) -> PollError:
    """The PollError that describes any failure of a connection or of a statement."""
    if isinstance(error, PollError):
        return error
    # The server's first line only: DETAIL may quote rows, CONTEXT a page of SQL.
    primary = error.diag.message_primary if isinstance(error, psycopg.Error) else None
    message = one_line(primary or _without_ado(str(error)) or type(error).__name__, redact)
    state = getattr(error, "sqlstate", None)
    if isinstance(error, psycopg.errors.ConnectionTimeout | TimeoutError):
        return PollError(FailureKind.TIMEOUT, "no answer before the deadline", _CHECK_HOST)
    if isinstance(error, _TIMEOUTS):
        return PollError(
            FailureKind.TIMEOUT,
            f"the query was stopped: {message}",
            "raise `timeout`, or see what blocks the database",
        )
    if isinstance(error, psycopg.errors.InsufficientPrivilege):
        return PollError(FailureKind.PERMISSION, message, "grant the monitoring role to the service's user")
    # Classes 08, 28, 3D, 53 and 57 are the server refusing or ending the connection; without a state
    # the connection itself failed.
    if isinstance(error, _GONE) and (state is None or state[:2] in ("08", "28", "3D", "53", "57")):
        return PollError(FailureKind.CONNECTION, message, connection_hint(message))
    return PollError(FailureKind.CONTRACT, message, "see the database's log")


# What psycopg and libpq put around the one thing to know; the kind of failure and the hint say it better.
_ADO = re.compile(r"(?m)^(?:- .*?: )?connection (?:failed|is bad): |\s+Is the server running [^?]*\?")
_NEXT_SERVER = re.compile(r"(?m)^(?=connection to server |- )")
_TO_SERVER = re.compile(r"connection to (server .*?) failed: ")


def _without_ado(text: str) -> str:
    """Each server with its own trouble, once; other texts stay as they are."""
    first, _, all_failures = text.partition("All failures were:\n")
    parts = _NEXT_SERVER.split(_ADO.sub("", all_failures or first))
    return "; ".join(dict.fromkeys(_TO_SERVER.sub(r"\1: ", part.strip()) for part in parts if part.strip()))


_CHECK_HOST = "check host and port, and that the server is up and reachable from here"
_HINTS = tuple(
    (re.compile(pattern), hint)
    for pattern, hint in (
        ("password authentication failed|no password supplied", "check user and password, or password_file"),
        ("role .* does not exist", "check the user in the dsn"),
        ("database .* does not exist", "check dbname in the dsn"),
        ("no pg_hba.conf entry", "allow this host and user in the server's pg_hba.conf"),
        ("too many|remaining connection slots", "raise max_connections, or the limit of the role"),
        ("permission denied for database", "grant connect on the database to the user"),
        ("definition of service|service file", "check service in the dsn, and the file with its definition"),
        ("invalid .*(value|port)|could not match", "correct this option in the dsn or its PG variable"),
        ("(?i)ssl|certificate", "check sslmode and sslrootcert in the dsn"),
        ("on socket", "name the server's host in the dsn, or start one on this machine"),
    )
)


def connection_hint(message: str) -> str:
    """What to do about a connection that failed with `message`."""
    return next((hint for pattern, hint in _HINTS if pattern.search(message)), _CHECK_HOST)
