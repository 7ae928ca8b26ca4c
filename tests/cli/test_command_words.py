"""What other users of the machine can read of a running service."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from psycopg.conninfo import conninfo_to_dict

from pgque_exporter.command_words import split
from tests.cli.conftest import Run
from tests.support.database import Database
from tests.support.processes import Process

PLAIN = "postgresql://u@h:1/d"
# What is given, and what stands before the connection string in its word.
HIDDEN = [
    (["run", "--dsn", "postgresql://u:hunter2@h:1/d"], ""),
    (["run", "--dsn=postgresql://u:hunter2@h:1/d", "--debug"], "--dsn="),
    (["run", "--ds", "host=h port=1 user=u dbname=d password=hunter2"], ""),
    (["check", "--dsn", "host=h port=1 user=u dbname=d password = 'hunter2'", "--json"], ""),
    (["check", "--dsn", "postgresql://h:1/d?user=u&password=hunter2"], ""),
    (["check", "--dsn", "postgresql://u@h:1/d?sslpassword=hunter2"], ""),
    (["publish", "--to", "postgresql://u:hunter2@h:1/d", "--warehouse", "w"], ""),
    (["run", "--publish-to=postgresql://u:hunter2@h:1/d"], "--publish-to="),
    (["dead-letters", "--dsn", "shop=postgresql://u:hunter2@h:1/d"], "shop="),
    (["dead-letters", "--dsn", "user=postgresql://u:hunter2@h:1/d"], "user="),
    (["dead-letters", "--dsn=x=host=h port=1 user=u dbname=d password=hunter2", f"y={PLAIN}"], "--dsn=x="),
]
LEFT_ALONE = [
    ["run"],
    ["run", "--dsn"],
    ["run", "--dsn", PLAIN],
    ["run", "--dsn", "host=h passfile=/password"],
    ["run", "--dsn", "password='hunter2"],
    ["run", "--input", "/srv/password=x/metrics", "--from=2026-01-31"],
]


@pytest.mark.parametrize(("words", "prefix"), HIDDEN)
def test_the_password_is_taken_out_and_nothing_else(words: list[str], prefix: str) -> None:
    shown, hidden = split(words)
    assert "hunter2" not in " ".join(shown)
    assert len(shown) == len(words)
    [(place, word)] = hidden.items()
    assert [*shown[:place], word, *shown[place + 1 :]] == words
    assert shown[place].startswith(prefix)
    left = conninfo_to_dict(shown[place].removeprefix(prefix))
    assert {key: str(value) for key, value in left.items()} == {
        "host": "h",
        "port": "1",
        "user": "u",
        "dbname": "d",
    }
    assert split(shown) == (shown, {})


@pytest.mark.parametrize("words", LEFT_ALONE)
def test_what_has_no_password_to_hide_is_left_alone(words: list[str]) -> None:
    assert split(words) == (words, {})


def test_the_program_gets_the_words_that_it_was_given() -> None:
    """Each of several passwords too; whoever else looks finds none, nor do programs that it starts."""
    words = [word for given, _ in HIDDEN for word in given]
    words += ["service=s password=hunter2", "not ASCII: \u00fc", ""]
    look = """
import json, os, pathlib
from pgque_exporter.command_words import given
print(json.dumps([given(), pathlib.Path("/proc/self/cmdline").read_text(), [*os.environ.values()]]))
"""
    said = subprocess.run([sys.executable, "-c", look, *words], capture_output=True, text=True, check=True)
    got, shown, environment = json.loads(said.stdout)
    assert got == words
    assert "hunter2" not in shown
    assert PLAIN in shown
    assert "hunter2" not in "".join(environment)


def test_a_mistake_quotes_no_password(run: Run) -> None:
    code, out, err = run("sql", "install", "--bogus", "postgresql://u:hunter2@h/d", "password=hunter2")
    assert (code, out) == (2, "")
    assert "--bogus" in err
    assert "hunter2" not in err


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
