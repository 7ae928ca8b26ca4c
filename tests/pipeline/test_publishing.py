"""What the pipeline makes, back in PostgreSQL: nothing more, nothing less, and nothing twice."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from psycopg import sql
from pyspark.sql import SparkSession

from pgque_exporter import __version__
from pgque_exporter.errors import UserError
from pgque_pipeline import cli
from pgque_pipeline.commands.options import destination
from pgque_pipeline.publishing import PUBLICATIONS, Published, publish
from pgque_pipeline.warehouse.manifest import commit, load
from pgque_pipeline.warehouse.store import Warehouse
from tests.pipeline.history import history
from tests.pipeline.test_run import BEGIN, Runs, write
from tests.pipeline.truth import truth
from tests.support.database import Connection, Database, wait_until
from tests.support.warehouse import small_warehouse

AS_OF = datetime(2026, 3, 29, 12, 34, 56, 789012, tzinfo=UTC)
SHOP = {"engine": "pgque", "database": "shop", "queue": "orders", "entity_id": 1}
APP = {**SHOP, "consumer": "app"}
LAG = "pgque.consumer.lag_seconds"
TABLES = ("baseline", "slo", "forecast")


def band(entity: dict[str, Any], median: float, *, hour: int = 0, hours: int = 4) -> dict[str, Any]:
    row = {"metric": LAG, "hour_of_week": hour, "hours": hours, "series_id": 1, "mad": 0.25}
    return {**entity, **row, "median": median, "low": median / 2, "high": median * 2}


def promise(entity: dict[str, Any], good: float, total: float, *, window: int = 24) -> dict[str, Any]:
    burn = (1 - good / total) / (1 - 0.75)
    row = {"objective": "lag", "window_hours": window, "target": 0.75, "good": good, "total": total}
    return {**entity, **row, "attainment": good / total, "burn": burn, "budget_left": 1 - burn}


def outlook(entity: dict[str, Any], left: float | None, *, low: float | None = None) -> dict[str, Any]:
    row = {"as_of": AS_OF, "seconds_left": left, "seconds_left_low": low, "seconds_left_high": None}
    return {**entity, **row}


@pytest.fixture
def server(database: Database) -> Connection:
    return database.connect()


@pytest.fixture
def runs(spark: SparkSession, tmp_path: Path) -> Runs:
    return Runs(spark, tmp_path)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "warehouse"


def send(warehouse: Warehouse, database: Database, user: str = "postgres") -> dict[str, Published]:
    return {table.name: table for table in publish(warehouse, destination(database.dsn(user), "--to"))}


def held(server: Connection, table: str, columns: str = "*") -> list[tuple[Any, ...]]:
    return server.execute(
        f"select {columns} from queue_history.{table} order by 1, 2, 3, 4, 5, 6".encode()
    ).fetchall()


def versions(server: Connection) -> dict[str, Any]:
    """Which transaction wrote each row."""
    return {
        table: server.execute(
            f"select xmin::text, t.* from queue_history.{table} t order by t::text".encode()
        ).fetchall()
        for table in ("publication", *TABLES)
    }


def test_the_tables_hold_what_the_warehouse_says(database: Database, server: Connection, root: Path) -> None:
    queue = {**SHOP, "queue": 'a "quoted",\nqueue\\.', "database": "Größe"}
    warehouse = small_warehouse(
        root,
        as_of=AS_OF,
        time_zone="Europe/Berlin",
        baselines=[band(APP, 0.1), band(APP, 1e-9, hour=167, hours=8), band(queue, 12345678.9)],
        slo=[promise(APP, 3, 4), promise(queue, 0, 7, window=672)],
        forecast=[outlook(APP, 3600.5, low=0), outlook({**APP, "consumer": "b"}, None)],
    )
    published = send(warehouse, database)
    app = ("pgque", "shop", "orders", "app")
    strange = ("pgque", "Größe", 'a "quoted",\nqueue\\.', "")
    assert held(server, "baseline") == [
        (*strange, LAG, 0, 12345678.9, 12345678.9 / 2, 12345678.9 * 2, 4),
        (*app, LAG, 0, 0.1, 0.05, 0.2, 4),
        (*app, LAG, 167, 1e-9, 5e-10, 2e-9, 8),
    ]
    assert held(server, "slo") == [
        ("lag", 24, *app, 0.75, 0.75, 1, 0),
        ("lag", 672, *strange, 0.75, 0, 4, -3),
    ]
    assert held(server, "forecast") == [
        (*app, AS_OF, 3600.5, 0, None),
        (*app[:3], "b", AS_OF, None, None, None),
    ]
    lasting = {"baseline": timedelta(days=14), "slo": timedelta(days=2), "forecast": timedelta(hours=6)}
    rows = server.execute(
        "select table_name, as_of, valid_until, time_zone from queue_history.publication"
    ).fetchall()
    assert sorted(rows) == sorted((name, AS_OF, AS_OF + lasting[name], "Europe/Berlin") for name in lasting)
    for name, table in published.items():
        assert (table.as_of, table.valid_until) == (AS_OF, AS_OF + lasting[name])
        assert (table.rows, table.changed) == (len(held(server, name)),) * 2
        assert (table.removed, table.merged, table.unusable) == (0, 0, 0)


def test_publishing_again_writes_nothing(database: Database, server: Connection, root: Path) -> None:
    tables: dict[str, Any] = {
        "baselines": [band(APP, 1)],
        "slo": [promise(APP, 1, 2)],
        "forecast": [outlook(APP, None)],
    }
    send(small_warehouse(root, as_of=AS_OF, **tables), database)
    before = versions(server)
    again = send(small_warehouse(root, as_of=AS_OF, **tables), database)
    assert versions(server) == before
    assert {(table.changed, table.removed, table.rows) for table in again.values()} == {(0, 0, 1)}


def test_only_what_differs_is_written_and_what_is_no_more_deleted(
    database: Database, server: Connection, root: Path
) -> None:
    first = [band(APP, 1, hour=1), band(APP, 2, hour=2), band(APP, 3, hour=3)]
    forecast = [outlook(APP, 60)]
    send(
        small_warehouse(root, as_of=AS_OF, baselines=first, slo=[promise(APP, 1, 1)], forecast=forecast),
        database,
    )
    before = {row[0]: row[1] for row in held(server, "baseline", "hour_of_week, xmin::text, 3, 4, 5, 6")}
    second = [band(APP, 2, hour=2), band(APP, 5, hour=3), band(APP, 6, hour=4)]
    later = AS_OF + timedelta(hours=1)
    published = send(small_warehouse(root, as_of=later, baselines=second, forecast=forecast), database)
    after = {row[0]: row[1] for row in held(server, "baseline", "hour_of_week, xmin::text, 3, 4, 5, 6")}
    assert after.keys() == {2, 3, 4}
    assert after[2] == before[2]
    assert after[3] != before[3]
    assert (published["baseline"].changed, published["baseline"].removed) == (2, 1)
    assert (held(server, "slo"), published["slo"].removed) == ([], 1)
    # An old forecast with nothing new in it is still as old as its newest metric.
    assert published["forecast"].changed == 0
    told = server.execute("select distinct as_of from queue_history.publication").fetchall()
    assert told == [(later,)]


def test_rows_that_differ_only_in_labels_become_one(
    database: Database, server: Connection, root: Path
) -> None:
    """Which one: medians of most data, promises together, and of forecasts the one that warns first."""
    other = {**APP, "entity_id": 2, "attributes": [("env", "staging")]}
    third = {**APP, "entity_id": 3, "attributes": [("env", "dev")]}
    published = send(
        small_warehouse(
            root,
            as_of=AS_OF,
            baselines=[band(APP, 1, hours=4), band(third, 2, hours=9), band(other, 3, hours=9)],
            slo=[promise(APP, 1, 1), promise(other, 3, 4), promise(third, 0, 3)],
            forecast=[outlook(APP, None), outlook(third, 90), outlook(other, 70)],
        ),
        database,
    )
    assert held(server, "baseline", "median, hours, 3, 4, 5, 6") == [(3, 9, 3, 4, 5, 6)]
    assert held(server, "slo", "attainment, burn, budget_left, 4, 5, 6") == [(0.5, 2, -1, 4, 5, 6)]
    assert held(server, "forecast", "seconds_left, 2, 3, 4, 5, 6") == [(70, 2, 3, 4, 5, 6)]
    assert {(table.rows, table.merged) for table in published.values()} == {(1, 2)}


def test_what_is_of_no_database_or_cannot_be_held_costs_nothing_else(
    database: Database, server: Connection, root: Path
) -> None:
    bad = [
        {**APP, "database": None},
        {**APP, "engine": None},
        {**APP, "queue": "x" * 3000},
        {**APP, "queue": "null\0character"},
    ]
    published = send(
        small_warehouse(
            root,
            as_of=AS_OF,
            baselines=[band(entity, 1) for entity in (*bad, APP, SHOP)],
            slo=[promise(entity, 1, 2) for entity in (*bad, APP, SHOP)],
            forecast=[outlook(entity, 1) for entity in (*bad, APP, SHOP)],
        ),
        database,
    )
    told = {name: (table.rows, table.unusable) for name, table in published.items()}
    assert told == {"baseline": (2, 4), "slo": (2, 4), "forecast": (1, 5)}, "a forecast is a consumer's"
    assert {row[3] for row in held(server, "slo")} == {"shop"}


def test_killed_in_the_middle_it_leaves_whole_publications(
    database: Database, server: Connection, root: Path
) -> None:
    def tables(value: float) -> dict[str, Any]:
        return {
            "baselines": [band(APP, value, hour=hour) for hour in range(168)],
            "slo": [promise(APP, 1, value)],
        }

    send(small_warehouse(root, as_of=AS_OF, **tables(2)), database)
    before = versions(server)
    small_warehouse(root, as_of=AS_OF + timedelta(hours=1), **tables(4))
    with database.connect(autocommit=False) as blocker:
        blocker.execute("lock table queue_history.slo in share row exclusive mode")
        words = ["publish", "--warehouse", str(root), "--to", database.dsn()]
        process = subprocess.Popen([sys.executable, "-m", "pgque_pipeline", *words])
        waiting = (
            "select from pg_stat_activity where wait_event_type = 'Lock' and datname = current_database()"
        )
        wait_until(lambda: server.execute(waiting).fetchall(), what="it waits for the table")
        process.send_signal(signal.SIGKILL)
        process.wait()
    wait_until(lambda: not server.execute(waiting).fetchall(), what="its session is gone")
    after = versions(server)
    assert {row[7] for row in held(server, "baseline")} == {2.0}, "the first table was through"
    assert after["slo"] == before["slo"]
    assert {row[0]: row[2] - AS_OF for row in held(server, "publication", "*, 6")} == {
        "baseline": timedelta(hours=1), "slo": timedelta(0), "forecast": timedelta(0)
    }  # fmt: skip


def test_two_at_once_come_out_as_one(database: Database, server: Connection, tmp_path: Path) -> None:
    def tables(value: int) -> dict[str, Any]:
        rows = [band({**APP, "queue": f"q{queue}"}, value) for queue in range(value, value + 50)]
        return {"baselines": rows, "slo": [promise(APP, value, 100)], "forecast": [outlook(APP, value)]}

    warehouses = [small_warehouse(tmp_path / str(value), as_of=AS_OF, **tables(value)) for value in (10, 20)]
    send(warehouses[0], database)
    strict = "alter database {} set default_transaction_isolation = serializable"
    server.execute(sql.SQL(strict).format(sql.Identifier(database.name)))
    for _ in range(3):
        with ThreadPoolExecutor(2) as pool:
            list(pool.map(lambda one: send(one, database), warehouses))
        medians = {row[6] for row in held(server, "baseline")}
        assert (medians, len(held(server, "baseline"))) in (({10}, 50), ({20}, 50))


def test_the_first_two_at_once_make_the_tables(
    database: Database, server: Connection, tmp_path: Path
) -> None:
    warehouses = [
        small_warehouse(tmp_path / str(value), as_of=AS_OF, baselines=[band(APP, value)])
        for value in (10, 20)
    ]
    for _ in range(3):
        server.execute("drop schema if exists queue_history cascade")
        with ThreadPoolExecutor(2) as pool:
            list(pool.map(lambda one: send(one, database), warehouses))
        assert len(held(server, "baseline")) == 1


# --- what stands in the way ----------------------------------------------------------------------


def test_a_warehouse_between_two_states_is_not_published(database: Database, root: Path) -> None:
    small_warehouse(root, as_of=AS_OF)
    state = load(root)
    commit(root, type(state)(**{**vars(state), "stale": True}))
    with pytest.raises(UserError, match=r"the tables are of different states\. A run is under way"):
        send(Warehouse(root), database)
    commit(root, type(state)(number=state.number + 1, settings=state.settings))
    with pytest.raises(UserError, match="there is nothing to publish yet"):
        send(Warehouse(root), database)


def test_a_time_zone_that_the_server_lacks_is_refused(database: Database, root: Path) -> None:
    """Else the service could show nothing of it."""
    with pytest.raises(UserError, match="the server doesn't know the time zone 'Mars/Base'"):
        send(small_warehouse(root, as_of=AS_OF, time_zone="Mars/Base"), database)


@pytest.fixture
def publisher(server: Connection) -> Iterator[str]:
    """A user who may write what is there and make nothing."""
    server.execute("create role publisher login")
    try:
        yield "publisher"
    finally:
        server.execute("drop owned by publisher cascade; drop role publisher")


def test_who_may_only_write_needs_the_tables_first(
    database: Database, server: Connection, root: Path, publisher: str
) -> None:
    warehouse = small_warehouse(root, as_of=AS_OF, slo=[promise(APP, 1, 2)])
    with pytest.raises(UserError, match=r"permission denied for database .* sql install --history"):
        send(warehouse, database, publisher)
    send(small_warehouse(root, as_of=AS_OF), database)
    with pytest.raises(UserError, match=r"permission denied for (schema|table)"):
        send(warehouse, database, publisher)
    server.execute(
        "grant usage on schema queue_history to publisher;"
        " grant select, insert, update, delete on all tables in schema queue_history to publisher;"
        " comment on schema queue_history is 'pgque_exporter history 0.0.1'"
    )
    warehouse = small_warehouse(root, as_of=AS_OF, slo=[promise(APP, 1, 2)])
    assert send(warehouse, database, publisher)["slo"].changed == 1, "older tables do"


@pytest.mark.parametrize(
    ("there", "then"), [("0.0.1", __version__), ("999.0", "999.0"), ("what", __version__)]
)
def test_older_tables_are_renewed_and_newer_ones_left(
    database: Database, server: Connection, root: Path, there: str, then: str
) -> None:
    warehouse = small_warehouse(root, as_of=AS_OF)
    send(warehouse, database)
    server.execute(f"comment on schema queue_history is 'pgque_exporter history {there}'".encode())
    send(warehouse, database)
    comment = "select obj_description('queue_history'::regnamespace, 'pg_namespace')"
    assert server.execute(comment.encode()).fetchone() == (f"pgque_exporter history {then}",)


def test_tables_of_a_stranger_are_not_written_to(
    database: Database, server: Connection, root: Path, publisher: str
) -> None:
    """His triggers would run with the rights of whoever publishes."""
    warehouse = small_warehouse(root, as_of=AS_OF)
    send(warehouse, database)
    server.execute("alter table queue_history.slo owner to publisher")
    with pytest.raises(UserError, match="schema queue_history or what is in it belongs to publisher"):
        send(warehouse, database)


def test_no_secret_is_in_a_mistake(
    database: Database,
    root: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    small_warehouse(root, as_of=AS_OF)
    password = tmp_path / "password"
    password.write_text("from-a-f1le\n", "utf-8")
    monkeypatch.setenv("PGQUE_PASSWORD_FILE", str(password))
    for dsn, told in (
        ("", "--to: the dsn is empty"),
        ("postgresql://me:s3cr%t@127.0.0.1/shop", "--to: the dsn is not a libpq connection string"),
        (
            "postgresql://me:s3cret@127.0.0.1:1/shop",
            'shop: server at "127.0.0.1", port 1: Connection refused',
        ),
        ("postgresql://me:s3cret@127.0.0.1:port/shop/@x", "--to: the dsn's host or dbname has an @"),
    ):
        code = cli.main(["publish", "--warehouse", str(root), "--to", dsn])
        out, err = capsys.readouterr()
        assert (code in (1, 2), out, err.count("\n")) == (True, "", 1)
        assert told in err
        assert not any(secret in err for secret in ("s3cr", "f1le"))
    password.unlink()
    assert cli.main(["publish", "--warehouse", str(root), "--to", database.dsn()]) == 2
    assert "PGQUE_PASSWORD_FILE: can't read" in capsys.readouterr().err


def test_the_command_says_what_became_of_each_table(
    database: Database, root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    small_warehouse(
        root, as_of=AS_OF, slo=[promise(APP, 1, 2), promise({**APP, "entity_id": 2}, 1, 2), promise({}, 1, 2)]
    )
    assert cli.main(["publish", "--warehouse", str(root), "--to", database.dsn()]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "baseline: 0 rows published, 0 of them changed, 0 removed; "
        "as of 2026-03-29 12:34:56 UTC, shown until 2026-04-12 12:34:56 UTC",
        "slo: 1 rows published, 1 of them changed, 0 removed; "
        "as of 2026-03-29 12:34:56 UTC, shown until 2026-03-31 12:34:56 UTC",
        "  1 rows differ from these only in labels that a metric here doesn't have",
        "  1 rows left out: of no database, or with labels that can't be stored",
        "forecast: 0 rows published, 0 of them changed, 0 removed; "
        "as of 2026-03-29 12:34:56 UTC, shown until 2026-03-29 18:34:56 UTC",
    ]


@pytest.mark.servers("pg15")
def test_what_a_run_made_is_what_is_published(runs: Runs, database: Database, server: Connection) -> None:
    lines = history(1, BEGIN, 28)
    write(runs.input / "metrics.json", lines)
    runs.run()
    published = send(runs.warehouse, database)
    expected = truth(lines)
    newest = max(row["ts"] for row in expected["points"])
    as_of = {
        row[0].timestamp() for row in server.execute("select as_of from queue_history.publication").fetchall()
    }
    assert as_of == {newest / 1_000_000}
    for name, publication in zip(TABLES, PUBLICATIONS, strict=True):
        assert published[name].rows == len(expected[publication.table.name])
    # Of one database there is nothing to merge: what is there is what the oracle has, to the last bit.
    values = ("target", "attainment", "burn", "budget_left")
    rows = sorted(
        (
            row["objective"],
            row["window_hours"],
            *(label or "" for label in row["entity"][:4]),
            *(row[name] for name in values),
        )
        for row in expected["slo"]
    )
    assert rows
    assert held(server, "slo") == rows
