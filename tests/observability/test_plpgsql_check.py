"""Every PL/pgSQL function of the engine and the packs, read by plpgsql_check with all warnings on."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from pgque_exporter.demo.cluster import Cluster
from tests.support.database import (
    ENGINE_INSTALL,
    INSTRUMENTATION_INSTALL,
    PACK_INSTALL,
    Connection,
    new_database,
)
from tests.support.debian import EXTENSIONS, postgres
from tests.support.pgq import PACK_INSTALL as PGQ_PACK_INSTALL
from tests.support.queue import create_queue, rows
from tests.support.tools import Unavailable

OPTIONAL = "asked for only where the pack's instrumentation is installed, which PgQ's doesn't have"
CRON = "asked for only where pg_cron is installed"
CAPTURE = "the text is made of quoted names and of expressions that the trigger's owner wrote as such"
# (function, beginning of the message) -> why it stays so.
JUSTIFIED = {
    (
        "pgq_observability.error_rate(text,interval,interval)",
        "function pgq_observability.retry_history(",
    ): OPTIONAL,
    (
        "pgq_observability.instrumentation_rows()",
        "function pgq_observability.instrumented_metrics() does not exist",
    ): OPTIONAL,
    ("pgq_observability.instrumentation_rows()", 'unmodified OUT variable "'): OPTIONAL,
    (
        "pgq_observability.latency_percentiles(text,text,interval)",
        "function pgq_observability.wait_history(",
    ): OPTIONAL,
    ("pgque.batch_event(bigint,bigint)", "cannot determinate a result of dynamic SQL"): (
        "the query text is made for the batch; its row type is that of event_template"
    ),
    ("pgque.cron_jobs()", 'relation "cron.job" does not exist'): CRON,
    ("pgque.cron_jobs()", 'unmodified OUT variable "'): CRON,
    ("pgque.start()", 'schema "cron" does not exist'): CRON,
    ("pgque.stop()", 'schema "cron" does not exist'): CRON,
    ("pgque.fail_batch(bigint,text)", "cannot determinate a result of dynamic SQL"): (
        "the query text is made for the batch; its row type is that of event_template"
    ),
    ("pgque.get_batch_cursor(bigint,text,integer,text)", 'OUT variable "ev_'): (
        "the rows come from RETURN QUERY EXECUTE"
    ),
    (
        "pgque.get_batch_cursor(bigint,text,integer,text)",
        "routine is marked as VOLATILE, should be STABLE",
    ): "it declares a cursor",
    ("pgque.jsontriga()", "text type variable is not sanitized"): CAPTURE,
    ("pgque.logutriga()", "text type variable is not sanitized"): CAPTURE,
    ("pgque.sqltriga()", "text type variable is not sanitized"): CAPTURE,
    ("pgque.get_batch_events(bigint)", 'OUT variable "ev_'): "the rows come from RETURN QUERY EXECUTE",
    ("pgque.get_batch_events(bigint)", "routine is marked as VOLATILE, should be STABLE"): (
        "stable, it would not find a batch that the same statement took"
    ),
    ("pgque.instrumentation_batch(bigint)", "routine is marked as VOLATILE, should be STABLE"): (
        "stable, it would not find what the calling trigger's statement did"
    ),
    ("pgque.instrumentation_rows()", "immutable expression without parameters found"): (
        "dynamic because the instrumentation may not be installed"
    ),
    ("pgque.observability_info()", "immutable expression without parameters found"): (
        "dynamic because an old engine has no version()"
    ),
    ("pgque.set_queue_config(text,text,text)", "routine is marked as VOLATILE, should be STABLE"): (
        "it updates, by dynamic SQL"
    ),
}


@pytest.fixture(scope="module")
def checked() -> Iterator[Connection]:
    """A database with everything of ours and plpgsql_check."""
    try:
        server = postgres(extensions=EXTENSIONS)
    except Unavailable as error:
        pytest.skip(str(error))
    with Cluster(server.bindir, env=server.env) as cluster, new_database(cluster) as database:
        connection = database.connect()
        connection.execute("create extension pgq")
        for script in (ENGINE_INSTALL, PACK_INSTALL, INSTRUMENTATION_INSTALL, PGQ_PACK_INSTALL):
            database.install(script)
        connection.execute("create schema checking")
        connection.execute("create extension plpgsql_check schema checking")
        create_queue(connection, "orders", "app")
        connection.execute("create table public.captured (id int primary key)")
        for function in ("jsontriga", "logutriga", "sqltriga"):
            connection.execute(
                f"create trigger {function} after insert on public.captured"
                f" for each row execute function pgque.{function}('orders')".encode()
            )
        yield connection


def findings(checked: Connection) -> list[tuple[str, str]]:
    """Function and message; trigger functions once per trigger, as without its table one means nothing."""
    found = rows(
        checked,
        """
        select p.oid::regprocedure::text, concat_ws(': ', f.message, f.detail)
        from pg_proc p
        join pg_language l on l.oid = p.prolang and l.lanname = 'plpgsql'
        join pg_namespace n on n.oid = p.pronamespace and n.nspname ~ '^pgq(ue|_observability)$'
        left join pg_trigger g on g.tgfoid = p.oid
        cross join lateral checking.plpgsql_check_function_tb(
            p.oid, coalesce(g.tgrelid, 0), fatal_errors => false, all_warnings => true,
            oldtable => g.tgoldtable, newtable => g.tgnewtable) f
        order by 1, f.lineno
        """,
    )
    return [(str(function), str(message)) for function, message in found]


def excuse(finding: tuple[str, str]) -> tuple[str, str] | None:
    """The key of the exception for a finding."""
    return next((key for key in JUSTIFIED if finding[0] == key[0] and finding[1].startswith(key[1])), None)


def test_no_function_has_a_finding(checked: Connection) -> None:
    found = findings(checked)
    assert not [f for f in found if excuse(f) is None], "\n".join(map(str, found))
    assert {excuse(finding) for finding in found} == set(JUSTIFIED), "exceptions that nothing needs any more"


def test_a_mistake_in_a_trigger_function_would_be_found(checked: Connection) -> None:
    with checked.transaction(force_rollback=True):
        checked.execute(
            """
            create function pgque.misspelt() returns trigger language plpgsql as $$
            begin
                new.co_nane := 'x';
                return new;
            end $$;
            create trigger misspelt before insert on pgque.consumer
                for each row execute function pgque.misspelt();
            """
        )
        (finding,) = (finding for finding in findings(checked) if finding[0] == "pgque.misspelt()")
        assert "co_nane" in finding[1]
