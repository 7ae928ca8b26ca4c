"""A Spark data source: the dead letters that databases hold, without payloads.

One partition for each database, read a page at a time through the contract, by a user that may only monitor.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, LiteralString, cast

import psycopg
import pyarrow as pa
from psycopg import sql
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from pgque_exporter.config import TargetConfig
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

PAGE = 5000

# A row is a dead letter, or tells by `failure` why a database can't be read any further.
SCHEMA = (
    "database string, engine string, dead_letter_id bigint, queue string, consumer string, "
    "dead_at timestamp, event_type string, reason string, failure string"
)
_ARROW = pa.schema(
    [
        ("database", pa.string()),
        ("engine", pa.string()),
        ("dead_letter_id", pa.int64()),
        ("queue", pa.string()),
        ("consumer", pa.string()),
        ("dead_at", pa.timestamp("us", tz="UTC")),
        ("event_type", pa.string()),
        ("reason", pa.string()),
        ("failure", pa.string()),
    ]
)

# Packs count under the same condition as for the service; published history is none.
_PACKS = """
select n.nspname::text,
    bool_and(r.rolsuper or p.proowner = d.datdba),
    has_schema_privilege(n.oid, 'USAGE') and bool_and(has_function_privilege(p.oid, 'EXECUTE')),
    bool_or(p.proname = 'dead_letters')
from pg_proc as p
join pg_namespace as n on n.oid = p.pronamespace
join pg_roles as r on r.oid = p.proowner
join pg_database as d on d.datname = current_database()
where p.proname = 'observability_info' and p.pronargs = 0
    or p.proname = 'dead_letters' and oidvectortypes(p.proargtypes) = 'bigint, integer'
group by n.oid, n.nspname
having bool_or(p.proname = 'observability_info')
order by n.nspname
"""
_HISTORY = "queue_history"
_ENGINE: LiteralString = "select left(engine::text, 200) from {}.observability_info()"
_LETTERS: LiteralString = """
select dead_letter_id, queue_name::text, consumer_name::text, dead_at, event_type::text, reason::text
from {}.dead_letters(%s, %s)
"""


def read(spark: SparkSession, targets: Sequence[TargetConfig]) -> DataFrame:
    """The dead letters of these databases, with the columns of `SCHEMA`; each is read when its turn comes."""

    # The targets are part of the class: options would show the DSN in every plan.
    class DeadLetters(DataSource):
        @classmethod
        def name(cls) -> str:
            return "pgque_dead_letters"

        def schema(self) -> str:
            return SCHEMA

        def reader(self, schema: StructType) -> DataSourceReader:  # noqa: ARG002 - as Spark calls it
            return _Reader(targets)

    spark.dataSource.register(DeadLetters)
    return spark.read.format(DeadLetters.name()).load()


@dataclass
class _Partition(InputPartition):
    target: TargetConfig


class _Reader(DataSourceReader):
    def __init__(self, targets: Sequence[TargetConfig]) -> None:
        self._targets = targets

    def partitions(self) -> Sequence[InputPartition]:
        return [_Partition(target) for target in self._targets]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        yield from _pages(cast(_Partition, partition).target)


def _pages(target: TargetConfig) -> Iterator[pa.RecordBatch]:
    """All pages of a database; at last, if it comes to that, the failure that ended it."""
    redact = Redactor()
    with asyncio.Runner() as runner:
        try:
            connection = runner.run(in_time(target, connect(target, redact), lambda: None))
        except PollError as error:
            yield _failed(target, error)
            return
        try:
            for schema in runner.run(in_time(target, _packs(connection, target), lambda: connection)):
                yield from _letters(runner, connection, target, schema)
        except PollError as error:
            yield _failed(target, error)
        except psycopg.Error as error:
            yield _failed(target, classified(error, redact))
        finally:
            runner.run(close(connection))


def _letters(
    runner: asyncio.Runner, connection: Connection, target: TargetConfig, schema: str
) -> Iterator[pa.RecordBatch]:
    after = 0
    engine = runner.run(in_time(target, _engine(connection, target, schema), lambda: connection))
    while True:
        rows = runner.run(in_time(target, _page(connection, target, schema, after), lambda: connection))
        if not rows:
            return
        after = rows[-1][0]
        columns = [
            [target.name] * len(rows),
            [engine] * len(rows),
            *zip(*rows, strict=True),
            [None] * len(rows),
        ]
        yield pa.RecordBatch.from_arrays(
            [pa.array(column, field.type) for column, field in zip(columns, _ARROW, strict=True)],
            schema=_ARROW,
        )


def _failed(target: TargetConfig, error: PollError) -> pa.RecordBatch:
    text = f"{error.message}. {error.hint[0].upper()}{error.hint[1:]}" if error.hint else error.message
    row = dict.fromkeys(_ARROW.names) | {"database": target.name, "failure": text}
    return pa.RecordBatch.from_pylist([row], schema=_ARROW)


async def _packs(connection: Connection, target: TargetConfig) -> list[str]:
    """Schemas of the packs to read."""
    async with _reading(connection, target):
        rows = await (await connection.execute(_PACKS)).fetchall()
    found = []
    for schema, trusted, granted, able in rows:
        if schema == _HISTORY or not (trusted or schema in target.packs):
            continue
        if not granted:
            raise PollError(
                FailureKind.PERMISSION,
                f"user {connection.info.user} may not call the functions of the pack in schema {schema!r}",
                "run `grant pgque_monitor to ...` as the owner of the database",
            )
        if not able:
            raise PollError(
                FailureKind.CONTRACT,
                f"the pack in schema {schema!r} is too old to tell of dead letters",
                "run `pgque-exporter sql install` again",
            )
        found.append(schema)
    if not found and not any(schema == _HISTORY for schema, *_ in rows):
        raise PollError(FailureKind.CONTRACT, "no pack is installed", "run `pgque-exporter sql install`")
    return found


async def _engine(connection: Connection, target: TargetConfig, schema: str) -> str | None:
    async with _reading(connection, target):
        query = sql.SQL(_ENGINE).format(sql.Identifier(schema))
        row = await (await connection.execute(query)).fetchone()
    return None if row is None else row[0]


async def _page(
    connection: Connection, target: TargetConfig, schema: str, after: int
) -> list[tuple[Any, ...]]:
    async with _reading(connection, target):
        query = sql.SQL(_LETTERS).format(sql.Identifier(schema))
        return await (await connection.execute(query, (after, PAGE))).fetchall()


@asynccontextmanager
async def _reading(connection: Connection, target: TargetConfig) -> AsyncIterator[None]:
    """A transaction that can write nothing and finds nothing that others planted; it leaves no trace."""
    milliseconds = max(1, int(target.timeout * 1000))
    async with connection.transaction():
        await connection.execute("set transaction read only")
        await connection.execute(f"set local statement_timeout = {milliseconds}".encode())
        await connection.execute("set local search_path = pg_catalog, pg_temp")
        await connection.execute("set local time zone 'UTC'")
        yield
