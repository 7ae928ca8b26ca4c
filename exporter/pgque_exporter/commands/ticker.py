"""`pgque-exporter ticker`: drives the queue engine where nothing else calls its ticker and maintenance."""

from __future__ import annotations

import argparse
import asyncio
import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

import psycopg

from pgque_exporter import logs
from pgque_exporter.commands.ending import Ending
from pgque_exporter.commands.options import add_config_options, load_config, redactor
from pgque_exporter.config import Config, DiscoveryConfig, TargetConfig
from pgque_exporter.connection import (
    Connection,
    FailureKind,
    PollError,
    classified,
    close,
    connect,
    in_time,
    pause,
)
from pgque_exporter.discovery import find
from pgque_exporter.redaction import Redactor

log = logging.getLogger(__name__)

_FIRST_PAUSE, _LONGEST_PAUSE = 0.5, 10.0  # seconds before another connection is tried

# The pace is the engine's own setting, the same that its loop under a scheduler goes by. No operator in it:
# that would be looked for in the search path of a role that may do everything to queues.
_TICK = "select c.tick_period_ms, pgque.ticker() from pgque.config as c"
# Seconds between two runs, as the engine's own start() schedules them; each is a transaction of its own.
_MAINTENANCE = (
    (10.0, "select pgque.maint_rotate_tables_step2()"),
    (30.0, "select pgque.maint()"),
    (30.0, "select pgque.maint_retry_events()"),
)


@dataclass
class _Job:
    """A statement that is due at a time of the monotonic clock; `every` None: it answers its pace in ms."""

    statement: str
    every: float | None
    due: float = field(default_factory=time.monotonic)


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Describe the command."""
    parser = commands.add_parser(
        "ticker",
        help="drive the queue engine: ticks, retries, rotation",
        description="Calls the engine's ticker and maintenance in each database until a signal ends it: for "
        "places where no scheduler does. It needs a role that is a member of pgque_admin. Several may run "
        "for one database, one of them is enough. select pgque.set_tick_period_ms(...) sets the pace.",
    )
    add_config_options(parser)


def execute(arguments: argparse.Namespace) -> int:
    """Run until SIGTERM (exit code 0) or Ctrl-C (130)."""
    config = load_config(arguments)
    redact = redactor(config)
    logs.set_up("debug" if arguments.debug else config.log_level, redact)
    return asyncio.run(_run(config, redact))


async def _run(config: Config, redact: Redactor) -> int:
    ending = Ending()
    stopping = asyncio.create_task(ending.stop.wait())
    await asyncio.gather(
        _drive_all(config.targets, redact, stopping),
        *(_drive_found(discovery, redact, stopping) for discovery in config.discoveries),
    )
    return ending.code


async def _drive_found(discovery: DiscoveryConfig, redact: Redactor, stopping: asyncio.Task[bool]) -> None:
    """Drive the databases of a server, once it tells which it has."""
    wait = _FIRST_PAUSE
    trouble: str | None = None
    while not stopping.done():
        try:
            finding = asyncio.create_task(find(discovery, redact))
            await asyncio.wait({finding, stopping}, return_when=asyncio.FIRST_COMPLETED)
            if not finding.done():
                finding.cancel()
                return
            found = finding.result()
        except PollError as error:
            if str(error) != trouble:
                trouble = str(error)
                log.error("%s: %s", discovery.name, error)
            await pause(wait, error, stopping)
            wait = min(wait * 2, _LONGEST_PAUSE)
        else:
            await _drive_all(found.targets, redact, stopping)
            return


async def _drive_all(
    targets: Sequence[TargetConfig], redact: Redactor, stopping: asyncio.Task[bool]
) -> None:
    # Two connections for each database: however long the maintenance takes, the ticks go on.
    await asyncio.gather(*(
        _drive(target, redact, jobs, stopping)
        for target in targets
        for jobs in ([_Job(_TICK, None)], [_Job(statement, every) for every, statement in _MAINTENANCE])
    ))


async def _drive(
    target: TargetConfig, redact: Redactor, jobs: list[_Job], stopping: asyncio.Task[bool]
) -> None:
    """Run the jobs when they are due, on one connection at a time, until `stopping` is done.

    A trouble is logged once, and again when it has become another or is over.
    """
    wait = _FIRST_PAUSE
    trouble: str | None = None
    connection: Connection | None = None
    while not stopping.done():
        job = min(jobs, key=lambda job: job.due)
        if await pause(job.due - time.monotonic(), None, stopping) or stopping.done():
            break
        began = time.monotonic()
        # Whatever becomes of it: one statement that fails must not keep the others from their turn.
        job.due = began + (job.every or 0.0)
        try:
            if connection is None:
                connection = await in_time(target, connect(target, redact), lambda: None, [stopping])
                log.info("%s: connected, %d jobs", target.name, len(jobs))
            answer = await _run_job(target, connection, job, redact, stopping)
        except PollError as error:
            if stopping.done():
                break
            if str(error) != trouble:
                trouble = str(error)
                log.error("%s: %s%s", target.name, error, f" ({error.hint})" if error.hint else "")
            await close(connection)
            connection = None
            await pause(wait, error, stopping)
            wait = min(wait * 2, _LONGEST_PAUSE)
            continue
        if job.every is None:
            job.due = began + answer / 1000
        if trouble is not None:
            log.info("%s: works again", target.name)
        trouble, wait = None, _FIRST_PAUSE
    await close(connection)


async def _run_job(
    target: TargetConfig, connection: Connection, job: _Job, redact: Redactor, stopping: asyncio.Task[bool]
) -> float:
    """The number that the statement answers first; PollError if it fails or takes too long."""

    async def ask() -> float:
        try:
            cursor = await connection.execute(job.statement)
            (answer, *_) = await cursor.fetchone() or (0.0,)
        except psycopg.Error as error:
            failed = classified(error, redact)
            if failed.kind is FailureKind.PERMISSION:
                # The role that suffices for polling doesn't for this.
                failed.hint = "grant pgque_admin to the service's user"
            raise failed from None
        return float(answer)

    return await in_time(target, ask(), lambda: connection, [stopping])
