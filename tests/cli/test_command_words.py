"""What other users of the machine can read of a running service."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from psycopg.conninfo import conninfo_to_dict

from pgque_exporter.command_words import split
from tests.support.database import Database
from tests.support.processes import Process

HIDDEN = [
    ["run", "--dsn", "postgresql://u:hunter2@h:1/d"],
    ["run", "--dsn=postgresql://u:hunter2@h:1/d", "--debug"],
    ["run", "--ds", "host=h port=1 user=u dbname=d password=hunter2"],
    ["check", "--dsn", "host=h port=1 user=u dbname=d password = 'hunter2'", "--json"],
    ["check", "--dsn", "postgresql://h:1/d?user=u&password=hunter2"],
]
LEFT_ALONE = [
    ["run"],
    ["run", "--dsn"],
    ["run", "--dsn", "postgresql://u@h/d"],
    ["run", "--dsn", "host=h passfile=/password"],
    ["run", "--dsn", "service=s password=hunter2"],
    ["run", "--dsn", "password='hunter2"],
]


@pytest.mark.parametrize("words", HIDDEN)
def test_the_password_is_taken_out_and_nothing_else(words: list[str]) -> None:
    found = split(words)
    assert found is not None
    left, password = found
    assert password == "hunter2"
    assert "hunter2" not in " ".join(left)
    assert len(left) == len(words)
    changed = [new for old, new in zip(words, left, strict=True) if old != new]
    [dsn] = changed
    shown = conninfo_to_dict(dsn.removeprefix("--dsn="))
    assert {key: str(value) for key, value in shown.items()} == {
        "host": "h",
        "port": "1",
        "user": "u",
        "dbname": "d",
    }
    assert split(left) is None


@pytest.mark.parametrize("words", LEFT_ALONE)
def test_what_has_no_password_to_hide_is_left_alone(words: list[str]) -> None:
    assert split(words) is None


@pytest.mark.servers("pg18")
def test_the_list_of_processes_shows_no_password(database: Database, tmp_path: Path) -> None:
    program = Path(sys.executable).with_name("pgque-exporter")
    command: list[str | Path] = [program, "run", "--dsn", f"{database.dsn()} password=hunter2"]
    environment = {"PGQUE_LISTEN": "127.0.0.1:0"}
    with Process(command, log=tmp_path / "log", env=environment, cwd=tmp_path) as process:
        process.wait_for(lambda: "listening on" in process.output(), "the service listens")
        words = Path(f"/proc/{process.pid}/cmdline").read_text("utf-8").split("\0")
    assert words[-4:-2] == ["run", "--dsn"]
    assert database.name in words[-2]
    assert "hunter2" not in " ".join(words)
    assert "hunter2" not in process.output()
