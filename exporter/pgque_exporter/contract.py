"""The SQL contract: finding the packs of a database and reading their rows.

A pack is a schema with the functions `observability_info()`, `health_checks()`, `otel_metrics()` and
`queue_health()`.
Nothing here knows what kind of queue a pack describes.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass, replace
from typing import Any, LiteralString, TypeVar

import psycopg
from psycopg import AsyncCursor, sql

from pgque_exporter.assembly import Assembler, in_trouble
from pgque_exporter.config import TargetConfig
from pgque_exporter.connection import Connection, FailureKind, PollError, classified
from pgque_exporter.pack import SEPARATOR, MetricRows, Pack, PackRows
from pgque_exporter.redaction import Redactor
from pgque_exporter.snapshot import Snapshot


@dataclass(frozen=True, slots=True)
class PackFailure:
    """A pack that gave no rows in a poll whose other packs did."""

    schema: str
    error: PollError


@dataclass(frozen=True, slots=True)
class PollResult:
    """Everything that one poll found. `ignored` are schemas that look like a pack but aren't trusted."""

    server_version: str
    snapshot: Snapshot
    packs: tuple[Pack, ...]
    ignored: tuple[str, ...]
    failures: tuple[PackFailure, ...]


# A transaction of its own settings: nothing stays behind in a session that a pooler lends to others.
# One snapshot for all statements; nothing can be written, whatever a pack's functions try. The
# search path keeps functions and operators that others planted in `public` from being picked up.
_BEGIN = """
begin isolation level repeatable read, read only;
set local statement_timeout = {milliseconds};
set local lock_timeout = {milliseconds};
set local idle_in_transaction_session_timeout = {milliseconds};
set local jit = off;
set local search_path = pg_catalog, pg_temp;
select oid, has_function_privilege('pg_control_system()', 'EXECUTE')
from pg_database where datname = current_database()
"""

# Given to a cluster when it is made, and kept by its standbys.
_SYSTEM = "select system_identifier from pg_control_system()"

# Whoever may create a schema could plant functions that would then run with our rights: packs count
# only if the owner of the database or a superuser owns every one of their functions.
_DISCOVER = """
select n.nspname::text,
       bool_and(r.rolsuper or p.proowner = d.datdba),
       has_schema_privilege(n.oid, 'USAGE') and bool_and(has_function_privilege(p.oid, 'EXECUTE'))
from pg_catalog.pg_proc p
join pg_catalog.pg_namespace n on n.oid = p.pronamespace
join pg_catalog.pg_roles r on r.oid = p.proowner
join pg_catalog.pg_database d on d.datname = current_database()
where p.proname in ('observability_info', 'health_checks', 'otel_metrics', 'queue_health') and p.pronargs = 0
group by n.oid, n.nspname
having count(*) = 4
order by n.nspname
"""

# Whatever types the columns of a pack have: a number for a name must not reach those who expect a text.
# The names become label values, and each check a state set of every queue: neither may be without end.
_INFO: LiteralString = """
select left(engine::text, 200), left(engine_version::text, 200), left(pack_version::text, 200),
    array(select check_name::text from {schema}.health_checks()
        where subject = 'queue' and length(check_name::text) between 1 and 200 limit 100),
    array(select check_name::text from {schema}.health_checks()
        where subject = 'consumer' and length(check_name::text) between 1 and 200 limit 100)
from {schema}.observability_info()
"""

# A row per metric, its series in one text each: a tenth of the work of a row per series, here and for the
# driver. The value travels as text, since the cast of a single numeric that no double can hold would cost
# all the others.
_METRICS: LiteralString = """
select metric_name::text, count(*),
    string_agg(coalesce(labels::text, ''), {separator}), string_agg(coalesce(value::text, ''), {separator})
from {schema}.otel_metrics()
group by 1
"""

_HEALTH: LiteralString = """
select queue_name::text, check_name::text, status::text, left(detail::text, 1000)
from {schema}.queue_health()
where status is distinct from 'ok'
"""

T = TypeVar("T")


async def poll(
    connection: Connection,
    config: TargetConfig,
    assembler: Assembler,
    redact: Redactor,
) -> PollResult:
    """Poll every pack of the database in one read-only transaction.

    Raises PollError when no pack gave rows. Afterwards the connection is outside of a transaction, or broken.
    """
    started = time.monotonic()
    try:
        begun = await connection.execute(_begin(config))
        taken_at = time.time()
        origin = await _origin(connection, begun)
        schemas, ignored, failures = await _discover(connection, config)
        attempts = _Attempts(connection, redact, failures, savepoints=len(schemas) > 1)
        read: list[PackRows] = []
        for schema in schemas:
            rows = await attempts.run(schema, _read_metrics(connection, schema))
            if rows is not None:
                read.append(rows)
        for index, rows in enumerate(read):
            if await asyncio.to_thread(in_trouble, rows):
                health = await attempts.run(rows.pack.schema, _read_health(connection, rows.pack.schema))
                read[index] = replace(rows, health=health or ())
    except psycopg.Error as error:
        raise classified(error, redact) from None
    finally:
        await _end_transaction(connection)
    if not read:
        raise failures[0].error
    # Off the event loop: ten thousand new rows take tens of milliseconds.
    snapshot = await asyncio.to_thread(assembler.assemble, read, taken_at, started)
    snapshot = replace(snapshot, origin=origin)
    packs = tuple(rows.pack for rows in read)
    return PollResult(_server_version(connection), snapshot, packs, ignored, tuple(failures))


async def has_pack(connection: Connection, config: TargetConfig) -> bool:
    """Whether the database has a pack that a poll would read, or would miss a grant of."""
    try:
        await connection.execute(_begin(config))
        rows = await (await connection.execute(_DISCOVER)).fetchall()
    finally:
        await _end_transaction(connection)
    return any(trusted or schema in config.packs for schema, trusted, _granted in rows)


def _begin(config: TargetConfig) -> bytes:
    return _BEGIN.format(milliseconds=max(1, int(config.timeout * 1000))).encode()


def _server_version(connection: Connection) -> str:
    # Debian adds its package's version in brackets.
    return (connection.info.parameter_status("server_version") or "").partition(" ")[0]


async def _origin(connection: Connection, begun: AsyncCursor[tuple[Any, ...]]) -> str | None:
    """Which database of which cluster this is, whatever it is called; None if we may not know.

    A restored copy is another one, a standby that was promoted is the same.
    """
    while begun.nextset():
        pass  # to the answer of the last statement
    row = await begun.fetchone()
    if row is None or not row[1]:
        return None
    system = await (await connection.execute(_SYSTEM)).fetchone()
    return f"{system[0]}/{row[0]}" if system else None


async def _discover(
    connection: Connection, config: TargetConfig
) -> tuple[list[str], tuple[str, ...], list[PackFailure]]:
    """Schemas to poll, schemas that aren't trusted, and packs that we can't poll."""
    schemas: list[str] = []
    ignored: list[str] = []
    failures: list[PackFailure] = []
    missing = set(config.packs)
    for schema, trusted, granted in await (await connection.execute(_DISCOVER)).fetchall():
        missing.discard(schema)
        if not trusted and schema not in config.packs:
            ignored.append(schema)
        elif not granted:
            failures.append(PackFailure(schema, await _missing_grants(connection, schema)))
        else:
            schemas.append(schema)
    for schema in sorted(missing):
        error = PollError(
            FailureKind.CONTRACT,
            f"there is no pack in schema {schema!r}",
            "correct `packs`, or install the pack",
        )
        failures.append(PackFailure(schema, error))
    if not schemas and not failures:
        what = "no pack is installed"
        if ignored:
            what = f"no trusted pack is installed (ignored: {', '.join(ignored)})"
        raise PollError(FailureKind.CONTRACT, what, "run `pgque-exporter sql install`")
    return schemas, tuple(ignored), failures


async def _missing_grants(connection: Connection, schema: str) -> PollError:
    row = await (await connection.execute("select quote_ident(current_user)")).fetchone()
    user = row[0] if row else "the service's user"
    return PollError(
        FailureKind.PERMISSION,
        f"the user {user} may not call the functions of pack {schema!r}",
        f"run `grant pgque_monitor to {user}` as the owner of the database",
    )


class _Attempts:
    """Runs the statements of one pack so that their failure leaves the other packs their rows."""

    def __init__(
        self, connection: Connection, redact: Redactor, failures: list[PackFailure], *, savepoints: bool
    ) -> None:
        self._connection = connection
        self._redact = redact
        self._failures = failures
        self._savepoints = savepoints

    async def run(self, schema: str, statements: Coroutine[Any, Any, T]) -> T | None:
        """The result; None after a failure of this pack. A connection that broke raises."""
        if self._savepoints:
            await self._connection.execute("savepoint pack")
        try:
            return await statements
        except (psycopg.Error, PollError) as error:
            failure = classified(error, self._redact)
            if self._connection.broken or failure.kind is FailureKind.CONNECTION:
                raise failure from None
            if failure.kind is FailureKind.PERMISSION:
                # The user may call the contract, or we'd not be here: the pack's own grants are incomplete.
                what = f"the pack in schema {schema!r} lacks a grant: {failure.message}"
                failure = PollError(failure.kind, what, "run `pgque-exporter sql install` again")
            self._failures.append(PackFailure(schema, failure))
            if self._savepoints:
                await self._connection.execute("rollback to savepoint pack")
            return None


async def _read_metrics(connection: Connection, schema: str) -> PackRows:
    cursor = await connection.execute(_in_schema(_INFO, schema))
    row = await cursor.fetchone()
    if row is None or not row[0]:
        raise PollError(
            FailureKind.CONTRACT,
            f"observability_info() of pack {schema!r} names no engine",
            "install the pack anew",
        )
    engine, engine_version, pack_version, queue_checks, consumer_checks = row
    pack = Pack(
        schema,
        engine,
        engine_version or "",
        pack_version or "",
        tuple(queue_checks),
        tuple(consumer_checks),
    )
    cursor = await connection.execute(_in_schema(_METRICS, schema))
    return PackRows(pack, [MetricRows(*row) for row in await cursor.fetchall()])


async def _read_health(connection: Connection, schema: str) -> Sequence[tuple[str | None, ...]]:
    cursor = await connection.execute(_in_schema(_HEALTH, schema))
    return await cursor.fetchall()


def _in_schema(statement: LiteralString, schema: str) -> sql.Composed:
    return sql.SQL(statement).format(schema=sql.Identifier(schema), separator=sql.Literal(SEPARATOR))


async def _end_transaction(connection: Connection) -> None:
    status = connection.info.transaction_status
    if status in (psycopg.pq.TransactionStatus.INTRANS, psycopg.pq.TransactionStatus.INERROR):
        with contextlib.suppress(psycopg.Error):  # the failure that led here is the one to report
            await connection.execute(
                "commit"
            )  # of a failed transaction a rollback, and otherwise none to count
