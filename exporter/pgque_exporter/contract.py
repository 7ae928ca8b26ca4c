"""The SQL contract: finding packs in a database, polling them, and turning rows into a Snapshot.

A pack is a schema with the functions `observability_info()`, `health_checks()`, `otel_metrics()` and
`queue_health()`.
Nothing here knows what kind of queue a pack describes.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import Coroutine, Iterator, Sequence
from dataclasses import dataclass, replace
from math import isfinite
from typing import Any, LiteralString, TypeVar, cast

import psycopg
from psycopg import AsyncCursor, sql

from pgque_exporter.catalogue import Catalogue, Metric, MetricType, Source
from pgque_exporter.config import TargetConfig
from pgque_exporter.config_limits import Limits
from pgque_exporter.connection import Connection, FailureKind, PollError, classified
from pgque_exporter.histograms import BUCKET, HistogramRows, histogram_families, histogram_part
from pgque_exporter.limits import TARGET_LIMIT, TOTAL_LIMIT, SeriesLimit
from pgque_exporter.redaction import Redactor
from pgque_exporter.snapshot import Family, HealthCheck, Labels, Series, Snapshot

BOUND = "le"
CONTRACT_LABELS = ("queue", "consumer", "check", "state", BOUND)
HEALTH_STATE = "pgque.queue.health_state"
HEALTH_STATUS = "pgque.queue.health_status"
INVALID_LABEL, LONG_LABEL, MANY_LABELS = "invalid_label", "label_too_long", "too_many_labels"
DROP_REASONS = (
    "unknown_metric",
    INVALID_LABEL,
    LONG_LABEL,
    MANY_LABELS,
    "duplicate",
    "no_value",
    "invalid_histogram",
    TARGET_LIMIT,
    TOTAL_LIMIT,
)
_STATES: dict[str, float | None] = {
    "ok": 0.0,
    "warning": 1.0,
    "critical": 2.0,
    "unknown": None,
}  # and their numbers


@dataclass(frozen=True, slots=True)
class Pack:
    """An installed pack, and what it says about itself."""

    schema: str
    engine: str
    engine_version: str
    pack_version: str
    queue_checks: tuple[str, ...]  # what it checks of every queue
    consumer_checks: tuple[str, ...]  # and of every consumer


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

# Grouped arrays: a tenth of the client's work of a row per series. The value travels as text, since
# the cast of a single numeric that no double can hold would cost all the others.
_METRICS: LiteralString = """
select metric_name, array_agg(labels::text), array_agg(value::text)
from {schema}.otel_metrics()
group by metric_name
"""

_HEALTH: LiteralString = """
select queue_name::text, check_name::text, status::text, left(detail::text, 1000)
from {schema}.queue_health()
where status is distinct from 'ok'
"""

_Grouped = tuple[str | None, Sequence[str | None], Sequence[str | None]]
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class _Rows:
    """What one pack returned."""

    pack: Pack
    metrics: Sequence[_Grouped]
    health: Sequence[tuple[str | None, ...]] = ()


async def poll(
    connection: Connection,
    config: TargetConfig,
    catalogue: Catalogue,
    cache: LabelCache,
    limit: SeriesLimit,
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
        read: list[_Rows] = []
        for schema in schemas:
            rows = await attempts.run(schema, _read_metrics(connection, schema))
            if rows is not None:
                read.append(rows)
        cache.begin()
        for index, rows in enumerate(read):
            if _in_trouble(rows, cache):
                health = await attempts.run(rows.pack.schema, _read_health(connection, rows.pack.schema))
                read[index] = replace(rows, health=health or ())
    except psycopg.Error as error:
        raise classified(error, redact) from None
    finally:
        await _end_transaction(connection)
    if not read:
        raise failures[0].error
    # Off the event loop: ten thousand rows take it tens of milliseconds.
    snapshot = await asyncio.to_thread(
        _assemble, config.name, read, catalogue, cache, limit, taken_at, started
    )
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


async def _read_metrics(connection: Connection, schema: str) -> _Rows:
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
    cursor = await connection.execute(_in_schema(_METRICS, schema), binary=True)
    return _Rows(pack, await cursor.fetchall())


async def _read_health(connection: Connection, schema: str) -> Sequence[tuple[str | None, ...]]:
    cursor = await connection.execute(_in_schema(_HEALTH, schema))
    return await cursor.fetchall()


def _in_schema(statement: LiteralString, schema: str) -> sql.Composed:
    return sql.SQL(statement).format(schema=sql.Identifier(schema))


async def _end_transaction(connection: Connection) -> None:
    status = connection.info.transaction_status
    if status in (psycopg.pq.TransactionStatus.INTRANS, psycopg.pq.TransactionStatus.INERROR):
        with contextlib.suppress(psycopg.Error):  # the failure that led here is the one to report
            await connection.execute(
                "commit"
            )  # of a failed transaction a rollback, and otherwise none to count


# --- rows to snapshot ----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Parsed:
    """A label set as text made usable: labels with engine and database first, and their names."""

    labels: Labels
    names: frozenset[str]


class LabelCache:
    """Label sets of one database, each distinct text parsed once; `labels` of the target are added to all.

    It holds what the last poll saw and nothing older, so that series that come and go can't fill the memory.
    """

    def __init__(self, database: str, limits: Limits, labels: Labels = ()) -> None:
        self._labels = (("database", database), *labels)
        self._limits = limits
        self._previous: dict[tuple[str, str], _Parsed | str] = {}
        self._current: dict[tuple[str, str], _Parsed | str] = {}
        self._previous_sets: dict[Labels, tuple[Labels, ...]] = {}
        self._current_sets: dict[Labels, tuple[Labels, ...]] = {}

    def begin(self) -> None:
        """A poll begins: what the poll before it didn't use is forgotten."""
        self._previous, self._current = self._current, {}
        self._previous_sets, self._current_sets = self._current_sets, {}

    def get(self, engine: str, text: str | None) -> _Parsed | str:
        """The label set; if it can't be used, the reason as a text."""
        key = (engine, text or "{}")
        current, previous = self._current, self._previous
        try:
            return current[key]
        except KeyError:
            parsed = current[key] = previous[key] if key in previous else self._parse(*key)
            return parsed

    def get_all(self, engine: str, texts: Sequence[str | None]) -> list[_Parsed | str]:
        """The same for many at once, where nearly all are known from the poll before."""
        keys = [(engine, text or "{}") for text in texts]
        found = list(map(self._previous.get, keys))
        if None in found:
            return [self.get(*key) for key in keys]
        known = cast("list[_Parsed | str]", found)
        self._current.update(zip(keys, known, strict=True))
        return known

    def state_set(self, check: Labels) -> tuple[Labels, ...]:
        """The labels of a check with each state that it may be in, in the order of the states."""
        labels = self._previous_sets.get(check)
        if labels is None:
            labels = tuple((*check, ("state", state)) for state in _STATES)
        self._current_sets[check] = labels
        return labels

    def _parse(self, engine: str, text: str) -> _Parsed | str:
        try:
            given = json.loads(text)
        except (ValueError, RecursionError):  # no JSON, a number of thousands of digits, nested too deeply
            return INVALID_LABEL
        if not isinstance(given, dict) or not all(_is_label(*pair) for pair in given.items()):
            return INVALID_LABEL
        # An empty value is the same as no label to Prometheus, and so must not make a second series.
        names = tuple(name for name in CONTRACT_LABELS if given.get(name))
        if any(len(given[name]) > self._limits.label_length for name in names):
            return LONG_LABEL
        labels = (("engine", engine), *self._labels, *((name, given[name]) for name in names))
        return _Parsed(labels, frozenset(names)) if len(labels) <= self._limits.labels else MANY_LABELS


def _is_label(name: str, value: object) -> bool:
    if name not in CONTRACT_LABELS or not isinstance(value, str):
        return False
    try:
        value.encode()
    except UnicodeEncodeError:  # half a surrogate pair, which the type json lets pass and no page can hold
        return False
    return True


def _in_trouble(rows: _Rows, cache: LabelCache) -> bool:
    for name, texts, values in rows.metrics:
        if name == HEALTH_STATE:
            for text, value in zip(texts, values, strict=True):
                parsed = cache.get(rows.pack.engine, text) if _number(value) else ""
                if isinstance(parsed, _Parsed) and ("state", "ok") not in parsed.labels:
                    return True
    return False


def _assemble(
    database: str,
    read: Sequence[_Rows],
    catalogue: Catalogue,
    cache: LabelCache,
    limit: SeriesLimit,
    taken_at: float,
    started: float,
) -> Snapshot:
    dropped = dict.fromkeys(DROP_REASONS, 0)
    series: dict[str, dict[Labels, float]] = {}
    histograms: dict[str, HistogramRows] = {}
    for rows in read:
        for name, texts, values in rows.metrics:
            metric = catalogue.get(name) if name is not None else None
            if metric is not None and _in_contract(metric):
                found = series.setdefault(metric.name, {})
                _collect(metric, rows.pack.engine, texts, values, cache, found, dropped)
            elif name is not None and (of := histogram_part(catalogue, name)) is not None:
                histogram, part = of
                parts = histograms.setdefault(histogram.name, HistogramRows())
                _collect_part(histogram, part, rows.pack.engine, texts, values, cache, parts, dropped)
            else:
                dropped["unknown_metric"] += len(texts)
    _complete_health([rows.pack for rows in read], series, cache)
    families = tuple(
        Family(metric, tuple(map(Series._make, series[metric.name].items())))
        for metric in catalogue
        if series.get(metric.name)
    )
    whole, dropped["invalid_histogram"] = histogram_families(catalogue, histograms)
    families, whole, excess = limit.apply(families, whole)
    dropped |= excess
    states = [(labels, value) for labels, value in series.get(HEALTH_STATE, {}).items() if value]
    return Snapshot(
        database=database,
        taken_at=taken_at,
        duration=time.monotonic() - started,
        families=families,
        checks=tuple(check for rows in read for check in _checks(rows, states)),
        checks_ok=sum(("state", "ok") in labels for labels, _ in states),
        dropped=dropped,
        histograms=whole,
    )


def _in_contract(metric: Metric) -> bool:
    """Whether rows of a pack may carry this metric; a histogram comes in parts."""
    return metric.source is not Source.SERVICE and metric.type is not MetricType.HISTOGRAM


def _collect(
    metric: Metric,
    engine: str,
    texts: Sequence[str | None],
    values: Sequence[str | None],
    cache: LabelCache,
    found: dict[Labels, float],
    dropped: dict[str, int],
) -> None:
    """Put the good rows of one metric into `found` and count the others."""
    allowed = frozenset(metric.labels)
    counter = metric.type is MetricType.COUNTER
    for parsed, value in zip(cache.get_all(engine, texts), _numbers(values), strict=True):
        if isinstance(parsed, str):
            dropped[parsed] += 1
            continue
        if not parsed.names <= allowed:
            dropped[INVALID_LABEL] += 1
            continue
        if parsed.labels in found:
            dropped["duplicate"] += 1
            continue
        # A counter below zero is no value either: it would make the whole page invalid.
        if value is None or (counter and value < 0):
            dropped["no_value"] += 1
            continue
        found[parsed.labels] = value


def _collect_part(
    metric: Metric,
    part: str,
    engine: str,
    texts: Sequence[str | None],
    values: Sequence[str | None],
    cache: LabelCache,
    found: HistogramRows,
    dropped: dict[str, int],
) -> None:
    """The same for the rows that are one part of a histogram."""
    allowed = frozenset((*metric.labels, BOUND))
    for text, value_text in zip(texts, values, strict=True):
        parsed = cache.get(engine, text)
        if isinstance(parsed, str):
            dropped[parsed] += 1
            continue
        if not parsed.names <= allowed or (BOUND in parsed.names) != (part == BUCKET):
            dropped[INVALID_LABEL] += 1
            continue
        value = _number(value_text)
        if value is None or value < 0:
            dropped["no_value"] += 1
            continue
        try:
            if not found.add(part, parsed.labels, value):
                dropped["duplicate"] += 1
        except ValueError:
            dropped[INVALID_LABEL] += 1


def _complete_health(
    packs: Sequence[Pack], series: dict[str, dict[Labels, float]], cache: LabelCache
) -> None:
    """Make the state sets whole: a row for each state of each check, 1 for the one that it is in, else 0.

    A pack sends the checks that aren't ok, and a status of every queue and consumer. Its other checks of
    them are ok. Whatever it does send stays.
    """
    states = series.setdefault(HEALTH_STATE, {})
    statuses = series.setdefault(HEALTH_STATUS, {})
    current: dict[Labels, str] = {}  # state of a check, by the labels of the check
    by_engine = {pack.engine: pack for pack in packs}

    def checks_of(subject: Labels) -> tuple[str, ...]:
        pack = by_engine[subject[0][1]]
        return pack.consumer_checks if subject[-1][0] == "consumer" else pack.queue_checks

    subjects = dict.fromkeys(statuses)
    for labels, value in states.items():
        name, state = labels[-1]
        if value and name == "state" and state in _STATES:
            current[labels[:-1]] = state
            name, check = labels[-2]
            # A check of something else, such as the scheduler, tells of no queue.
            if name == "check" and check in checks_of(labels[:-2]):
                subjects[labels[:-2]] = None

    for subject in subjects:
        for check in checks_of(subject):
            current.setdefault((*subject, ("check", check)), "ok")
    for check_labels, state in current.items():
        for name, labels in zip(_STATES, cache.state_set(check_labels), strict=True):
            states.setdefault(labels, float(name == state))

    # A pack that leaves the status out: the worst of its checks, unless none is known.
    worst: dict[Labels, float] = {}
    for check_labels, state in current.items():
        number, subject = _STATES[state], check_labels[:-1]
        if number is not None and subject not in statuses:
            worst[subject] = max(number, worst.get(subject, number))
    statuses.update(worst)


def _numbers(texts: Sequence[str | None]) -> Sequence[float | None]:
    """Each as `_number`; all at once if all are good, which is a third of the work."""
    try:
        values = list(map(float, cast("Sequence[str]", texts)))
    except (TypeError, ValueError):  # no value, or a text that is no number
        return [_number(text) for text in texts]
    return values if all(map(isfinite, values)) else [_number(text) for text in texts]


def _number(text: str | None) -> float | None:
    try:
        value = float(text) if text is not None else None
    except ValueError:
        return None
    return value if value is not None and isfinite(value) else None


def _checks(rows: _Rows, states: Sequence[tuple[Labels, float]]) -> Iterator[HealthCheck]:
    """The checks that aren't ok, in the words of queue_health(), or failing that by their states alone."""
    engine = rows.pack.engine
    for queue, check, status, detail in rows.health:
        known = status if status is not None and status in _STATES else "unknown"
        yield HealthCheck(engine, queue or "", check or "", known, detail or "")
    if not rows.health:
        for labels, _ in states:
            given = dict(labels)
            if given["engine"] == engine and given.get("state") != "ok":
                check = ":".join(filter(None, (given.get("check"), given.get("consumer"))))
                state = given.get("state")
                known = state if state in _STATES else "unknown"
                yield HealthCheck(engine, given.get("queue", ""), check, known, "")
