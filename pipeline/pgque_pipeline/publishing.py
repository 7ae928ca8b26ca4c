"""Baselines, SLOs and forecasts back into PostgreSQL, where the service makes metrics of them.

Each table is staged, compared and changed in one transaction: rows that are the same stay as they are, and
whoever is killed in the middle leaves what was published before.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
from psycopg import Error, IsolationLevel, errors, sql

from pgque_exporter import __version__, sqlfiles
from pgque_exporter.config import TargetConfig
from pgque_exporter.connection import Connection, PollError, close, connect
from pgque_exporter.errors import UserError
from pgque_exporter.redaction import Redactor
from pgque_exporter.refusals import Refused, refusal
from pgque_pipeline.schemas import BASELINES, FORECAST, ROLLUP_1H, SLO, Table
from pgque_pipeline.warehouse.store import Warehouse

_MARK = "pgque_exporter history "
_LOCK_TIMEOUT = "30s"  # another publication is waited for, not for ever
_BATCH_ROWS = 65_536
# Labels of a row together; beyond that PostgreSQL can't index them.
_LONGEST_KEY = 2000


@dataclass(frozen=True)
class Published:
    """What became of one table.

    rows                 rows that are published now
    changed, removed     of those that were there: written anew or for the first time, deleted
    merged               rows that went into another of the same key, or gave way to it
    unusable             rows of no database, or with labels that PostgreSQL can't hold
    as_of, valid_until   newest metric that the table rests on; until when it is shown
    """

    name: str
    rows: int
    changed: int
    removed: int
    merged: int
    unusable: int
    as_of: datetime
    valid_until: datetime


@dataclass(frozen=True)
class _Publication:
    """How a table of the warehouse becomes one in PostgreSQL.

    valid    how long after its newest metric the table tells something of the present
    choose   the rows to publish, from the usable ones; {keys} and {columns} are lists of names. Of several
             rows with the same key one has to be made: the service's metrics have no other labels
    needed   labels without which a row is nobody's
    extra    columns that choosing needs
    """

    name: str
    table: Table
    valid: timedelta
    key: Sequence[str]
    values: Sequence[str]
    choose: str
    needed: Sequence[str] = ("engine", "database")
    extra: Sequence[str] = ("entity_id",)

    @property
    def columns(self) -> list[str]:
        return [*self.key, *self.values]

    @property
    def staged(self) -> list[str]:
        """Columns that are read."""
        return [name for name in self.table.columns if name in {*self.columns, *self.extra}]


_ENTITY = ("engine", "database", "queue", "consumer")

PUBLICATIONS: Sequence[_Publication] = (
    _Publication(
        "baseline",
        BASELINES,
        valid=timedelta(days=14),
        key=(*_ENTITY, "metric", "hour_of_week"),
        values=("median", "low", "high", "hours"),
        # Medians don't add up: the row that rests on most data speaks.
        choose="select distinct on ({keys}) {columns} from usable order by {keys}, hours desc, entity_id",
    ),
    _Publication(
        "slo",
        SLO,
        valid=timedelta(days=2),
        key=("objective", "window_hours", *_ENTITY),
        values=("target", "attainment", "burn", "budget_left"),
        extra=("good", "total"),
        choose="""
            select {keys}, target, attainment, burn, 1 - burn as budget_left
            from (
                select {keys}, max(target) as target, sum(good) / sum(total) as attainment,
                    (1 - sum(good) / sum(total)) / (1 - max(target)) as burn
                from usable
                group by {keys}
            ) as together""",
    ),
    _Publication(
        "forecast",
        FORECAST,
        valid=timedelta(hours=6),
        key=_ENTITY,
        values=("as_of", "seconds_left", "seconds_left_low", "seconds_left_high"),
        needed=_ENTITY,
        # Who is warned too early has lost less than who isn't warned.
        choose="""
            select distinct on ({keys}) {columns} from usable
            order by {keys}, seconds_left nulls last, seconds_left_low nulls last, entity_id""",
    ),
)


def publish(warehouse: Warehouse, target: TargetConfig) -> list[Published]:
    """Make the database hold what the warehouse says, no more and no less. No Spark is needed.

    Raises UserError if the warehouse has nothing or its tables aren't of one state, and where the
    database refuses; tables published before that stay published.
    """
    as_of = newest_metric(warehouse)
    return asyncio.run(_publish(warehouse, target, as_of))


def newest_metric(warehouse: Warehouse) -> datetime:
    """The time of the newest metric that the tables rest on. UserError where they don't rest on the same."""
    if warehouse.manifest.stale:
        raise UserError(
            "the tables are of different states",
            where=str(warehouse.root),
            hint="a run is under way, or one was broken off: let `pgque-pipeline run` end first",
        )
    for day in reversed(warehouse.days(ROLLUP_1H)):
        times = [
            pc.max(batch.column("last_ts")).as_py()
            for batch in _batches(warehouse, warehouse.folders(ROLLUP_1H, [day]), ["last_ts"])
        ]
        known = [time for time in times if time is not None]
        if known:
            return max(known).astimezone(UTC)  # type: ignore[no-any-return]
    raise UserError("there is nothing to publish yet", where=str(warehouse.root))


async def _publish(warehouse: Warehouse, target: TargetConfig, as_of: datetime) -> list[Published]:
    redact = Redactor()
    try:
        connection = await connect(target, redact)
    except PollError as error:
        raise Refused(error.message, where=target.name, hint=error.hint) from None
    try:
        # What another publication brings while we wait for it has to be seen.
        await connection.set_isolation_level(IsolationLevel.READ_COMMITTED)
        zone = str(json.loads(warehouse.manifest.settings)["time_zone"])
        await _require_zone(connection, zone, target.name)
        await _install(connection, target.name, redact)
        found = []
        for publication in PUBLICATIONS:
            async with _transaction(connection):
                found.append(await _table(connection, warehouse, publication, as_of, zone))
        return found
    except Error as error:
        raise refusal(error, connection, target.name, redact) from None
    finally:
        await close(connection)


@asynccontextmanager
async def _transaction(connection: Connection) -> AsyncIterator[None]:
    """One with settings of its own: nothing stays behind in a session that a pooler lends to others."""
    async with connection.transaction():
        await connection.execute("set local search_path = pg_catalog, pg_temp")
        await connection.execute(f"set local lock_timeout = '{_LOCK_TIMEOUT}'".encode())
        yield


# --- the schema ----------------------------------------------------------------------------------

# What stands there, and whether whoever could change its tables is trusted: a trigger of a stranger's
# would run with the rights of whoever publishes.
_STATE = """
select coalesce(obj_description(n.oid, 'pg_namespace'), ''),
    (
        select string_agg(distinct r.rolname, ', ')
        from pg_roles as r
        join (select n.nspowner as owner union select c.relowner from pg_class c where c.relnamespace = n.oid)
            as o on o.owner = r.oid
        join pg_database as d on d.datname = current_database()
        where not (r.rolsuper or r.oid = d.datdba or r.rolname = current_user)
    )
from pg_namespace as n
where n.nspname = 'queue_history'
"""


async def _install(connection: Connection, name: str, redact: Redactor) -> None:
    """Make or renew the tables. Who may not do that uses those of another version, if they are there."""
    state = await _state(connection)
    if state is None or not state[0].startswith(_MARK) or _is_newer(__version__, state[0]):
        try:
            await connection.execute(sqlfiles.history_install_sql().encode())
        except errors.InsufficientPrivilege as error:
            await connection.rollback()
            if state is None or not state[0].startswith(_MARK):
                refused = refusal(error, connection, name, redact)
                raise Refused(
                    refused.what, where=name,
                    hint="have the database's owner run `pgque-exporter sql install --history`, and grant "
                    "select, insert, update, delete on all tables in schema queue_history",
                ) from None  # fmt: skip
        state = await _state(connection)
    if state is not None and state[1] is not None:
        raise Refused(
            f"schema queue_history or what is in it belongs to {state[1]}",
            where=name,
            hint="publish as its owner; or as anyone, if the database's owner or a superuser owns it",
        )


async def _state(connection: Connection) -> tuple[str, str | None] | None:
    async with _transaction(connection):
        row = await (await connection.execute(_STATE)).fetchone()
    return None if row is None else (str(row[0]), row[1])


def _is_newer(version: str, comment: str) -> bool:
    return _numbers(version) > _numbers(comment.removeprefix(_MARK))


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) if part.isdigit() else 0 for part in version.split("."))


async def _require_zone(connection: Connection, zone: str, name: str) -> None:
    try:
        async with _transaction(connection):
            await connection.execute("select now() at time zone %s", (zone,))
    except errors.InvalidParameterValue:
        raise Refused(
            f"the server doesn't know the time zone {zone!r}",
            where=name,
            hint="run the pipeline with one that it knows (see pg_timezone_names)",
        ) from None


# --- one table -----------------------------------------------------------------------------------

# What is the same as it was isn't published anew.
_PUBLISHED = """
insert into queue_history.publication as p (table_name, published_at, as_of, valid_until, time_zone)
values (%(name)s, now(), %(as_of)s, %(valid_until)s, %(zone)s)
on conflict (table_name) do update set
    published_at = excluded.published_at, as_of = excluded.as_of,
    valid_until = excluded.valid_until, time_zone = excluded.time_zone
where %(different)s
    or (p.as_of, p.valid_until, p.time_zone)
        is distinct from (excluded.as_of, excluded.valid_until, excluded.time_zone)
"""


async def _table(
    connection: Connection, warehouse: Warehouse, publication: _Publication, as_of: datetime, zone: str
) -> Published:
    staged = await _stage(connection, warehouse, publication)
    parts = _Parts(publication)
    await connection.execute(
        parts("create temporary table usable on commit drop as select {named} from staged where {holdable}")
    )
    await connection.execute(parts("create temporary table chosen on commit drop as {choose}"))
    await connection.execute("analyze chosen")
    usable, rows = await _count(connection, "usable"), await _count(connection, "chosen")
    # Readers go on; another publication waits here, so that neither deletes what the other has brought.
    await connection.execute(parts("lock table {target} in share row exclusive mode"))
    removed = await connection.execute(
        parts("delete from {target} as p where not exists (select from chosen as c where {same_key})")
    )
    changed = await connection.execute(
        parts(
            "insert into {target} as p ({columns}) select {columns} from chosen"
            " on conflict ({keys}) do update set {set}"
            " where ({present}) is distinct from ({excluded})"
        )
    )
    valid_until = as_of + publication.valid
    await connection.execute(
        _PUBLISHED,
        {
            "name": publication.name,
            "as_of": as_of,
            "valid_until": valid_until,
            "zone": zone,
            "different": changed.rowcount + removed.rowcount > 0,
        },
    )
    return Published(
        publication.name,
        rows=rows,
        changed=changed.rowcount,
        removed=removed.rowcount,
        merged=usable - rows,
        unusable=staged - usable,
        as_of=as_of,
        valid_until=valid_until,
    )


async def _count(connection: Connection, table: str) -> int:
    query = sql.SQL("select count(*) from {}").format(sql.Identifier(table))
    row = await (await connection.execute(query)).fetchone()
    return int(row[0]) if row else 0


async def _stage(connection: Connection, warehouse: Warehouse, publication: _Publication) -> int:
    """Copy the table into a temporary one, a batch at a time; how many rows it has."""
    columns = sql.SQL(", ").join(map(sql.Identifier, publication.staged))
    types = {field.name: _TYPES[field.type] for field in publication.table.fields if field.type in _TYPES}
    described = sql.SQL(", ").join(
        sql.SQL("{} {}").format(sql.Identifier(name), sql.SQL(types[name])) for name in publication.staged
    )
    await connection.execute(sql.SQL("create temporary table staged ({}) on commit drop").format(described))
    rows = 0
    statement = sql.SQL("copy staged ({}) from stdin (format csv)").format(columns)
    folders = warehouse.folders(publication.table)
    async with connection.cursor() as cursor, cursor.copy(statement) as copy:
        for batch in _batches(warehouse, folders, publication.staged):
            rows += batch.num_rows
            await copy.write(_csv(batch))
    return rows


_TYPES: dict[str, Any] = {
    "string": "text",
    "int": "integer",
    "bigint": "bigint",
    "double": "double precision",
    "timestamp": "timestamptz",
}


class _Parts:
    """Fills in the names of a publication."""

    def __init__(self, publication: _Publication) -> None:
        keys, columns, values = publication.key, publication.columns, publication.values
        labels = " || ".join(f"coalesce({name}, '')" for name in keys if name not in _NUMBERS)
        present = " and ".join(f"{name} <> ''" for name in publication.needed)
        named = ", ".join(
            f"coalesce({name}, '') as {name}" if name in ("queue", "consumer") else name
            for name in publication.staged
        )
        self._names = {
            "target": f"queue_history.{publication.name}",
            "keys": ", ".join(keys),
            "columns": ", ".join(columns),
            "same_key": " and ".join(f"p.{name} = c.{name}" for name in keys),
            "set": ", ".join(f"{name} = excluded.{name}" for name in values),
            "present": ", ".join(f"p.{name}" for name in values),
            "excluded": ", ".join(f"excluded.{name}" for name in values),
            "named": named,
            "holdable": f"{present} and octet_length({labels}) <= {_LONGEST_KEY}",
        }
        self._names["choose"] = publication.choose.format(**self._names)

    def __call__(self, text: str) -> bytes:
        return text.format(**self._names).encode()


_NUMBERS = ("window_hours", "hour_of_week")


def _batches(
    warehouse: Warehouse, folders: Sequence[str], columns: Sequence[str]
) -> Iterator[pa.RecordBatch]:
    for folder in folders:
        for path in sorted((warehouse.root / folder).glob("*.parquet")):
            with pq.ParquetFile(path) as file:
                yield from file.iter_batches(batch_size=_BATCH_ROWS, columns=list(columns))


def _csv(batch: pa.RecordBatch) -> memoryview:
    """Rows as COPY reads them: what is quoted is a value, what isn't is NULL."""
    for index in range(batch.num_columns):
        if pa.types.is_string(batch.column(index).type):
            # PostgreSQL's text can't hold this character.
            held = pc.invert(pc.fill_null(pc.match_substring(batch.column(index), "\0"), False))
            batch = batch.filter(held)
    sink = pa.BufferOutputStream()
    options = pa_csv.WriteOptions(include_header=False, quoting_style="all_valid")
    pa_csv.write_csv(batch, sink, options)
    return memoryview(sink.getvalue())
