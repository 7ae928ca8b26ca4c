"""A configuration that changes while the service runs: what changes with it, and what notices nothing."""

from __future__ import annotations

import logging
import signal
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.exporter.harness import Running, ToyPack, get, running_file
from tests.support.database import Database, wait_until
from tests.support.processes import Process

pytestmark = pytest.mark.servers("pg18")

SUCCESS = "pgque_exporter_config_reload_success"
TIMESTAMP = "pgque_exporter_config_reload_timestamp_seconds"


class Files:
    """A configuration file, and a folder of files with targets that it names."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "exporter.yaml"
        self._targets = folder / "targets.d"
        self._targets.mkdir()
        self.write({"listen": "127.0.0.1:0", "interval": "200ms", "target_files": ["targets.d/*.yaml"]})

    def write(self, settings: dict[str, Any]) -> None:
        # A poll that a busy machine is slow with must not cost its connection: that is what is looked at.
        replace(self.path, yaml.safe_dump({"timeout": "20s", **settings}))

    def put(self, name: str, *targets: dict[str, Any]) -> None:
        replace(self._targets / f"{name}.yaml", yaml.safe_dump(list(targets)))

    def put_text(self, name: str, text: str) -> None:
        replace(self._targets / f"{name}.yaml", text)

    def remove(self, name: str) -> None:
        (self._targets / f"{name}.yaml").unlink()


def replace(path: Path, text: str) -> None:
    fresh = path.with_suffix(".new")
    fresh.write_text(text, encoding="utf-8")
    fresh.rename(path)


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(tmp_path)


def entry(database: Database, name: str, **settings: Any) -> dict[str, Any]:
    return {"name": name, "dsn": database.dsn(), **settings}


def polls(service: Running, name: str) -> float:
    return service.sample(f'pgque_exporter_polls_total{{database="{name}",result="ok"}}') or 0


def backends(database: Database) -> list[int]:
    query = (
        "select pid from pg_stat_activity where datname = %s and application_name = 'pgque-exporter' "
        "order by pid"
    )
    return [pid for (pid,) in database.connect().execute(query, (database.name,))]


def test_an_unchanged_target_notices_nothing(
    files: Files, database: Database, toy: ToyPack, other_database: Database
) -> None:
    toy.add("pgque.queue.depth", 1, queue="q")
    ToyPack(other_database.connect())
    files.put("a", entry(database, "shop"))
    files.put("b", entry(other_database, "old"))
    with running_file(files.path) as service:
        wait_until(lambda: polls(service, "shop") > 2 and polls(service, "old") > 0, what="both polled")
        [backend] = backends(database)
        before = polls(service, "shop")
        files.put("b", entry(other_database, "new"))
        wait_until(lambda: service.databases() == {"shop", "new"}, what="the renamed one is exchanged")
        assert service.sample("pgque_queue_depth{") == 1
        assert polls(service, "shop") >= before
        wait_until(lambda: polls(service, "new") > 0, what="the new one is polled")
        assert backends(database) == [backend]
        files.remove("b")
        wait_until(lambda: service.databases() == {"shop"}, what="the removed one vanishes")
        wait_until(lambda: backends(other_database) == [], what="its connection too")
        assert backends(database) == [backend]
        assert service.sample(SUCCESS) == 1


def test_a_changed_target_is_replaced_and_has_one_connection(
    files: Files, database: Database, toy: ToyPack
) -> None:
    toy.add("pgque.queue.depth", 1, queue="q")
    files.put("a", entry(database, "shop"))
    with running_file(files.path) as service:
        wait_until(lambda: polls(service, "shop") > 0, what="polled")
        [backend] = backends(database)
        files.put("a", entry(database, "shop", labels={"env": "prod"}))
        wait_until(
            lambda: service.sample('pgque_queue_depth{engine="toy",database="shop",env="prod"'),
            what="polled with its label",
        )
        assert service.sample('pgque_queue_depth{engine="toy",database="shop",queue') is None
        assert service.sample('pgque_exporter_polls_total{database="shop",result="ok"}') is None
        [another] = backends(database)
        assert another != backend


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("- dsn: dbname=x\n  intervall: 5s\n", "b.yaml:2: unknown key 'intervall'. Did you mean interval?"),
        ("- [\n", "b.yaml:2: not valid YAML"),
        ("- {name: shop, dsn: dbname=x}\n", "b.yaml:1: a target named 'shop' exists already"),
    ],
)
def test_a_bad_file_is_refused_and_the_old_configuration_goes_on(
    text: str, line: str, files: Files, database: Database, toy: ToyPack, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "pgque_exporter")
    files.put("a", entry(database, "shop"))
    with running_file(files.path) as service:
        wait_until(lambda: service.sample(SUCCESS) == 1 and polls(service, "shop"), what="polled")
        loaded = service.sample(TIMESTAMP)
        [backend] = backends(database)
        files.put_text("b", text)
        wait_until(lambda: service.sample(SUCCESS) == 0, what="refused")
        before = polls(service, "shop")
        wait_until(lambda: polls(service, "shop") > before, what="the old goes on")
        assert backends(database) == [backend]
        assert service.sample(TIMESTAMP) == loaded
        files.remove("b")
        wait_until(lambda: service.sample(SUCCESS) == 1, what="mended")
        assert backends(database) == [backend]
        assert (service.sample(TIMESTAMP) or 0) > (loaded or 0)
    [refusal] = [record.getMessage() for record in caplog.records if record.levelname == "ERROR"]
    assert refusal.startswith("configuration refused, the old one stays: ")
    assert line in refusal
    assert "\n" not in refusal


def test_a_missing_main_file_is_refused_too(files: Files, database: Database, toy: ToyPack) -> None:
    files.put("a", entry(database, "shop"))
    with running_file(files.path) as service:
        wait_until(lambda: polls(service, "shop"), what="polled")
        files.path.unlink()
        wait_until(lambda: service.sample(SUCCESS) == 0, what="refused")
        before = polls(service, "shop")
        wait_until(lambda: polls(service, "shop") > before, what="the old goes on")


def test_what_needs_a_restart_is_said(
    files: Files, database: Database, toy: ToyPack, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "pgque_exporter.service")
    files.put("a", entry(database, "shop"))
    with running_file(files.path) as service:
        files.write({"listen": "127.0.0.1:1", "interval": "300ms", "target_files": ["targets.d/a.yaml"]})
        wait_until(
            lambda: any("configuration reloaded" in record.getMessage() for record in caplog.records),
            what="reloaded",
        )
        assert service.get("/livez").status == 200
    warnings = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert warnings == ["configuration: a change of listen takes effect at the next start"]


def test_a_server_that_is_searched_can_be_added_and_removed(
    files: Files, database: Database, toy: ToyPack, other_database: Database
) -> None:
    ToyPack(other_database.connect())
    server = entry(database, "db1", discover={"include": [database.name], "interval": "200ms"})
    files.put("a", entry(other_database, "shop"))
    with running_file(files.path) as service:
        wait_until(lambda: polls(service, "shop"), what="polled")
        [backend] = backends(other_database)
        files.put("b", server)
        wait_until(lambda: polls(service, f"db1/{database.name}"), what="found and polled")
        files.put("b", {**server, "discover": {"include": ["nothing"], "interval": "200ms"}})
        wait_until(lambda: service.databases() == {"shop", "db1"}, what="its pattern chooses nothing now")
        files.put("b", server)
        wait_until(lambda: polls(service, f"db1/{database.name}"), what="found again")
        files.remove("b")
        wait_until(lambda: service.databases() == {"shop"}, what="gone with its server")
        wait_until(lambda: backends(database) == [], what="no connection is left")
        assert backends(other_database) == [backend]


def test_a_target_that_hangs_can_be_removed(files: Files, database: Database, toy: ToyPack) -> None:
    toy.replace_metrics("select 'x', 'gauge', 1.0, '{}'::jsonb from pg_sleep(600)")
    files.put("a", entry(database, "shop", timeout="500s"))
    files.write({"listen": "127.0.0.1:0", "stale_after": "20m", "target_files": ["targets.d/*.yaml"]})
    with running_file(files.path) as service:
        wait_until(lambda: backends(database), what="the poll hangs")
        files.remove("a")
        wait_until(lambda: service.databases() == set(), what="removed")
        assert service.get("/livez").status == 200
        assert service.get("/readyz").status == 200


def test_sighup_reloads_and_harms_nothing_without_a_file(tmp_path: Path, database: Database) -> None:
    ToyPack(database.connect())
    log = tmp_path / "log"
    argv = (sys.executable, "-m", "pgque_exporter", "run", "--dsn", database.dsn())
    with Process(argv, log=log, env={"PGQUE_LISTEN": "127.0.0.1:0"}) as service:
        service.wait_for(lambda: "listening on" in service.output(), "started")
        url = service.output().partition("listening on ")[2].partition(",")[0]
        service.send_signal(signal.SIGHUP)
        service.wait_for(lambda: "nothing to reload" in service.output(), "told")
        page = get(f"{url}/metrics").text
        assert "pgque_exporter_build_info" in page
        assert SUCCESS not in page


def test_sighup_reloads_a_file_that_looks_the_same(files: Files, database: Database, toy: ToyPack) -> None:
    files.put("a", entry(database, "shop"))
    with running_file(files.path) as service:
        wait_until(lambda: polls(service, "shop"), what="polled")
        [backend] = backends(database)
        loaded = service.sample(TIMESTAMP) or 0
        service.reload()
        wait_until(lambda: (service.sample(TIMESTAMP) or 0) > loaded, what="loaded again")
        assert backends(database) == [backend]
