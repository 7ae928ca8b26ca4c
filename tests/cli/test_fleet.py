"""Commands on a configuration with files of targets and servers to be searched."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.conftest import Run
from tests.exporter.harness import ToyPack
from tests.support.database import Database


def write(folder: Path, database: Database, *, port: int | None = None) -> str:
    """A configuration that searches the server of `database` for it, and has one more target in a file."""
    path = folder / "exporter.yaml"
    server = f"host=127.0.0.1 port={port or database.cluster.port} user=postgres dbname=postgres"
    path.write_text(
        "target_files: [more.yaml]\n"
        "targets:\n"
        f"  - name: db1\n    dsn: {server}\n    discover: {{include: [{database.name}]}}\n"
    )
    (folder / "more.yaml").write_text(f'- name: listed\n  dsn: "{database.dsn()}"\n')
    return str(path)


def test_check_and_status_search_the_servers(run: Run, database: Database, tmp_path: Path) -> None:
    ToyPack(database.connect())
    path = write(tmp_path, database)
    names = ["listed", f"db1/{database.name}"]
    for command in ("check", "status"):
        code, out, err = run(command, "--json", "--config", path)
        assert (code, err) == (0, "")
        assert [one["name"] for one in json.loads(out)["targets"]] == names


def test_a_server_that_cannot_be_searched_is_a_failed_check(
    run: Run, database: Database, tmp_path: Path
) -> None:
    ToyPack(database.connect())
    code, out, _ = run("check", "--config", write(tmp_path, database, port=1))
    assert code == 1
    assert out.startswith("db1: FAILED")
    assert "\nlisted: ok" in out


def test_sql_wants_single_databases(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "exporter.yaml"
    path.write_text("targets: [{name: db1, dsn: host=/nowhere, discover: true}]\n")
    code, _, err = run("sql", "verify", "--config", str(path))
    assert code == 2
    assert err == (
        f"pgque-exporter: error: {path}: no database is listed in `targets`. Choose one with --dsn\n"
    )


def test_a_bad_shard_is_one_line(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "exporter.yaml"
    path.write_text("listen: 127.0.0.1:0\ntargets: [{dsn: host=/nowhere}]\n")
    hint = "Write 1/8 for the first of eight, 8/8 for the last"
    expected = f"pgque-exporter: error: --shard: '9/8' is not a shard. {hint}\n"
    assert run("run", "--config", str(path), "--shard", "9/8") == (2, "", expected)
    monkeypatch.setenv("PGQUE_SHARD", "two")  # counts beside a file too
    expected = f"pgque-exporter: error: PGQUE_SHARD: 'two' is not a shard. {hint}\n"
    assert run("run", "--config", str(path)) == (2, "", expected)
