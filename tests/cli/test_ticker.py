"""`pgque-exporter ticker` in place of a scheduler."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import pytest

from tests.exporter.harness import silent_server
from tests.support.database import PACK_INSTALL, Connection, Database
from tests.support.processes import Process
from tests.support.queue import ack, create_queue, nack, receive, send, value

pytestmark = pytest.mark.servers("pg18")


@pytest.fixture
def db(engine_database: Database) -> Connection:
    connection = engine_database.connect()
    create_queue(connection, "orders", "app")
    value(connection, "select pgque.set_queue_config('orders', 'ticker_max_count', '1')")
    value(connection, "select pgque.set_tick_period_ms(20)")
    return connection


def ticker(database: Database, folder: Path, user: str = "postgres") -> Process:
    return run(folder, "--dsn", database.dsn(user))


def run(folder: Path, *options: str) -> Process:
    command = [sys.executable, "-m", "pgque_exporter", "ticker", *options]
    return Process(command, log=folder / "ticker.log", env={"PGQUE_TIMEOUT": "5s"})


def gets(db: Connection, payload: str) -> bool:
    """Whether the message has come; it is acknowledged."""
    messages = receive(db, "orders", "app")
    if messages:
        ack(db, messages[0].batch_id)
    return payload in [message.payload for message in messages]


def kill_its_sessions(db: Connection) -> int:
    return int(value(
        db,
        "select count(pg_terminate_backend(pid, 5000)) from pg_stat_activity"
        " where datname = current_database() and application_name = 'pgque-exporter'",
    ))


def test_it_ticks_and_comes_back_after_its_connections_are_gone(
    engine_database: Database, db: Connection, tmp_path: Path
) -> None:
    with ticker(engine_database, tmp_path) as process:
        for number in range(3):
            send(db, "orders", str(number))
            process.wait_for(lambda n=number: gets(db, str(n)), f"message {number}")  # type: ignore[misc]
        assert kill_its_sessions(db) == 2
        send(db, "orders", "after")
        process.wait_for(lambda: gets(db, "after"), "the message after the loss of the connections")
        process.wait_for(lambda: "works again" in process.output(), "a line on the end of the trouble")
        process.send_signal(signal.SIGTERM)
        assert process.wait(10) == 0
        assert "Traceback" not in process.output()


def test_it_rotates_brings_back_retries_and_delivers_what_is_delayed(
    engine_database: Database, db: Connection, tmp_path: Path
) -> None:
    value(db, "select pgque.ticker()")
    send(db, "orders", "failed")
    value(db, "select pgque.ticker()")
    [message] = receive(db, "orders", "app")
    nack(db, message)
    ack(db, message.batch_id)
    value(db, "select pgque.send_at('orders', 'later', '7', now() + interval '1 hour')")
    db.execute("update pgque.delayed_events set de_deliver_at = now()")
    db.execute("update pgque.queue set queue_switch_time = now() - interval '3 hours'")
    with ticker(engine_database, tmp_path) as process:
        got: list[str | None] = []

        def all_there() -> bool:
            messages = receive(db, "orders", "app")
            if messages:
                ack(db, messages[0].batch_id)
            got.extend(message.payload for message in messages)
            return sorted(got, key=str) == ["7", "failed"]

        process.wait_for(all_there, "the retry and the delayed message")
        process.wait_for(
            lambda: value(db, "select queue_cur_table = 1 from pgque.queue"), "the rotation's first half"
        )


def test_a_role_without_the_right_is_told_so_once(
    engine_database: Database, db: Connection, login: str, tmp_path: Path
) -> None:
    with ticker(engine_database, tmp_path, login) as process:
        # For each of its connections.
        process.wait_for(lambda: process.output().count("permission denied") == 2, "the refusals")
        assert "monitoring role" not in process.output()
        assert "(grant pgque_admin to the service's user)" in process.output()
        db.execute(f"grant pgque_admin to {login}".encode())
        process.wait_for(lambda: process.output().count("works again") == 2, "the end of the trouble")
        assert process.output().count("permission denied for schema pgque") == 2
        process.send_signal(signal.SIGINT)
        assert process.wait(10) == 130


def test_a_server_that_can_not_be_searched_at_first_is_asked_again(
    engine_database: Database, db: Connection, login: str, tmp_path: Path
) -> None:
    engine_database.install(PACK_INSTALL)
    db.execute(f"alter role {login} superuser nologin".encode())
    config = tmp_path / "config.yaml"
    config.write_text(
        f"targets:\n  - name: db1\n    dsn: {engine_database.cluster.dsn(user=login)}\n"
        f"    discover: {{include: [{engine_database.name}]}}\n"
    )
    with run(tmp_path, "--config", str(config)) as searching:
        searching.wait_for(lambda: "not permitted to log in" in searching.output(), "the refusal")
        db.execute(f"alter role {login} login".encode())
        send(db, "orders", "after")
        searching.wait_for(lambda: gets(db, "after"), "the message")
        assert searching.output().count("not permitted to log in") == 1


def test_it_ends_while_a_server_that_it_searches_is_silent(tmp_path: Path) -> None:
    with silent_server() as number:
        dsn = f"host=127.0.0.1 port={number} dbname=postgres user=x"
        file = tmp_path / "config.yaml"
        target = f"{{dsn: '{dsn}', name: db, discover: true}}"
        file.write_text(f"timeout: 30s\ninterval: 30s\ntargets:\n  - {target}\n")
        with run(tmp_path, "--config", str(file)) as process:
            accepted = f"127.0.0.1:{number}"
            process.wait_for(lambda: accepted in connections(process.pid), "the search has begun")
            process.send_signal(signal.SIGTERM)
            # The last resort comes after 4.7 s; what hangs without it takes 30.
            assert process.wait(timeout=20) == 0


def connections(pid: int) -> set[str]:
    """Where the open connections of a process lead."""
    sockets = {os.readlink(link) for link in Path(f"/proc/{pid}/fd").iterdir() if link.is_symlink()}
    found = set()
    for line in Path(f"/proc/{pid}/net/tcp").read_text().splitlines()[1:]:
        _, _, remote, *_rest = fields = line.split()
        if f"socket:[{fields[9]}]" in sockets:
            address, port = remote.split(":")
            octets = [str(int(address[i : i + 2], 16)) for i in (6, 4, 2, 0)]
            found.add(f"{'.'.join(octets)}:{int(port, 16)}")
    return found
