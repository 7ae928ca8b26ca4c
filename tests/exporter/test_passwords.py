"""Passwords that change while the service runs: the new one is used at once, wherever it stands."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from pgque_exporter.config import DiscoveryConfig, TargetConfig
from pgque_exporter.connection import FailureKind
from pgque_exporter.demo.cluster import Cluster, embedded_bindir
from tests.exporter.harness import Running, ToyPack, config, poll_error, running, target
from tests.support.database import wait_until

# Long enough for no next poll to come in time.
HOURS: dict[str, Any] = {"interval": 7200.0, "timeout": 10.0, "stale_after": 36000.0}
OLD, NEW = "first hunter", "second hunter"


@pytest.fixture(scope="module")
def guarded() -> Iterator[Cluster]:
    """A server that asks for passwords, with the toy pack in its database `postgres`."""
    with Cluster(embedded_bindir(), password="superuser") as cluster:
        with psycopg.connect(cluster.dsn(), autocommit=True) as connection:
            ToyPack(connection).add("pgque.queue.depth", 1, queue="q")
            connection.execute("create role monitor superuser login")
        yield cluster


@pytest.fixture
def dsn(guarded: Cluster) -> str:
    """The way to it of a user whose password is the new one."""
    with psycopg.connect(guarded.dsn(), autocommit=True) as connection:
        connection.execute(f"alter role monitor password '{NEW}'")
    return f"host=127.0.0.1 port={guarded.port} dbname=postgres user=monitor"


def refused(service: Running) -> bool:
    return service.sample('pgque_exporter_polls_total{database="shop",result="connection"}') == 1


def up(service: Running) -> bool:
    return service.sample("pgque_up{") == 1


def assert_mended(configured: TargetConfig, write: Path, text: str) -> None:
    """The first poll is refused; once the file holds the new password, the next one succeeds."""
    with running(config(configured)) as service:
        wait_until(lambda: refused(service), what="refused")
        assert service.sample("pgque_up{") == 0
        write.write_text(text)
        wait_until(lambda: up(service), what="polled with the new password")


def test_a_new_password_in_the_file_is_used_at_once(dsn: str, tmp_path: Path) -> None:
    path = tmp_path / "password"
    path.write_text(f"{OLD}\n")
    assert_mended(target(dsn, password_file=path, **HOURS), path, f"{NEW}\n")


def test_a_password_file_that_appears_is_used_at_once(dsn: str, tmp_path: Path) -> None:
    path = tmp_path / "password"
    assert_mended(target(dsn, password_file=path, **HOURS), path, f"{NEW}\n")


@pytest.mark.parametrize("how", ["in the dsn", "in the environment", "at home"])
def test_a_new_password_in_pgpass_is_used_at_once(
    how: str, dsn: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / ".pgpass"
    path.touch(mode=0o600)
    path.write_text(f"*:*:*:*:{OLD}\n")
    if how == "in the dsn":
        dsn = f"{dsn} passfile={path}"
    elif how == "in the environment":
        monkeypatch.setenv("PGPASSFILE", str(path))
    else:
        monkeypatch.delenv("PGPASSFILE", raising=False)
        monkeypatch.setenv("HOME", str(tmp_path))
    assert_mended(target(dsn, **HOURS), path, f"*:*:*:*:{NEW}\n")


def test_a_server_that_is_searched_takes_the_new_password_at_once(dsn: str, tmp_path: Path) -> None:
    path = tmp_path / "password"
    path.write_text(OLD)
    server = target(dsn, "db1", password_file=path, **HOURS)
    with running(config(discoveries=(DiscoveryConfig(server, ("postgres",), interval=7200.0),))) as service:
        wait_until(lambda: service.sample('pgque_up{database="db1"}') == 0, what="refused")
        path.write_text(NEW)
        wait_until(lambda: service.sample('pgque_up{database="db1/postgres"}') == 1, what="found and polled")


def test_an_open_connection_outlives_a_change_and_the_next_one_has_the_new(
    guarded: Cluster, dsn: str, tmp_path: Path
) -> None:
    path = tmp_path / "password"
    path.write_text(NEW)
    with running(config(target(dsn, password_file=path, interval=0.2))) as service:
        wait_until(lambda: up(service), what="polled")
        with psycopg.connect(guarded.dsn(), autocommit=True) as admin:
            admin.execute("alter role monitor password 'third hunter'")
            end = "select pg_terminate_backend(pid) from pg_stat_activity where usename = 'monitor'"
            admin.execute(end)
            wait_until(lambda: service.sample("pgque_up{") == 0, what="refused")
            path.write_text("third hunter")
            wait_until(lambda: up(service), what="polled again")


def test_a_password_that_changes_during_the_attempt_is_tried_in_the_same_poll(tmp_path: Path) -> None:
    """A server that notes the passwords it is given, and refuses them, while somebody rotates the file."""
    given: list[bytes] = []
    path = tmp_path / "password"
    path.write_text(f"{OLD}\n")

    def serve(server: socket.socket) -> None:
        for _ in range(2):
            client, _ = server.accept()
            with client:
                startup = client.recv(1000)
                while startup[4:8] in (b"\x04\xd2\x16\x2f", b"\x04\xd2\x16\x30"):  # no TLS, no GSS
                    client.sendall(b"N")
                    startup = client.recv(1000)
                client.sendall(b"R\0\0\0\x08\0\0\0\x03")  # send a clear-text password
                given.append(client.recv(1000)[5:].rstrip(b"\0"))
                path.write_text(f"{NEW}\n")
                client.sendall(b"E\0\0\0\x28SFATAL\0C28P01\0Mnot this, friend: " + b"\0\0")

    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=serve, args=(server,))
        thread.start()
        dsn = f"host=127.0.0.1 port={server.getsockname()[1]} dbname=x user=x gssencmode=disable"
        assert poll_error(dsn, password_file=path).kind is FailureKind.CONNECTION
        thread.join(10)
    assert given == [OLD.encode(), NEW.encode()]


def test_a_dsn_that_cannot_be_read_is_a_failure_with_a_name() -> None:
    assert poll_error("'password=hunter2 nonsense'").message == 'invalid connection option "\'password"'
