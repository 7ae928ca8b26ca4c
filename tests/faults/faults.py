"""What may happen to a database: each fault begins, lasts, and ends."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from enum import Enum
from functools import partial
from typing import Any

import psycopg

from pgque_exporter.connection import FailureKind
from tests.faults.proxy import Network
from tests.faults.stage import DATABASE, METRICS, PASSWORD, USER, Stage

_TOY = "toy_observability"
_METRICS = (
    f"create or replace function {_TOY}.otel_metrics() returns table"
    " (metric_name text, metric_type text, value numeric, labels jsonb) language sql stable as $$ {body} $$"
)
_SLOW = f"select r.* from {_TOY}.row r, pg_sleep(60)"
_FAILING = f"select metric_name, metric_type, 1 / 0 * value, labels from {_TOY}.row"


class Cost(Enum):
    """How many polls a fault may cost."""

    NOTHING = "nothing"  # the service gets over it within the poll
    LITTLE = "little"  # one poll perhaps, then there is a way round it
    ALL = "all"  # each that begins before its end


@dataclass(frozen=True)
class Fault:
    """`happens` is the fault while its context is open; `kinds` are the failures that polls may have."""

    happens: Callable[[Stage], AbstractContextManager[None]]
    cost: Cost
    kinds: frozenset[FailureKind]


def fault(
    happens: Callable[[Any], AbstractContextManager[None]], *kinds: FailureKind, cost: Cost = Cost.ALL
) -> Fault:
    """A fault that costs every poll, or nothing if it has no kinds."""
    return Fault(happens, cost if kinds else Cost.NOTHING, frozenset(kinds))


@contextmanager
def _session_ended(stage: Stage) -> Iterator[None]:
    stage.end_sessions()
    yield


@contextmanager
def _sessions_end_when_idle(stage: Stage) -> Iterator[None]:
    stage.run(f"alter role {USER} set idle_session_timeout = '20ms'")
    stage.end_sessions()
    try:
        yield
    finally:
        stage.run(f"alter role {USER} reset idle_session_timeout")


@contextmanager
def server_stopped(stage: Stage, *, immediate: bool = False) -> Iterator[None]:
    """The server is shut down, or ended as in a crash, and started at the end."""
    stage.cluster.stop(immediate=immediate)
    try:
        yield
    finally:
        stage.cluster.start()


@contextmanager
def server_restarted(stage: Stage) -> Iterator[None]:
    """The server crashed and is there again."""
    stage.cluster.stop(immediate=True)
    stage.cluster.start()
    yield


@contextmanager
def _postmaster_killed(stage: Stage) -> Iterator[None]:
    stage.kill_postmaster()
    try:
        yield
    finally:
        stage.cluster.start()


@contextmanager
def _session_frozen(stage: Stage) -> Iterator[None]:
    with stage.frozen(*(pid for (pid,) in stage.sessions())):
        yield


@contextmanager
def _server_frozen(stage: Stage) -> Iterator[None]:
    with stage.frozen(*stage.processes()):
        yield


@contextmanager
def _network(stage: Stage, network: Network) -> Iterator[None]:
    stage.proxy.become(network)
    try:
        yield
    finally:
        stage.proxy.become(Network.UP)


@contextmanager
def _lock_held(stage: Stage) -> Iterator[None]:
    with stage.admin() as admin, admin.transaction():
        admin.execute(f"lock table {_TOY}.row in access exclusive mode")
        yield


@contextmanager
def _metrics_function(stage: Stage, body: str) -> Iterator[None]:
    stage.run(_METRICS.format(body=body))
    try:
        yield
    finally:
        stage.run(_METRICS.format(body=METRICS))


@contextmanager
def _changed(stage: Stage, change: str, back: str, *, reconnect: bool = True) -> Iterator[None]:
    """Something that an administrator did, and takes back; mostly it matters to new sessions only."""
    if reconnect:
        stage.run(f"alter role {USER} nologin", database="postgres")
        stage.end_sessions()
        stage.run(change, database="postgres")
        stage.run(f"alter role {USER} login", database="postgres")
    else:
        stage.run(change)
    try:
        yield
    finally:
        stage.run(back, database="postgres" if reconnect else DATABASE)


@contextmanager
def _nobody_may_log_in(stage: Stage) -> Iterator[None]:
    stage.run(f"alter role {USER} nologin", database="postgres")
    stage.end_sessions()
    try:
        yield
    finally:
        stage.run(f"alter role {USER} login", database="postgres")


@contextmanager
def _connections_exhausted(stage: Stage) -> Iterator[None]:
    stage.run("create role hoarder login password 'hoarder' in role pg_read_all_data", database="postgres")
    try:
        with ExitStack() as hoarded:
            stage.run(f"alter role {USER} nologin", database="postgres")
            stage.end_sessions()
            dsn = stage.cluster.dsn("postgres", "hoarder", password="hoarder")
            while True:
                try:
                    hoarded.enter_context(psycopg.connect(dsn))
                except psycopg.OperationalError:
                    break
            stage.run(f"alter role {USER} login", database="postgres")
            yield
    finally:
        stage.run("drop role hoarder", database="postgres")


_CONNECTION, _TIMEOUT = FailureKind.CONNECTION, FailureKind.TIMEOUT
_CONTRACT, _PERMISSION = FailureKind.CONTRACT, FailureKind.PERMISSION

FAULTS = {
    "session ended": fault(_session_ended),
    "sessions end when idle": fault(_sessions_end_when_idle),
    "session frozen": fault(_session_frozen, _TIMEOUT, cost=Cost.LITTLE),
    "server restarted at once": fault(server_restarted, _CONNECTION, cost=Cost.LITTLE),
    "server stopped": fault(server_stopped, _CONNECTION),
    "server crashed": fault(partial(server_stopped, immediate=True), _CONNECTION),
    "postmaster killed": fault(_postmaster_killed, _CONNECTION),
    "server frozen": fault(_server_frozen, _TIMEOUT),
    "network a black hole": fault(partial(_network, network=Network.BLACK_HOLE), _TIMEOUT),
    "network resets": fault(partial(_network, network=Network.RESET), _CONNECTION),
    "lock held": fault(_lock_held, _TIMEOUT),
    "function slow": fault(partial(_metrics_function, body=_SLOW), _TIMEOUT),
    "function fails": fault(partial(_metrics_function, body=_FAILING), _CONTRACT),
    "function missing": fault(
        partial(
            _changed,
            change=f"alter function {_TOY}.otel_metrics() rename to gone",
            back=f"alter function {_TOY}.gone() rename to otel_metrics",
            reconnect=False,
        ),
        _CONTRACT,
    ),
    "grants revoked": fault(
        partial(
            _changed,
            change=f"revoke select on {_TOY}.row from {USER}",
            back=f"grant select on {_TOY}.row to {USER}",
            reconnect=False,
        ),
        _PERMISSION,
    ),
    "password changed": fault(
        partial(
            _changed,
            change=f"alter role {USER} password 'another'",
            back=f"alter role {USER} password '{PASSWORD}'",
        ),
        _CONNECTION,
    ),
    "login forbidden": fault(_nobody_may_log_in, _CONNECTION),
    "connection limit of the role": fault(
        partial(
            _changed,
            change=f"alter role {USER} connection limit 0",
            back=f"alter role {USER} connection limit -1",
        ),
        _CONNECTION,
    ),
    "connections exhausted": fault(_connections_exhausted, _CONNECTION),
    "database renamed": fault(
        partial(
            _changed,
            change=f"alter database {DATABASE} rename to elsewhere",
            back=f"alter database elsewhere rename to {DATABASE}",
        ),
        _CONNECTION,
    ),
}
