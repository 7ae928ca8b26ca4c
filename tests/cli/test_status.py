"""The status screen against databases in known states."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import signal
import struct
import subprocess
import sys
import termios
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from psycopg import sql
from psycopg.rows import dict_row

from pgque_exporter import __version__
from pgque_exporter.terminal import width
from tests.cli.conftest import Run
from tests.exporter.harness import ToyPack, silent_server
from tests.support.database import Database
from tests.support.observed import Queue
from tests.support.processes import Process

COMMAND = [sys.executable, "-m", "pgque_exporter", "status"]


class Shop:
    """A database whose queues are put into states by hand."""

    def __init__(self, database: Database, connection: psycopg.Connection[dict[str, object]]) -> None:
        self.database = database
        self.connection = connection

    def queue(self, name: str, *consumers: str, **settings: str) -> Queue:
        self.connection.execute("select pgque.create_queue(%s)", (name,))
        for param, value in {"ticker_max_count": "1", **settings}.items():
            self.connection.execute("select pgque.set_queue_config(%s, %s, %s)", (name, param, value))
        queue = Queue(self.connection, name)
        for consumer in consumers:
            queue.subscribe(consumer)
        return queue

    def four_states(self) -> None:
        healthy = self.queue("orders", "fulfilment", "analytics")
        healthy.send_and_tick(3)
        healthy.consume("fulfilment")
        healthy.consume("analytics")
        lagging = self.queue("emails", "mailer", rotation_period="10 minutes")
        lagging.send_and_tick(1233)
        lagging.wait(400)
        lagging.send_and_tick()  # the ticker is at work, the consumer isn't
        stuck = self.queue("支払い", "ledger", rotation_period="20 seconds")
        stuck.send_and_tick(5)
        stuck.wait(72)
        failing = self.queue("webhooks", "deliver", max_retries="0")
        failing.send_and_tick(12)
        for message in failing.receive("deliver"):
            failing.nack("deliver", message)


@pytest.fixture
def shop(pack_database: Database) -> Iterator[Shop]:
    with psycopg.connect(pack_database.dsn(), autocommit=True, row_factory=dict_row) as connection:
        yield Shop(pack_database, connection)


def section(screen: str, title: str) -> list[str]:
    """The lines below a title, down to the next blank line."""
    lines = screen.split("\n")
    start = lines.index(f"{title}:") + 1
    return lines[start : lines.index("", start)]


def cells(table: list[str]) -> list[list[str]]:
    return [re.split(r"  +", line.strip()) for line in table]


def test_the_screen_shows_the_four_states(run: Run, shop: Shop) -> None:
    shop.four_states()
    code, out, error = run("status", "--dsn", shop.database.dsn())
    out = steady(out)
    assert (code, error) == (1, "")
    server = str(shop.connection.info.parameter_status("server_version")).partition(" ")[0]
    assert re.fullmatch(
        rf"pgque-exporter {re.escape(__version__)} \| {shop.database.name} \| PostgreSQL {re.escape(server)}"
        r" \| pgque \S+ \(pack \S+\)",
        out.split("\n", 1)[0],
    )

    system = dict(line.strip().split(maxsplit=1) for line in section(out, "System"))
    assert system["Ticker"].startswith("running, last tick ")
    assert re.fullmatch(r"on time, last \S+ ago", system["Rotation"])
    assert system["Retries"] == "0 waiting"
    assert re.fullmatch(r"\d+ ok, 2 warning, 1 critical", system["Checks"])

    title, *rows = cells(section(out, "Queues"))
    assert title == ["NAME", "DEPTH", "RATE", "ROTATION", "CONSUMERS", "DLQ", "HEALTH"]
    found = {row[0]: row for row in rows}
    assert list(found) == ["emails", "orders", "webhooks", "支払い"]
    assert (found["orders"][1], found["orders"][4:]) == ("0", ["2", "0", "ok"])
    assert (found["emails"][1], found["emails"][3:]) == ("1,234", ["6m40s ago", "1", "0", "warning"])
    assert (found["支払い"][1], found["支払い"][3:]) == ("5", ["1m12s ago", "1", "0", "critical"])
    assert (found["webhooks"][1], found["webhooks"][4:]) == ("12", ["1", "12", "warning"])

    title, *rows = cells(section(out, "Consumers"))
    assert title == ["QUEUE", "CONSUMER", "LAG", "PENDING", "STATUS"]
    assert ["emails", "mailer", "6m40s", "1,234", "warning"] in rows
    assert ["orders", "analytics", "0s", "0", "ok"] in rows
    assert ["支払い", "ledger", "1m12s", "5", "critical"] in rows

    attention = cells(section(out, "Needs attention"))
    assert [row[:3] for row in attention] == [
        ["critical", "支払い", "consumer_lag:ledger"],
        ["warning", "emails", "consumer_lag:mailer"],
        ["warning", "webhooks", "dlq_health"],
    ]
    assert attention[0][3] == "00:01:12 behind with 5 events; critical beyond 00:00:20"


def steady(screen: str) -> str:
    """The screen as if the machine had been quick: the states are some seconds old when they are shown."""
    screen = re.sub(r"\b6m[45]\ds", "6m40s", screen)
    screen = re.sub(r"\b1m[123]\ds", "1m12s", screen)
    return re.sub(r"00:01:[123]\d behind", "00:01:12 behind", screen)


def column_starts(line: str, words: list[str]) -> list[int]:
    """Where each word begins, in columns of a terminal."""
    starts = []
    position = 0
    for word in words:
        position = line.index(word, position)
        starts.append(width(line[:position]))
        position += len(word)
    return starts


def test_columns_line_up_on_a_terminal(run: Run, shop: Shop) -> None:
    shop.four_states()
    shop.queue("a_queue_with_a_name_of_fifty_seven_bytes_which_is_the_top")
    _, out, _ = run("status", "--dsn", shop.database.dsn())
    for title in ("Queues", "Consumers"):
        lines = section(out, title)
        words = cells(lines)
        # The first and the last column are flush left, those between flush right.
        assert len({column_starts(line, row)[0] for line, row in zip(lines, words, strict=True)}) == 1
        assert len({column_starts(line, row)[-1] for line, row in zip(lines, words, strict=True)}) == 1
        for index in range(2, len(words[0]) - 1):
            ends = {
                column_starts(line, row)[index] + width(row[index])
                for line, row in zip(lines, words, strict=True)
            }
            assert len(ends) == 1, (title, words[0][index])
        assert all(line == line.rstrip() for line in lines)


def test_all_is_well_is_said_and_exits_with_0(run: Run, shop: Shop) -> None:
    code, out, _ = run("status", "--dsn", shop.database.dsn())
    assert code == 0
    assert section(out, "Queues") == ["  none"]
    assert section(out, "Consumers") == ["  none"]
    assert out.endswith("\nAll is well.\n")

    queue = shop.queue("q", "c")
    queue.send_and_tick(50)
    queue.wait(3700)
    queue.send_and_tick()
    code, out, _ = run("status", "--dsn", shop.database.dsn())
    assert code == 0, "a warning is no emergency"
    assert "warning" in out


def test_what_is_not_known_is_a_dash(run: Run, shop: Shop) -> None:
    queue = shop.queue("q", "lost")
    queue.send_and_tick(2)
    queue.consume("lost")
    queue.send_and_tick(1)
    shop.connection.execute(
        "delete from pgque.tick where tick_id = (select sub_last_tick from pgque.subscription)"
    )
    code, out, _ = run("status", "--dsn", shop.database.dsn())
    assert code == 1
    assert cells(section(out, "Consumers"))[1] == ["q", "lost", "-", "-", "critical"]
    assert cells(section(out, "Queues"))[1][1] == "-"


def test_a_stopped_ticker_is_named(run: Run, shop: Shop) -> None:
    queue = shop.queue("q", "c")
    queue.send_and_tick()
    queue.wait(7200)
    _, out, _ = run("status", "--dsn", shop.database.dsn())
    assert section(out, "System")[0] == "  Ticker    not running for q"


def test_names_cannot_write_on_the_terminal(run: Run, shop: Shop) -> None:
    shop.queue("evil\x1b[2J\nname", "c\x07\u202e").send_and_tick(1)
    _, out, _ = run("status", "--dsn", shop.database.dsn())
    assert "\x1b" not in out
    assert "\x07" not in out
    assert "evil\\x1b[2J\\nname" in out
    assert "c\\x07\\u202e" in out


def test_the_monitoring_role_is_enough(run: Run, shop: Shop, login: str) -> None:
    shop.four_states()
    dsn = shop.database.dsn(user=login)
    code, out, _ = run("status", "--dsn", dsn)
    assert code == 1
    assert f"grant pgque_monitor to {login}" in out
    shop.connection.execute(sql.SQL("grant pgque_monitor to {}").format(sql.Identifier(login)))
    _, out, _ = run("status", "--dsn", dsn)
    assert "支払い" in out
    shop.connection.execute(sql.SQL("revoke pgque_monitor from {}").format(sql.Identifier(login)))


def test_json_holds_the_same_and_more(run: Run, shop: Shop) -> None:
    shop.four_states()
    code, out, error = run("status", "--json", "--dsn", shop.database.dsn())
    assert (code, error) == (1, "")
    document = json.loads(out)
    assert set(document) == {"version", "status", "targets"}
    assert document["status"] == "critical"
    (target,) = document["targets"]
    assert set(target) == {
        "name", "status", "server_version", "errors", "packs", "ignored", "checks_ok", "checks", "queues",
    }  # fmt: skip
    assert target["errors"] == target["ignored"] == []
    assert target["packs"][0]["schema"] == "pgque"
    assert {(check["queue"], check["check"], check["status"]) for check in target["checks"]} == {
        ("支払い", "consumer_lag:ledger", "critical"),
        ("emails", "consumer_lag:mailer", "warning"),
        ("webhooks", "dlq_health", "warning"),
    }
    stats = {row["queue_name"]: row for row in shop.connection.execute("select * from pgque.queue_stats()")}
    assert [queue["name"] for queue in target["queues"]] == list(stats)
    for queue in target["queues"]:
        assert queue["metrics"]["pgque.queue.depth"] == stats[queue["name"]]["depth"]
        assert {"name", "status", "metrics"} == set(queue["consumers"][0])
    (emails,) = (queue for queue in target["queues"] if queue["name"] == "emails")
    (mailer,) = emails["consumers"]
    assert (mailer["name"], mailer["status"]) == ("mailer", "warning")
    assert mailer["metrics"]["pgque.consumer.pending_events"] == 1234


def test_an_engine_nobody_knows_is_shown_beside_ours(run: Run, shop: Shop) -> None:
    shop.queue("q", "c")
    toy = ToyPack(shop.database.connect())
    toy.add("pgque.queue.depth", 7, queue="jobs")
    toy.add("pgque.consumer.lag_seconds", 75, queue="jobs", consumer="worker")
    toy.add_health("jobs", "workers_alive", "critical", "nobody is at work")
    code, out, _ = run("status", "--dsn", shop.database.dsn())
    assert code == 1
    assert "| toy 7.1 (pack 0.2)" in out
    assert cells(section(out, "Queues"))[0][0] == "ENGINE"
    assert ["toy", "jobs", "7", "-", "-", "-", "-", "critical"] in cells(section(out, "Queues"))
    assert ["toy", "jobs", "worker", "1m15s", "-", "ok"] in cells(section(out, "Consumers"))
    assert "nobody is at work" in out


def test_a_pack_that_is_not_trusted_is_named(run: Run, shop: Shop, login: str) -> None:
    ToyPack(shop.database.connect())
    connection = shop.database.connect()
    connection.execute(
        sql.SQL("alter function toy_observability.otel_metrics() owner to {}").format(sql.Identifier(login))
    )
    _, out, _ = run("status", "--dsn", shop.database.dsn())
    assert "ignored   schema toy_observability: not owned by" in out
    connection.execute("drop schema toy_observability cascade")


def test_databases_come_one_after_the_other_and_one_may_be_down(run: Run, shop: Shop, tmp_path: Path) -> None:
    shop.queue("q", "c")
    file = tmp_path / "pgque-exporter.yaml"
    with silent_server() as port:
        file.write_text(
            "timeout: 300ms\n"
            "targets:\n"
            f"  - {{name: first, dsn: '{shop.database.dsn()}', timeout: 10s}}\n"
            "  - {name: second, dsn: 'host=127.0.0.1 port=1 user=u password=hidden dbname=x'}\n"
            f"  - {{name: third, dsn: 'host=127.0.0.1 port={port} user=u password=hidden dbname=x'}}\n"
        )
        code, out, error = run("status", "--config", str(file))
        assert (code, error) == (1, "")
        assert "hidden" not in out
        heads = [line.split(" | ")[1] for line in out.split("\n") if line.startswith("pgque-exporter ")]
        assert heads == ["first", "second", "third"]
        assert "Connection refused" in out
        assert "no answer within 0.3 s" in out
        code, out, _ = run("status", "--json", "--config", str(file))
    assert code == 1
    document = json.loads(out)
    assert [target["status"] for target in document["targets"]] == ["ok", "critical", "critical"]
    assert [target["errors"][0]["kind"] for target in document["targets"][1:]] == ["connection", "timeout"]


def on_terminal(command: list[str], *, columns: int, **env: str) -> str:
    """What a program writes on a terminal of that many columns."""
    leader, follower = pty.openpty()
    fcntl.ioctl(follower, termios.TIOCSWINSZ, struct.pack("HHHH", 50, columns, 0, 0))
    ours = ("COLUMNS", "LINES", "NO_COLOR")
    environ = {name: text for name, text in os.environ.items() if name not in ours}
    with subprocess.Popen(
        command, stdin=follower, stdout=follower, stderr=follower, env={**environ, "TERM": "xterm", **env}
    ) as process:
        os.close(follower)
        written = b""
        try:
            while piece := os.read(leader, 65536):
                written += piece
        except OSError:
            pass  # the other side has closed
        process.wait(30)
    os.close(leader)
    return written.decode().replace("\r\n", "\n")


def test_a_terminal_gets_colours_and_wrapped_texts(shop: Shop) -> None:
    shop.four_states()
    command = [*COMMAND, "--dsn", shop.database.dsn()]
    coloured = on_terminal(command, columns=100)
    assert "\x1b[1;31mcritical\x1b[0m" in coloured
    plain = on_terminal(command, columns=74, NO_COLOR="1")
    assert "\x1b" not in plain
    lines = plain[plain.index("Needs attention:") :].rstrip("\n").split("\n")
    assert all(width(line) <= 74 for line in lines)
    assert len(lines) > 4, "at least one text is wrapped"
    assert "critical beyond 00:00:20" in re.sub(r"\s+", " ", plain)


def test_watching_shows_it_again_until_interrupted(shop: Shop, tmp_path: Path, run: Run) -> None:
    shop.queue("q", "c")
    command = [*COMMAND, "--dsn", shop.database.dsn(), "--watch", "100ms"]
    with Process(command, log=tmp_path / "log") as watching:
        watching.wait_for(lambda: watching.output().count("Queues:") >= 3, "three screens")
        watching.send_signal(signal.SIGINT)
        assert watching.wait(10) == 0
        assert "Traceback" not in watching.output()
    code, _, error = run("status", "--watch", "soon")
    assert code == 2
    assert "'soon' is not a duration: write a number with ms, s, m or h" in error
    assert run("status", "--watch", "5s", "--json")[0] == 2
