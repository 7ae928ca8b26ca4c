"""`pgque-exporter sql`: install, verify, remove or print the observability packs."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from typing import Any, LiteralString

import psycopg
from psycopg import errors
from psycopg import sql as composing

from pgque_exporter import sqlfiles
from pgque_exporter.commands.options import add_config_options, load_config, redactor
from pgque_exporter.config import TargetConfig
from pgque_exporter.connection import Connection, PollError, close, connect
from pgque_exporter.errors import UserError
from pgque_exporter.redaction import Redactor, one_line
from pgque_exporter.refusals import Refused, refusal
from pgque_exporter.terminal import printable

MONITOR_ROLE = "pgque_monitor"
_LOCK_TIMEOUT = "10s"  # rather an error than a queue of writers behind us


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Describe the command and its four actions."""
    parser = commands.add_parser(
        "sql",
        help="install, print or remove the SQL packs",
        description="Installs, verifies, removes or prints the SQL that the service polls.",
    )
    actions = parser.add_subparsers(metavar="action", required=True)
    install = actions.add_parser(
        "install",
        help="install the pack of every engine found, or of one",
        description="Installs the observability packs, each in one transaction. Safe to run again.",
    )
    _engine_option(install, "only the pack of this engine (default: of every engine found)")
    _queue_option(install, "first install the queue engine itself")
    _instrument_option(install, "also count what the engine doesn't remember, by triggers on its tables")
    _history_option(install, "instead, make the tables that the pipeline publishes to")
    _grant_option(install)
    add_config_options(install)
    install.set_defaults(act=_install)

    uninstall = actions.add_parser(
        "uninstall",
        help="remove the pack of one engine",
        description=f"Removes a pack. The engine, its data and the role {MONITOR_ROLE} stay.",
    )
    _engine_option(uninstall, "the engine whose pack is removed")
    _queue_option(uninstall, "also remove the queue engine with ALL its queues and events; needs --force")
    _instrument_option(uninstall, "only the instrumentation; the pack stays")
    _history_option(uninstall, "instead, remove what the pipeline has published")
    uninstall.add_argument("--force", action="store_true", help="really delete queues and events")
    add_config_options(uninstall)
    uninstall.set_defaults(act=_uninstall)

    verify = actions.add_parser(
        "verify",
        help="check that installed packs are whole and safe",
        description="Prints what is wrong with the installed packs. Exit code 0 if nothing is, else 1.",
    )
    _engine_option(verify, "only the pack of this engine (default: every pack found)")
    add_config_options(verify)
    verify.set_defaults(act=_verify)

    printing = actions.add_parser(
        "print",
        help="print the SQL, to be applied by hand",
        description="Prints the SQL of a pack for psql or a migration tool; needs no database.",
    )
    _engine_option(printing, "the engine whose pack is printed")
    _queue_option(printing, "the queue engine's SQL too")
    _instrument_option(printing, "its instrumentation too; of what removes it, only the instrumentation's")
    _history_option(printing, "instead, the tables that the pipeline publishes to")
    _grant_option(printing)
    printing.add_argument("--uninstall", action="store_true", help="the SQL that removes it instead")
    printing.add_argument("--debug", action="store_true", help=argparse.SUPPRESS)
    printing.set_defaults(act=_print)


def execute(arguments: argparse.Namespace) -> int:
    """Carry out the chosen action."""
    action: Callable[[argparse.Namespace], int] = arguments.act
    return action(arguments)


def _engine_option(parser: argparse.ArgumentParser, text: str) -> None:
    parser.add_argument("--engine", metavar="NAME", help=text)


def _queue_option(parser: argparse.ArgumentParser, text: str) -> None:
    parser.add_argument("--with-queue", action="store_true", help=text)


def _instrument_option(parser: argparse.ArgumentParser, text: str) -> None:
    parser.add_argument("--instrument", action="store_true", help=text)


def _history_option(parser: argparse.ArgumentParser, text: str) -> None:
    parser.add_argument("--history", action="store_true", help=text)


def _grant_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--grant-to", metavar="ROLE", help=f"then grant {MONITOR_ROLE} to this login role")


# --- the actions ---------------------------------------------------------------------------------


def _history_alone(arguments: argparse.Namespace, action: str) -> bool:
    """Whether it is history that is meant; it belongs to no engine."""
    if arguments.history and (arguments.engine is not None or arguments.with_queue or arguments.instrument):
        what = "--history goes without --engine, --with-queue and --instrument"
        raise UserError(what, where=f"sql {action}", hint="run the command once for each")
    return bool(arguments.history)


def _install_history(arguments: argparse.Namespace) -> int:
    async def install(session: _Session) -> int:
        if arguments.grant_to is not None:
            await session.require_role(arguments.grant_to)
        await session.run(sqlfiles.history_install_sql())
        session.say("tables for history installed")
        if arguments.grant_to is not None:
            await session.run(_grant(arguments.grant_to))
            session.say(f"{MONITOR_ROLE} granted to {arguments.grant_to}")
        return 0

    return _in_each_database(arguments, install)


def _install(arguments: argparse.Namespace) -> int:
    if _history_alone(arguments, "install"):
        return _install_history(arguments)
    chosen = _chosen(arguments.engine)
    queue = _queue_engine(arguments.engine) if arguments.with_queue else None
    if arguments.instrument and arguments.engine is not None:
        sqlfiles.instrumentation_install_sql(arguments.engine)  # or there is none

    async def install(session: _Session) -> int:
        if arguments.grant_to is not None:
            await session.require_role(arguments.grant_to)
        if queue is not None:
            await session.run(sqlfiles.engine_install_sql(queue))
            session.say(f"queue engine {queue} installed")
        absent: list[Refused] = []
        for engine in chosen:
            try:
                await session.run(sqlfiles.pack_install_sql(engine))
            except Refused as refusal:
                if not refusal.absent:
                    raise
                absent.append(refusal)
            else:
                session.say(f"observability pack of {engine} installed")
                # What is there already is brought up to date with its pack.
                if sqlfiles.instrumented(engine) and (
                    arguments.instrument or await session.instrumented_schemas(engine)
                ):
                    await session.run(sqlfiles.instrumentation_install_sql(engine))
                    session.say(f"instrumentation of {engine} installed")
        if len(absent) == len(chosen):
            raise _none_found(session, absent)
        if arguments.grant_to is not None:
            await session.run(_grant(arguments.grant_to))
            session.say(f"{MONITOR_ROLE} granted to {arguments.grant_to}")
        return 0

    return _in_each_database(arguments, install)


def _none_found(session: _Session, absent: Sequence[Refused]) -> UserError:
    if len(absent) == 1:
        return absent[0]
    known = ", ".join(sqlfiles.packs())
    return Refused("no queue engine found", where=session.name, hint=f"there are packs for {known}")


def _uninstall_history(arguments: argparse.Namespace) -> int:
    async def uninstall(session: _Session) -> int:
        await session.run(sqlfiles.history_uninstall_sql())
        session.say("history and its tables removed")
        return 0

    return _in_each_database(arguments, uninstall)


def _uninstall(arguments: argparse.Namespace) -> int:
    if _history_alone(arguments, "uninstall"):
        return _uninstall_history(arguments)
    if arguments.engine is None:
        hint = f"choose with --engine: {', '.join(sqlfiles.packs())}; or --history"
        raise UserError("which pack?", where="sql uninstall", hint=hint)
    chosen = _chosen(arguments.engine)
    queue = _queue_engine(arguments.engine) if arguments.with_queue else None
    if queue is not None and not arguments.force:
        raise UserError(
            f"--with-queue deletes every queue and every event of {queue}",
            where="sql uninstall",
            hint="add --force if that is what you want",
        )
    if queue is not None and arguments.instrument:
        raise UserError(
            "--with-queue removes everything, --instrument only the instrumentation", where="sql uninstall"
        )

    async def uninstall(session: _Session) -> int:
        for engine in chosen:
            if arguments.instrument or sqlfiles.instrumented(engine):
                instrumented = await session.instrumented_schemas(engine)
                await session.run(sqlfiles.instrumentation_uninstall_sql(engine))
                if instrumented:
                    session.say(f"instrumentation of {engine} removed")
                elif arguments.instrument:
                    session.say(f"nothing to remove: no instrumentation of {engine}")
            if arguments.instrument:
                continue
            installed = await session.pack_schemas(engine)
            await session.run(sqlfiles.pack_uninstall_sql(engine))  # in any case: half a pack may be there
            pack = f"observability pack of {engine}"
            session.say(f"{pack} removed" if installed else f"nothing to remove: no {pack}")
        if queue is not None:
            there = await session.has_schema(queue)
            await session.run(sqlfiles.engine_uninstall_sql(queue))
            session.say(
                f"queue engine {queue} removed with all its queues"
                if there
                else f"nothing to remove: no queue engine {queue}"
            )
        return 0

    return _in_each_database(arguments, uninstall)


def _verify(arguments: argparse.Namespace) -> int:
    if arguments.engine is not None:
        _chosen(arguments.engine)

    async def verify(session: _Session) -> int:
        schemas = await session.pack_schemas(arguments.engine)
        if not schemas:
            what = (
                f"no pack of {arguments.engine} is installed" if arguments.engine else "no pack is installed"
            )
            raise Refused(what, where=session.name, hint="run `pgque-exporter sql install`")
        instrumented = await session.instrumented_schemas(arguments.engine)
        total = 0
        for schema in schemas:
            findings = await session.findings(schema)
            tried = not findings and await session.can_monitor()
            if tried:
                findings = await session.failing_calls(schema)
            total += len(findings)
            for what, problem in findings:
                session.say(f"{schema}.{what} {problem}")
            if not findings:
                included = ", with instrumentation" if schema in instrumented else ""
                untried = "" if tried else f" (not tried: this user can't become {MONITOR_ROLE})"
                session.say(f"pack in schema {schema}: whole and safe{included}{untried}")
        return 1 if total else 0

    return _in_each_database(arguments, verify)


def _print(arguments: argparse.Namespace) -> int:
    if _history_alone(arguments, "print"):
        script = sqlfiles.history_uninstall_sql() if arguments.uninstall else sqlfiles.history_install_sql()
        grant = _grant(arguments.grant_to) if arguments.grant_to is not None else ""
        sys.stdout.buffer.write(f"{script}{grant}".encode())
        return 0
    engine = arguments.engine
    queue = _queue_engine(engine) if arguments.with_queue else None
    if engine is None and queue is None and len(sqlfiles.packs()) > 1:
        raise UserError(
            "which pack?", where="sql print", hint=f"choose with --engine: {', '.join(sqlfiles.packs())}"
        )
    chosen = engine or queue or sqlfiles.packs()[0]
    if arguments.uninstall and arguments.instrument:
        scripts = [sqlfiles.instrumentation_uninstall_sql(chosen)]
    elif arguments.uninstall:
        scripts = [sqlfiles.instrumentation_uninstall_sql(chosen)] if sqlfiles.instrumented(chosen) else []
        scripts += [sqlfiles.pack_uninstall_sql(chosen)]
        scripts += [sqlfiles.engine_uninstall_sql(queue)] if queue is not None else []
    else:
        scripts = [sqlfiles.engine_install_sql(queue)] if queue is not None else []
        scripts += [sqlfiles.pack_install_sql(chosen)]
        scripts += [sqlfiles.instrumentation_install_sql(chosen)] if arguments.instrument else []
        scripts += [_grant(arguments.grant_to)] if arguments.grant_to is not None else []
    # Bytes, whatever the locale says: psql reads UTF-8.
    sys.stdout.buffer.write("\n".join(scripts).encode("utf-8"))
    return 0


def _chosen(engine: str | None) -> Sequence[str]:
    """The packs to work on; a UserError when the engine named has none."""
    if engine is None:
        return sqlfiles.packs()
    sqlfiles.pack_install_sql(engine)
    return (engine,)


def _queue_engine(engine: str | None) -> str:
    """The queue engine to install or remove itself: the one named, or the one that we ship."""
    if engine is None:
        shipped = sqlfiles.engines()
        if len(shipped) > 1:
            raise UserError(
                "which queue engine?",
                where="--with-queue",
                hint=f"choose with --engine: {', '.join(shipped)}",
            )
        return shipped[0]
    sqlfiles.engine_install_sql(engine)
    return engine


def _grant(role: str) -> str:
    statement = composing.SQL("grant {} to {};\n").format(
        composing.Identifier(MONITOR_ROLE), composing.Identifier(role)
    )
    return statement.as_string()


# --- one database --------------------------------------------------------------------------------

# Schemas that have a function of this name, by which a pack or its instrumentation is known. Nothing of
# theirs is called here. Published history looks like a pack to the service, and is none of an engine.
_SCHEMAS = """
select n.nspname::text
from pg_catalog.pg_proc p
join pg_catalog.pg_namespace n on n.oid = p.pronamespace
where p.proname = %(function)s
  and p.pronargs = 0
  and n.nspname <> 'queue_history'
  and (%(engine)s::text is null or n.nspname in (%(engine)s, %(engine)s || '_observability'))
order by 1
"""


# The contract as it is called: what a function needs inside of it shows only when it runs.
_CALLS: tuple[LiteralString, ...] = (
    "observability_info()",
    "health_checks()",
    "queue_stats()",
    "consumer_stats()",
    "queue_health()",
    "otel_metrics()",
    "stuck_consumers('1 hour')",
    "dead_letters(0, 1)",
)
# Those about one queue or consumer are tried with the first there is.
_CALLS_FOR_ONE: tuple[LiteralString, ...] = (
    "in_flight(queue_name)",
    "throughput(queue_name, '1 hour', '10 minutes')",
    "error_rate(queue_name, '1 hour', '10 minutes')",
    "latency_percentiles(queue_name, consumer_name, '1 hour')",
)
_ONE: LiteralString = "(select queue_name, consumer_name from {schema}.consumer_stats() limit 1) one, "


class _Session:
    """A connection to one database that turns its refusals into errors for a person."""

    def __init__(self, connection: Connection, name: str, redact: Redactor) -> None:
        self.name = printable(name)
        self._connection = connection
        self._redact = redact

    def say(self, text: str) -> None:
        print(f"{self.name}: {printable(text)}", flush=True)

    async def run(self, script: str) -> None:
        """Run a whole script in one transaction: either all of it counts or nothing."""
        try:
            # One simple query: implicitly one transaction, unless the script begins its own.
            await self._connection.execute(script.encode())
        except psycopg.Error as error:
            raise refusal(error, self._connection, self.name, self._redact) from None
        finally:
            if not self._connection.closed:
                await self._connection.rollback()

    async def require_role(self, role: str) -> None:
        cursor = await self._connection.execute("select to_regrole(quote_ident(%s)) is not null", (role,))
        row = await cursor.fetchone()
        if row is None or not row[0]:
            raise Refused(
                f"there is no role {role!r} on this server",
                where=self.name,
                hint="create it with `create role`",
            )

    async def has_schema(self, schema: str) -> bool:
        query = "select to_regnamespace(quote_ident(%s)) is not null"
        row = await (await self._connection.execute(query, (schema,))).fetchone()
        return row is not None and bool(row[0])

    async def pack_schemas(self, engine: str | None) -> list[str]:
        return await self._schemas("observability_info", engine)

    async def instrumented_schemas(self, engine: str | None) -> list[str]:
        return await self._schemas("instrumented_metrics", engine)

    async def _schemas(self, function: str, engine: str | None) -> list[str]:
        cursor = await self._connection.execute(_SCHEMAS, {"function": function, "engine": engine})
        return [schema for (schema,) in await cursor.fetchall()]

    async def findings(self, schema: str) -> list[tuple[str, str]]:
        """What is wrong with the pack in this schema, as pairs of object and problem."""
        try:
            await self._connection.execute("select set_config('pgque_exporter.schema', %s, false)", (schema,))
            cursor = await self._connection.execute(sqlfiles.verify_sql().encode())
            return [(str(what), str(problem)) for what, problem in await cursor.fetchall()]
        except psycopg.Error as error:
            raise refusal(error, self._connection, self.name, self._redact) from None

    async def can_monitor(self) -> bool:
        """Whether this user may call the contract as the monitor role."""
        try:
            async with self._monitoring():
                return True
        except errors.InsufficientPrivilege:
            return False

    async def failing_calls(self, schema: str) -> list[tuple[str, str]]:
        """Calls of the contract that fail for the monitor role, as pairs of call and problem."""
        within = composing.Identifier(schema)
        one = composing.SQL(_ONE).format(schema=within)
        nothing = composing.Composed([])
        tries = [(call, nothing) for call in _CALLS] + [(call, one) for call in _CALLS_FOR_ONE]
        failing: list[tuple[str, str]] = []
        for call, source in tries:
            statement = composing.SQL("select * from {}{}.{}").format(source, within, composing.SQL(call))
            try:
                async with self._monitoring():
                    await self._connection.execute(statement)
            except psycopg.Error as error:
                if self._connection.broken:
                    raise refusal(error, self._connection, self.name, self._redact) from None
                problem = one_line(error.diag.message_primary or error, self._redact)
                failing.append((call.partition("(")[0], f"fails for {MONITOR_ROLE}: {problem}"))
        return failing

    @contextlib.asynccontextmanager
    async def _monitoring(self) -> AsyncIterator[None]:
        """A transaction as the service has it: as the monitor role, read-only, and without a trace."""
        async with self._connection.transaction(force_rollback=True):
            await self._connection.execute("set transaction read only")
            await self._connection.execute("set local search_path = pg_catalog, pg_temp")
            role = composing.Identifier(MONITOR_ROLE)
            await self._connection.execute(composing.SQL("set local role {}").format(role))
            yield


def _in_each_database(
    arguments: argparse.Namespace, act: Callable[[_Session], Coroutine[Any, Any, int]]
) -> int:
    """Do it in every database of the configuration, one after the other; the worst exit code."""
    config = load_config(arguments)
    redact = redactor(config)
    if not config.targets:
        raise UserError(
            "no database is listed in `targets`", where=arguments.config, hint="choose one with --dsn"
        )
    return max(asyncio.run(_in_database(target, redact, act)) for target in config.targets)


async def _in_database(
    target: TargetConfig, redact: Redactor, act: Callable[[_Session], Coroutine[Any, Any, int]]
) -> int:
    try:
        connection = await connect(target, redact)
    except PollError as error:
        raise Refused(error.message, where=target.name, hint=error.hint) from None
    try:
        await connection.execute("select set_config('lock_timeout', %s, false)", (_LOCK_TIMEOUT,))
        return await act(_Session(connection, target.name, redact))
    finally:
        await close(connection)
