"""The demo as a newcomer meets it: one command, four stories, and nothing left behind."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import socket
import sys
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from pgque_exporter.demo.cluster import embedded_bindir, free_port
from pgque_exporter.errors import UserError
from tests.exporter.harness import get
from tests.support.processes import Process, wait_for

COMMAND = [sys.executable, "-u", "-m", "pgque_exporter", "demo"]


@pytest.fixture(autouse=True)
def embedded_server() -> None:
    try:
        embedded_bindir()
    except UserError as error:
        pytest.skip(str(error))


@contextlib.contextmanager
def demo(folder: Path, *, port: int, **env: str) -> Iterator[Process]:
    with Process(COMMAND, log=folder / "demo.log", env={"PORT": str(port), **env}) as process:
        yield process


def database_folder(process: Process) -> Path:
    """The folder of the demo's database, as soon as there is one."""
    folder = wait_for(lambda: guarded_folder(process), "the database's folder")
    assert folder is not None
    return folder


def guarded_folder(process: Process) -> Path | None:
    """What the guard that watches over a demo's database has in its command line."""
    with contextlib.suppress(OSError):
        for child in Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split():
            words = Path(f"/proc/{child}/cmdline").read_bytes().split(b"\0")
            if b"guard" in words:
                return Path(os.fsdecode(words[words.index(b"guard") + 1]))
    return None


def postmaster(folder: Path) -> int:
    return int((folder / "data" / "postmaster.pid").read_text().split("\n")[0])


def runs(pid: int) -> bool:
    try:
        return "(zombie)" not in Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False


class Page:
    """The samples of one scrape."""

    def __init__(self, url: str) -> None:
        self._lines = get(f"{url}/metrics").text.splitlines()

    def value(self, name: str, **labels: str) -> float:
        """The one sample of this name with these labels; NaN if there is none yet."""
        for line in self._lines:
            if line.startswith(f"{name}{{") and all(
                f'{key}="{text}"' in line for key, text in labels.items()
            ):
                return float(line.rpartition(" ")[2])
        return float("nan")


def test_the_four_stories_and_the_end(tmp_path: Path) -> None:
    url = f"http://127.0.0.1:{(port := free_port())}"
    hostile = {"PGHOSTADDR": "127.0.0.9", "PGSSLMODE": "require", "PGOPTIONS": "-c search_path=nowhere"}
    with demo(tmp_path, port=port, **hostile) as process:
        process.wait_for(lambda: Page(url).value("pgque_up") == 1, "a first poll", ignoring=(OSError,))
        folder = database_folder(process)
        server = postmaster(folder)
        first = Page(url)

        def told() -> bool:
            now = Page(url)
            billing, emails = (
                now.value(name, queue=queue) - first.value(name, queue=queue)
                for name, queue in (
                    ("pgque_consumer_pending_events", "billing"),
                    ("pgque_consumer_lag_seconds", "emails"),
                )
            )
            return (
                billing > 20
                and emails > 3
                and now.value("pgque_queue_depth", queue="orders") < 100
                and now.value("pgque_message_sent_total", queue="orders") > 100
                and now.value("pgque_message_dead_lettered", queue="webhooks") > 0
            )

        process.wait_for(told, "pending, lag and dead letters that grow", timeout=60)

        def unhealthy() -> bool:
            answer = get(f"{url}/healthz")
            return answer.status == 503 and '"consumer_lag:ledger"' in answer.text

        process.wait_for(unhealthy, "/healthz turns critical for billing", timeout=60)
        assert "billing" in get(f"{url}/").text

        introduction = process.output()
        for part in (f"{url}/metrics", f"{url}/healthz", "two consumers keep up", "ledger hangs", "Ctrl-C"):
            assert part in introduction
        dsn = re.search(r"SQL +\S+ (postgres://\S+)", introduction)
        assert dsn
        with pytest.raises(psycopg.OperationalError, match="no password supplied"):
            psycopg.connect(dsn[1], password="")
        with psycopg.connect(dsn[1], autocommit=True) as connection:
            assert_least_privilege(connection)
            assert_believable_dead_letters(connection)

        process.wait_for(lambda: "billing critical" in process.output(), "a line on the state of the queues")
        process.send_signal(signal.SIGINT)
        assert process.wait(5) == 0
    assert "Traceback" not in process.output()
    assert process.output().endswith("Stopped; the demo's database is removed.\n")
    assert not runs(server)
    assert not folder.exists()


def assert_least_privilege(connection: psycopg.Connection[tuple[object, ...]]) -> None:
    """The service's role can monitor, and that is all."""
    found = connection.execute(
        "select distinct usename from pg_stat_activity where application_name = 'pgque-exporter'"
    ).fetchall()
    assert found == [("exporter",)]
    roles = connection.execute(
        "select r.rolname, r.rolsuper, array(select m.roleid::regrole::text from pg_auth_members m"
        " where m.member = r.oid) from pg_roles r where r.rolname = 'exporter'"
    ).fetchall()
    assert roles == [("exporter", False, ["pgque_monitor"])]


def assert_believable_dead_letters(connection: psycopg.Connection[tuple[object, ...]]) -> None:
    letters = connection.execute("select dl_reason, ev_retry from pgque.dead_letter").fetchall()
    assert letters
    for reason, retries in letters:
        assert re.fullmatch(r"POST https://\S+\.example/\S+: (410 Gone|503 .*|no answer .*)", str(reason))
        assert retries == 2


def test_it_ends_by_itself_with_a_summary(tmp_path: Path) -> None:
    collector = "http://127.0.0.1:1"
    with demo(tmp_path, port=0, DURATION="3", OTEL_EXPORTER_OTLP_ENDPOINT=collector) as process:
        folder = database_folder(process)
        assert process.wait(60) == 0
    assert f"pushed to {collector}, named by OTEL_EXPORTER_OTLP_ENDPOINT" in process.output()
    assert re.search(r"The demo ran for 3(\.\d)?s:\n  billing +\d+ sent, ", process.output())
    assert not folder.exists()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_it_can_be_stopped_while_it_starts(tmp_path: Path, number: signal.Signals) -> None:
    with demo(tmp_path, port=0) as process:
        folder = database_folder(process)
        process.send_signal(number)
        assert process.wait(5) == 0
    assert "Traceback" not in process.output()
    assert not folder.exists()


def test_killed_at_its_beginning_it_leaves_no_folder(tmp_path: Path) -> None:
    with demo(tmp_path, port=0) as process:
        folder = database_folder(process)
        process.wait_for(folder.exists, "the folder")
        process.send_signal(signal.SIGKILL)
        process.wait(5)
        wait_for(lambda: not folder.exists(), "the guard has cleaned up")


def test_when_it_is_killed_its_database_goes_too(tmp_path: Path) -> None:
    with demo(tmp_path, port=0) as process:
        process.wait_for(lambda: "Status" in process.output(), "the introduction")
        folder = database_folder(process)
        server = postmaster(folder)
        process.send_signal(signal.SIGKILL)
        process.wait(5)
        wait_for(lambda: not folder.exists() and not runs(server), "the guard has cleaned up")


def test_a_port_in_use_is_one_clear_line(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with demo(tmp_path, port=port) as process:
            assert process.wait(20) == 2
    (line,) = process.output().splitlines()
    assert f"127.0.0.1:{port} is in use by another program" in line
    assert re.search(r"PORT=\d+ make demo", line)


@pytest.mark.parametrize(
    ("variable", "text", "told"),
    [
        ("PORT", "http", "PORT: 'http' is not a port"),
        ("PORT", "70000", "PORT: '70000' is not a port"),
        ("DURATION", "long", "DURATION: 'long' is not a duration"),
    ],
)
def test_a_wrong_setting_is_one_clear_line(tmp_path: Path, variable: str, text: str, told: str) -> None:
    with Process(COMMAND, log=tmp_path / "demo.log", env={"PORT": "0", variable: text}) as process:
        assert process.wait(20) == 2
    (line,) = process.output().splitlines()
    assert told in line
