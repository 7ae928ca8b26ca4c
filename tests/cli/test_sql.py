"""Installing, verifying, printing and removing packs on real servers."""

from __future__ import annotations

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psycopg
import pytest

from pgque_exporter import __version__, sqlfiles
from pgque_exporter.commands import sql as command
from tests.cli.conftest import Run, owned_by
from tests.support.catalog import catalog_of
from tests.support.database import Connection, Database, server_programs, wait_until
from tests.support.queue import ack, consume, create_queue, nack, receive, send, tick, value

PASSWORD = "correct-horse"
PGQUE_EXPORTER = (sys.executable, "-m", "pgque_exporter")


def test_a_pack_goes_without_a_trace_but_the_role(run: Run, engine_database: Database) -> None:
    connection = engine_database.connect()
    create_queue(connection, "orders", "app")
    send(connection, "orders", "one")
    tick(connection, "orders")
    before = catalog_of(connection)
    where = ("--dsn", engine_database.dsn())

    expected = f"{engine_database.name}: observability pack of pgque installed\n"
    assert run("sql", "install", *where) == (0, expected, "")
    installed = catalog_of(connection)
    assert installed != before
    assert value(connection, "select consumers from pgque.queue_stats()") == 1
    assert run("sql", "verify", *where) == (
        0, f"{engine_database.name}: pack in schema pgque: whole and safe\n", "",
    )  # fmt: skip

    assert run("sql", "install", "--engine", "pgque", *where)[0] == 0
    assert catalog_of(connection) == installed

    assert run("sql", "uninstall", "--engine", "pgque", *where) == (
        0, f"{engine_database.name}: observability pack of pgque removed\n", "",
    )  # fmt: skip
    assert catalog_of(connection) == before
    assert value(connection, "select count(*) from pg_roles where rolname = 'pgque_monitor'") == 1
    assert value(connection, "select count(*) from pgque.receive('orders', 'app', 10)") == 1

    # Nothing left to remove is no error.
    assert run("sql", "uninstall", "--engine", "pgque", *where) == (
        0, f"{engine_database.name}: nothing to remove: no observability pack of pgque\n", "",
    )  # fmt: skip
    assert catalog_of(connection) == before
    code, _, error = run("sql", "verify", *where)
    assert code == 1
    told = f"{engine_database.name}: no pack is installed. Run `pgque-exporter sql install`"
    assert error == f"pgque-exporter: error: {told}\n"


def test_the_queue_engine_comes_and_goes_with_its_pack(run: Run, database: Database) -> None:
    connection = database.connect()
    before = catalog_of(connection)
    where = ("--dsn", database.dsn())
    assert run("sql", "install", "--with-queue", *where) == (
        0,
        f"{database.name}: queue engine pgque installed\n"
        f"{database.name}: observability pack of pgque installed\n",
        "",
    )
    create_queue(connection, "orders", "app")
    assert run("sql", "install", "--with-queue", *where)[0] == 0
    assert value(connection, "select queue_name from pgque.queue_stats()") == "orders"

    code, out, error = run("sql", "uninstall", "--engine", "pgque", "--with-queue", *where)
    assert (code, out) == (2, "")
    assert "deletes every queue and every event of pgque. Add --force" in error
    assert value(connection, "select queue_name from pgque.queue_stats()") == "orders"

    code, out, _ = run("sql", "uninstall", "--engine", "pgque", "--with-queue", "--force", *where)
    assert code == 0
    assert "queue engine pgque removed with all its queues" in out
    assert catalog_of(connection) == before
    code, out, _ = run("sql", "uninstall", "--engine", "pgque", "--with-queue", "--force", *where)
    assert code == 0
    assert out.endswith(f"{database.name}: nothing to remove: no queue engine pgque\n")


def test_the_instrumentation_goes_without_a_trace_and_alone_or_with_its_pack(
    run: Run, pack_database: Database
) -> None:
    connection = pack_database.connect()
    create_queue(connection, "orders", "app")
    name, where = pack_database.name, ("--engine", "pgque", "--dsn", pack_database.dsn())
    with_pack = catalog_of(connection)
    installed = (
        f"{name}: observability pack of pgque installed\n{name}: instrumentation of pgque installed\n"
    )

    assert run("sql", "install", "--instrument", *where) == (0, installed, "")
    instrumented = catalog_of(connection)
    assert instrumented != with_pack
    expected = f"{name}: pack in schema pgque: whole and safe, with instrumentation\n"
    assert run("sql", "verify", *where) == (0, expected, "")
    send(connection, "orders", "one", "two")
    tick(connection, "orders")
    assert consume(connection, "orders", "app") == ["one", "two"]
    acked = "select value from pgque.otel_metrics() where metric_name = 'pgque.batch.size_sum'"
    assert value(connection, acked) == 2

    # A later install of the pack brings what is there up to date, and keeps what it counted.
    assert run("sql", "install", *where) == (0, installed, "")
    assert catalog_of(connection) == instrumented
    assert value(connection, acked) == 2

    for told in ("instrumentation of pgque removed", "nothing to remove: no instrumentation of pgque"):
        assert run("sql", "uninstall", "--instrument", *where) == (0, f"{name}: {told}\n", "")
        assert catalog_of(connection) == with_pack
    assert run("sql", "verify", *where)[1] == f"{name}: pack in schema pgque: whole and safe\n"

    assert run("sql", "uninstall", *where)[0] == 0
    without_pack = catalog_of(connection)
    assert run("sql", "install", "--instrument", *where)[0] == 0
    assert run("sql", "uninstall", *where) == (
        0, f"{name}: instrumentation of pgque removed\n{name}: observability pack of pgque removed\n", "",
    )  # fmt: skip
    assert catalog_of(connection) == without_pack


def test_verify_names_what_counts_no_more(run: Run, pack_database: Database) -> None:
    connection = pack_database.connect()
    where = ("--dsn", pack_database.dsn())
    assert run("sql", "install", "--instrument", *where)[0] == 0
    connection.execute("alter table pgque.subscription disable trigger instrument_batch")
    connection.execute("drop trigger instrument_retry on pgque.retry_queue")
    connection.execute("grant execute on function pgque.instrumented_metrics() to public")
    code, out, _ = run("sql", "verify", *where)
    assert code == 1
    start = f"{pack_database.name}: pgque.instrument"
    assert [line.removeprefix(start) for line in out.splitlines()] == [
        "_batch() is called by no enabled trigger: what it should count is missing",
        "_retry() is called by no enabled trigger: what it should count is missing",
        "ed_metrics() may be executed by everyone: PUBLIC must not",
    ]
    connection.execute("alter table pgque.subscription enable trigger instrument_batch")
    assert run("sql", "install", *where)[0] == 0
    assert run("sql", "verify", *where)[0] == 0


@pytest.mark.parametrize("words", ["install --instrument", "uninstall --instrument", "print --instrument"])
def test_a_pack_without_instrumentation_has_none_to_install(
    run: Run, pack_database: Database, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, words: str
) -> None:
    for file in ("install.sql", "uninstall.sql"):
        target = tmp_path / "observability/plain" / file
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text("select 1;")
    monkeypatch.setattr(sqlfiles, "sql_root", lambda: tmp_path)
    where = () if "print" in words else ("--dsn", pack_database.dsn())
    code, out, error = run("sql", *words.split(), "--engine", "plain", *where)
    assert (code, out) == (2, "")
    assert "there is no instrumentation for 'plain'" in error
    if where:
        assert run("sql", words.split()[0], "--engine", "plain", *where)[0] == 0


def test_consumers_at_work_delay_the_instrumentation_and_are_not_hurt(
    run: Run, pack_database: Database
) -> None:
    connection = pack_database.connect()
    create_queue(connection, "orders", "app")
    send(connection, "orders", "one")
    tick(connection, "orders")
    [message] = receive(connection, "orders", "app")
    where = ("--engine", "pgque", "--dsn", pack_database.dsn())
    with ThreadPoolExecutor() as threads, psycopg.connect(pack_database.dsn()) as consumer:
        for words in (("install", "--instrument"), ("uninstall",)):
            nack(consumer, message)  # holds one table, while the installer wants all three
            going_on = threads.submit(subprocess.run, [*PGQUE_EXPORTER, "sql", *words, *where], check=True)
            wait_until(lambda: waits_for_a_lock(connection), what="the installer waits for the consumer")
            ack(consumer, message.batch_id)  # in which it must not end in a deadlock
            consumer.rollback()
            going_on.result()
    assert run("sql", "verify", *where)[0] == 1


def waits_for_a_lock(connection: Connection) -> bool:
    query = (
        "select exists (select from pg_stat_activity"
        " where wait_event_type = 'Lock' and datname = current_database())"
    )
    return bool(value(connection, query))


def test_uninstall_wants_to_be_told_which(run: Run, pack_database: Database) -> None:
    code, _, error = run("sql", "uninstall", "--dsn", pack_database.dsn())
    assert code == 2
    assert "--engine" in error


def test_an_owner_without_other_rights_may_install(login: str, run: Run, engine_database: Database) -> None:
    # The engine's schema is the superuser's; an empty database of one's own is another matter.
    connection = engine_database.connect()
    connection.execute("drop schema pgque cascade")
    owned_by(engine_database, login)
    where = ("--dsn", engine_database.dsn(user=login))
    # The roles are there from other databases: only creating them takes more than ownership.
    connection.execute("do $$ begin create role pgque_monitor; exception when duplicate_object then end $$")
    assert run("sql", "install", "--with-queue", *where)[::2] == (0, "")
    assert run("sql", "verify", *where)[0] == 0
    assert run("sql", "uninstall", "--engine", "pgque", "--with-queue", "--force", *where)[::2] == (0, "")


@pytest.mark.parametrize("action", ["install", "uninstall", "install --with-queue"])
def test_without_rights_nothing_happens(run: Run, pack_database: Database, login: str, action: str) -> None:
    connection = pack_database.connect()
    before = catalog_of(connection)
    where = ("--engine", "pgque", "--dsn", pack_database.dsn(user=login))
    code, out, error = run("sql", *action.split(), *where)
    assert (code, out) == (1, "")
    assert error.count("\n") == 1
    assert f"The user {login} may not do that: connect as the owner" in error
    assert catalog_of(connection) == before


@pytest.mark.parametrize("action", ["install", "uninstall", "verify", "print"])
def test_an_unknown_engine_gets_the_list_of_the_known(run: Run, action: str) -> None:
    where = () if action == "print" else ("--dsn", "host=127.0.0.1 port=1")
    code, out, error = run("sql", action, "--engine", "rabbit", *where)
    assert (code, out) == (2, "")
    assert error.startswith("pgque-exporter: error: there is no observability pack for 'rabbit'. Known: ")
    assert "pgque" in error.partition("Known")[2]


def test_an_absent_engine_is_one_line_with_a_remedy(run: Run, database: Database) -> None:
    before = catalog_of(database.connect())
    for words in ((), ("--engine", "pgque")):
        code, out, error = run("sql", "install", *words, "--dsn", database.dsn())
        assert (code, out) == (1, "")
        assert error.count("\n") == 1
        if words:
            assert "the PgQue engine is not installed" in error
            assert "pgque-exporter sql install --with-" in error
    assert catalog_of(database.connect()) == before


@pytest.mark.parametrize(
    ("action", "before", "told"),
    [
        (
            "install",
            "create function pgque.in_flight(text) returns int language sql as 'select 1'",
            "there is a function pgque.in_flight(text), returning integer, that is not part of the pack."
            " It was left as it is. Drop it, or give it another name or schema, then install again.",
        ),
        (
            "install",
            sqlfiles.pack_install_sql("pgque").replace(__version__, "9.0.0"),
            f"schema pgque holds version 9.0.0 of the pack, newer than this one, {__version__}."
            " Install with pgque-exporter 9.0.0 or newer, or uninstall with that first.",
        ),
        (
            "install",
            "alter table pgque.subscription drop column sub_role",
            'the PgQue engine in database "{name}" is too old for this pack: pgque.subscription.sub_role'
            " is missing. Upgrade it first: pgque-exporter sql install --with-queue,"
            " or \\i sql/pgque/install.sql.",
        ),
        (
            "uninstall",
            sqlfiles.pack_install_sql("pgque") + "create view mine as select * from pgque.queue_stats();",
            "function pgque.queue_stats() is in use: view public.mine depends on function"
            " pgque.queue_stats(). Drop what uses it, then uninstall again.",
        ),
    ],
)
def test_a_refusal_is_one_line_with_a_remedy_and_changes_nothing(
    run: Run, engine_database: Database, action: str, before: str, told: str
) -> None:
    connection = engine_database.connect()
    connection.execute(before)
    catalog = catalog_of(connection)
    for engine in ((), ("--engine", "pgque")):
        if engine or action == "install":
            code, out, error = run("sql", action, *engine, "--dsn", engine_database.dsn())
            assert (code, out) == (1, "")
            name = engine_database.name
            line = f"pgque-exporter: error: {name}: {told.format(name=name)}"
            assert error.rstrip(".\n") == line.rstrip(".")
    assert catalog_of(connection) == catalog


def test_an_install_that_fails_at_its_end_leaves_no_beginning(run: Run, engine_database: Database) -> None:
    connection = engine_database.connect()
    connection.execute(
        """
        create function no_comment() returns event_trigger language plpgsql as
            $$ begin raise exception 'no comment'; end $$;
        create event trigger no_comment on ddl_command_end when tag in ('COMMENT')
            execute function no_comment();
        """
    )
    before = catalog_of(connection)
    code, out, error = run("sql", "install", "--dsn", engine_database.dsn())
    assert (code, out) == (1, "")
    assert error == f"pgque-exporter: error: {engine_database.name}: no comment\n"
    assert catalog_of(connection) == before


def test_it_gives_up_rather_than_block_the_queues(
    run: Run, pack_database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command, "_LOCK_TIMEOUT", "200ms")
    connection = pack_database.connect()
    create_queue(connection, "orders", "app")
    with psycopg.connect(pack_database.dsn()) as busy:
        busy.execute("select * from pgque.queue")  # holds its lock until the transaction ends
        code, _, error = run(
            "sql", "uninstall", "--engine", "pgque", "--with-queue", "--force", "--dsn", pack_database.dsn()
        )
    assert code == 1
    assert "Others are using these objects: nothing was changed" in error
    assert value(connection, "select count(*) from pgque.queue") == 1


def test_verify_names_what_is_wrong(run: Run, pack_database: Database) -> None:
    connection = pack_database.connect()
    connection.execute("grant execute on function pgque.queue_stats() to public")
    connection.execute("drop function pgque.stuck_consumers(interval)")
    where = ("--dsn", pack_database.dsn())
    code, out, _ = run("sql", "verify", *where)
    assert code == 1
    assert f"{pack_database.name}: pgque.queue_stats() may be executed by everyone" in out
    assert f"{pack_database.name}: pgque.stuck_consumers(interval) is missing" in out
    assert run("sql", "install", *where)[0] == 0
    assert run("sql", "verify", "--engine", "pgque", *where)[0] == 0


# What a re-install mends, and a look at the contract's own grants doesn't show.
BROKEN_INSIDE = {
    "revoke execute on function pgque.observed() from pgque_monitor": (
        "otel_metrics fails for pgque_monitor: permission denied for function observed"
    ),
    "revoke select on pgque.tick from pgque_monitor": (
        "throughput fails for pgque_monitor: permission denied for table tick"
    ),
    "drop function pgque.require_consumer": "latency_percentiles fails for pgque_monitor: function ",
}


@pytest.mark.parametrize("fault", BROKEN_INSIDE)
def test_verify_tries_what_it_finds_nothing_wrong_with(run: Run, pack_database: Database, fault: str) -> None:
    connection = pack_database.connect()
    create_queue(connection, "orders", "app")
    connection.execute(fault.encode())
    where = ("--dsn", pack_database.dsn())
    code, out, _ = run("sql", "verify", *where)
    assert code == 1
    assert f"{pack_database.name}: pgque.{BROKEN_INSIDE[fault]}" in out
    assert "whole and safe" not in out
    assert run("sql", "install", *where)[0] == 0
    assert run("sql", "verify", *where) == (
        0, f"{pack_database.name}: pack in schema pgque: whole and safe\n", "",
    )  # fmt: skip


def test_verify_says_when_it_can_not_try(run: Run, pack_database: Database, login: str) -> None:
    where = ("--dsn", pack_database.dsn(user=login))
    code, out, _ = run("sql", "verify", *where)
    assert code == 0
    assert "whole and safe (not tried: this user can't become pgque_monitor)" in out


def test_verify_finds_a_definer_that_can_be_led_astray(run: Run, pack_database: Database) -> None:
    pack_database.connect().execute(
        "create function pgque.helper() returns int language sql security definer as 'select 1'"
    )
    code, out, _ = run("sql", "verify", "--dsn", pack_database.dsn())
    assert code == 1
    assert "pgque.helper() is SECURITY DEFINER without a pinned search_path" in out


def test_the_monitor_role_can_be_granted_on_the_way(run: Run, engine_database: Database, login: str) -> None:
    where = ("--dsn", engine_database.dsn())
    code, _, error = run("sql", "install", "--grant-to", "no_such_role", *where)
    assert code == 1
    assert "there is no role 'no_such_role' on this server" in error
    assert value(engine_database.connect(), "select to_regprocedure('pgque.queue_stats()')") is None

    assert run("sql", "install", "--grant-to", login, *where)[::2] == (0, "")
    code, out, _ = run("status", "--dsn", engine_database.dsn(user=login))
    assert code == 0
    assert "All is well." in out


def test_every_database_of_a_file_gets_the_pack(
    run: Run, engine_database: Database, pack_database: Database, tmp_path: Path
) -> None:
    file = tmp_path / "pgque-exporter.yaml"
    file.write_text(
        "targets:\n"
        f"  - {{name: one, dsn: '{engine_database.dsn()}'}}\n"
        f"  - {{name: two, dsn: '{pack_database.dsn()}'}}\n"
    )
    code, out, _ = run("sql", "install", "--config", str(file))
    assert code == 0
    assert out == "one: observability pack of pgque installed\ntwo: observability pack of pgque installed\n"
    assert run("sql", "verify", "--config", str(file))[1].count("whole and safe") == 2


def test_what_is_printed_works_in_psql(database: Database, login: str, run: Run) -> None:
    psql: list[str | Path] = [
        server_programs("pg18") / "psql",
        "-X",
        "-q",
        "-v",
        "ON_ERROR_STOP=1",
        "-f",
        "-",
    ]
    printing = [*PGQUE_EXPORTER, "sql", "print"]

    def apply(*words: str) -> None:
        script = subprocess.run([*printing, *words], capture_output=True, check=True)
        subprocess.run([*psql, database.dsn()], input=script.stdout, capture_output=True, check=True)

    connection = database.connect()
    before = catalog_of(connection)
    apply("--with-queue", "--grant-to", login)
    assert run("sql", "verify", "--dsn", database.dsn())[0] == 0
    assert value(connection, "select pg_has_role(%s, 'pgque_monitor', 'member')", login)
    apply("--engine", "pgque", "--instrument")
    assert run("sql", "verify", "--dsn", database.dsn())[1].endswith("with instrumentation\n")
    apply("--engine", "pgque", "--instrument", "--uninstall")
    assert run("sql", "verify", "--dsn", database.dsn())[1].endswith("whole and safe\n")
    apply("--engine", "pgque", "--instrument")
    apply("--with-queue", "--uninstall")
    assert catalog_of(connection) == before


def test_tables_for_history_come_and_go(run: Run, pack_database: Database, login: str) -> None:
    connection = pack_database.connect()
    before = catalog_of(connection)
    where = ("--dsn", pack_database.dsn())
    for _ in range(2):
        code, out, _ = run("sql", "install", "--history", "--grant-to", login, *where)
        assert (code, "tables for history installed" in out) == (0, True)
    assert value(connection, "select count(*) from queue_history.otel_metrics()") == 0
    assert run("sql", "verify", *where)[0] == 0, "they are no engine's pack"
    assert run("sql", "uninstall", "--history", *where)[0] == 0
    assert catalog_of(connection) == before
    script = run("sql", "print", "--history")[1]
    connection.execute(script.encode())
    connection.execute(run("sql", "print", "--history", "--uninstall")[1].encode())
    assert catalog_of(connection) == before


@pytest.mark.parametrize("other", ["--engine=pgque", "--with-queue", "--instrument"])
@pytest.mark.parametrize("action", ["install", "uninstall", "print"])
def test_history_goes_alone(run: Run, action: str, other: str) -> None:
    where = () if action == "print" else ("--dsn", "host=127.0.0.1 port=1")
    code, out, error = run("sql", action, "--history", other, *where)
    assert (code, out) == (2, "")
    assert "--history goes without" in error


def test_a_reader_that_goes_away_is_no_error() -> None:
    script = f"{sys.executable} -m pgque_exporter sql print --with-queue | head -n 1"
    result = subprocess.run(["/bin/sh", "-c", script], capture_output=True, text=True, check=True)
    assert result.stdout.startswith("-- ")
    assert result.stderr == ""


FORMS = (
    f"postgresql://u:{PASSWORD}@127.0.0.1:1/x",
    f"postgresql://u:{PASSWORD}@more@127.0.0.1:1/x",
    f"postgresql://u:{PASSWORD}/more@127.0.0.1:1/x",
    f"postgresql://u:%zz{PASSWORD}@127.0.0.1:1/x",
    f"host=127.0.0.1 port=1 user=u password={PASSWORD}",
    f"host=127.0.0.1 port=1 user=u password='{PASSWORD}",
    f"postgresql://u@127.0.0.1:1/x?password={PASSWORD}&nonsense=1",
    f"host=no-such-host.invalid user=u password={PASSWORD}",
)


@pytest.mark.parametrize("words", ["sql install", "sql uninstall --engine pgque", "sql verify", "status"])
def test_no_form_of_a_password_is_ever_printed(run: Run, words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for form in FORMS:
        for way in ("option", "environment"):
            monkeypatch.delenv("PGQUE_DSN", raising=False)
            if way == "environment":
                monkeypatch.setenv("PGQUE_DSN", form)
            code, out, error = run(*words.split(), *(("--dsn", form) if way == "option" else ()))
            assert code in (1, 2), form
            assert PASSWORD not in out + error, form
            assert error.count("\n") <= 1
