"""Dead letters of many databases, those of one fault together: a fault's reasons are made, not guessed."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from pgque_exporter.config import TargetConfig
from pgque_exporter.demo.cluster import Cluster
from pgque_pipeline import cli, dead_letter_source
from pgque_pipeline.dead_letters import Look, look
from pgque_pipeline.schemas import DEAD_LETTERS
from pgque_pipeline.tables.dead_letters import LONGEST_REASON, normalised
from pgque_pipeline.warehouse.store import open_warehouse
from tests.pipeline import compare
from tests.support.database import Database, new_database

BEGIN = datetime(2026, 3, 1, tzinfo=UTC)
SECRET = "the payload"

# What a consumer may write -> what it is called. Each makes another text whenever it is called.
CHANGING = {
    "number": lambda chance: chance.choice(
        [str(chance.randrange(10**6)), f"{chance.random():.3f}", "12:34:56"]
    ),
    "uuid": lambda chance: "-".join(_hex(chance, n) for n in (8, 4, 4, 4, 12)),
    "hex": lambda chance: chance.choice([f"0x{chance.randrange(16**6):x}", f"a1{_hex(chance, 20)}"]),
    "text": lambda chance: chance.choice(["'{}'", '"{}"', "`{}`", "“{}”", "'it is {}: 7'"]).format(
        _word(chance)
    ),
    "url": lambda chance: f"https://{_word(chance)}.example/{chance.randrange(99)}?a=b#c",
    "address": lambda chance: chance.choice(
        [
            ".".join(str(chance.randrange(256)) for _ in range(4)),
            f"10.0.0.{chance.randrange(256)}:{chance.randrange(1024, 65536)}",
            f"{_word(chance)}.{_word(chance)}@{_word(chance)}.example.com",
            f"fe80::{_hex(chance, 4)}",
            ":".join(_hex(chance, 4) for _ in range(8)),
        ]
    ),
}
FAULTS = (
    "no such order: {number}",
    "duplicate key value violates unique constraint {text}",
    "Can't reach {address}: l'été n'est pas fini",
    "job_{number} of {uuid} failed after {number} ms (attempt {number}/{number})",
    "checksum {hex} is not {hex}",
    "POST {url} returned {number}",
    "{address} refused mail from {address}",
    "std::bad_alloc in worker-{number}",
    "deadbeef is a word, {hex} is none",
)


def _hex(chance: random.Random, length: int) -> str:
    return "".join(chance.choice("0123456789abcdef") for _ in range(length))


def _word(chance: random.Random) -> str:
    return "".join(chance.choice("ghijklmnop") for _ in range(5))


def reason(fault: str, chance: random.Random) -> str:
    """One of the reasons that the fault may have."""
    for name, make in CHANGING.items():
        while f"{{{name}}}" in fault:
            fault = fault.replace(f"{{{name}}}", make(chance), 1)
    return fault


def told(fault: str) -> str:
    """What all of its reasons become."""
    for name in CHANGING:
        fault = fault.replace(f"{{{name}}}", f"<{name}>")
    return fault


def test_reasons_of_one_fault_become_one(spark: SparkSession) -> None:
    chance = random.Random(5)
    given = [(fault, reason(fault, chance)) for fault in FAULTS for _ in range(40)]
    rows = spark.createDataFrame(given, "fault string, reason string")
    found: dict[str, set[str]] = {row.fault: set() for row in rows.select("fault").distinct().collect()}
    for row in rows.withColumn("reason", normalised(rows.reason)).collect():
        found[row.fault].add(row.reason)
    assert found == {fault: {told(fault)} for fault in FAULTS}
    assert len({text for _, text in given}) > 200


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (None, None),
        ("", ""),
        ("  spaces \n\tand lines ", "spaces and lines"),
        ("unclosed 'quote goes on", "unclosed <text>"),
        ("at 2026-03-01T12:00:00.123Z", "at <number>-<number>-<number>T<number>Z"),
        ('{"id": 7, "name": "x"}', "{<text>: <number>, <text>: <text>}"),
        ("no digits, no change", "no digits, no change"),
        ("x" * 150 + " cut " + "y" * 45, "x" * 150 + " cut"),
        ("of 1.2.3.4.5 and ::, no address", "of <number> and ::, no address"),
    ],
)
def test_what_else_a_reason_may_be(spark: SparkSession, text: str | None, expected: str | None) -> None:
    assert text is None or len(text) <= LONGEST_REASON
    rows = spark.createDataFrame([(text,)], "reason string")
    (row,) = rows.select(normalised(rows.reason).alias("reason")).collect()
    assert row.reason == expected


# --- databases -----------------------------------------------------------------------------------

pytestmark = pytest.mark.servers("pg15")


@pytest.fixture
def databases(cluster: Cluster, pack_template: str) -> Iterator[dict[str, Database]]:
    """Two databases with the pack; `watcher` may only monitor, `outsider` nothing."""
    with ExitStack() as stack:
        found = {
            name: stack.enter_context(new_database(cluster, template=pack_template)) for name in ("a", "b")
        }
        db = found["a"].connect()
        db.execute("create role watcher login in role pgque_monitor; create role outsider login")
        yield found
        db.execute("drop role watcher, outsider")


def target(name: str, database: Database) -> TargetConfig:
    return TargetConfig(name, database.dsn("watcher"))


def fill(database: Database, chance: random.Random, name: str) -> list[dict[str, Any]]:
    """Dead letters of two queues and two consumers, and what the table has to say of them."""
    db = database.connect()
    groups: dict[tuple[Any, ...], list[tuple[datetime, int, str | None]]] = defaultdict(list)
    for queue in ("orders", "mail"):
        db.execute("select pgque.create_queue(%s)", (queue,))
        for consumer in ("app", "audit"):
            db.execute("select pgque.subscribe(%s, %s)", (queue, consumer))
    for number in range(300):
        queue, consumer = chance.choice(("orders", "mail")), chance.choice(("app", "audit"))
        kind = chance.choice(("created", None))
        fault = chance.choice((*FAULTS[:4], None))
        text = None if fault is None else reason(fault, chance)
        moment = BEGIN + timedelta(seconds=chance.randrange(100))
        db.execute(
            "insert into pgque.dead_letter"
            " (dl_queue_id, dl_consumer_id, dl_time, dl_reason, ev_id, ev_time, ev_type, ev_data)"
            " select queue_id, co_id, %s, %s, %s, %s, %s, %s from pgque.queue, pgque.consumer"
            " where queue_name = %s and co_name = %s",
            (moment, text, number, moment, kind, SECRET, queue, consumer),
        )
        groups[queue, consumer, kind, fault].append((moment, number, text))
    return [
        {
            "engine": "pgque", "database": name, "queue": queue, "consumer": consumer, "event_type": kind,
            "reason": None if fault is None else told(fault), "dead_letters": len(letters),
            "first_at": min(letters)[0], "last_at": max(letters)[0], "example": max(letters)[2],
        }
        for (queue, consumer, kind, fault), letters in groups.items()
    ]  # fmt: skip


class Looks:
    """A warehouse, and looks at dead letters in one session."""

    def __init__(self, spark: SparkSession, root: Path) -> None:
        self._spark, self._root = spark, root

    def look(self, *targets: TargetConfig) -> Look:
        return look(self._spark, open_warehouse(self._root, create=True), targets)

    def difference(self, expected: list[dict[str, Any]]) -> list[str]:
        table = open_warehouse(self._root, create=False).read(self._spark, DEAD_LETTERS)
        rows = [row.asDict() for row in table.collect()]
        assert SECRET not in str(rows)
        for row in rows:
            row |= {name: row[name].replace(tzinfo=UTC) for name in ("first_at", "last_at")}
        key = ("database", "engine", "queue", "consumer", "event_type", "reason")
        return compare.difference(rows, expected, key)


@pytest.fixture
def looks(spark: SparkSession, tmp_path: Path) -> Looks:
    return Looks(spark, tmp_path / "warehouse")


def test_the_table_is_what_the_databases_hold(
    looks: Looks, databases: dict[str, Database], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    chance = random.Random(1)
    expected = [row for name, database in databases.items() for row in fill(database, chance, name)]
    seen = looks.look(*(target(name, database) for name, database in databases.items()))
    assert (seen.letters, seen.faults, seen.failures) == (600, len(expected), [])
    assert looks.difference(expected) == []
    databases["b"].connect().execute("delete from pgque.dead_letter")
    assert looks.look(*(target(name, database) for name, database in databases.items())).letters == 300
    assert looks.difference([row for row in expected if row["database"] == "a"]) == []


def test_more_than_a_page_is_read_to_its_end(looks: Looks, databases: dict[str, Database]) -> None:
    expected = fill(databases["a"], random.Random(2), "a")
    count = 2 * dead_letter_source.PAGE
    databases["a"].connect().execute(
        "insert into pgque.dead_letter (dl_queue_id, dl_consumer_id, dl_time, dl_reason, ev_id, ev_time)"
        " select queue_id, co_id, '2026-03-01 00:00:00+00', 'again', 1000 + n, now()"
        " from pgque.queue, pgque.consumer, generate_series(1, %s) n"
        " where queue_name = 'mail' and co_name = 'app'",
        (count,),
    )
    one = {"engine": "pgque", "database": "a", "queue": "mail", "consumer": "app", "event_type": None}
    again = {
        "reason": "again",
        "dead_letters": count,
        "first_at": BEGIN,
        "last_at": BEGIN,
        "example": "again",
    }
    looks.look(target("a", databases["a"]))
    assert looks.difference([*expected, one | again]) == []


def test_a_database_that_can_not_be_read_costs_its_rows_and_is_said(
    looks: Looks, databases: dict[str, Database], cluster: Cluster
) -> None:
    """One that isn't there, one without a pack, one that fails after its first page, one that may not."""
    expected = fill(databases["a"], random.Random(3), "a")
    fill(databases["b"], random.Random(4), "b")
    databases["b"].connect().execute(
        "create or replace function pgque.dead_letters(after_id bigint default 0, max_rows int4 default 1000)"
        " returns table (dead_letter_id bigint, queue_name text, consumer_name text, dead_at timestamptz,"
        " event_type text, reason text) language sql stable"
        " as $$ select (1 / (case after_id when 0 then 1 else 0 end))::bigint, 'q', 'c', now(), '', '' $$"
    )
    with new_database(cluster) as bare:
        gone = TargetConfig("gone", "postgresql://me:s3cret@127.0.0.1:1/shop")
        seen = looks.look(
            gone, target("a", databases["a"]), target("b", databases["b"]), target("bare", bare),
            TargetConfig("may not", databases["a"].dsn("outsider")),
        )  # fmt: skip
    assert looks.difference(expected) == []
    assert {name: text.partition(". ")[0] for name, text in seen.failures} == {
        "gone": 'server at "127.0.0.1", port 1: Connection refused',
        "b": "division by zero",
        "bare": "no pack is installed",
        "may not": "user outsider may not call the functions of the pack in schema 'pgque'",
    }
    assert "s3cret" not in str(seen)


def test_no_secret_is_in_a_plan(spark: SparkSession, capsys: pytest.CaptureFixture[str]) -> None:
    rows = dead_letter_source.read(spark, [TargetConfig("x", "postgresql://me:s3cret@127.0.0.1:1/shop")])
    rows.explain(True)
    shown = capsys.readouterr().out
    assert "pgque_dead_letters" in shown
    assert "s3cret" not in shown
    assert "127.0.0.1" not in shown


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ((), "one of the arguments --config --dsn is required"),
        (("--dsn", "=host=db1"), "--dsn: each database needs a name of its own"),
        (("--dsn", "a=host=db1", "--dsn", "a=host=db2"), "--dsn: each database needs a name of its own"),
        (("--dsn", "host=db1 password=s3cret"), "--dsn: the dsn is not a libpq connection string"),
        (("--config", "/nonexistent.yaml"), "/nonexistent.yaml"),
    ],
)
def test_a_wrong_choice_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], words: tuple[str, ...], expected: str
) -> None:
    try:
        code = cli.main(["dead-letters", "--warehouse", str(tmp_path / "w"), *words])
    except SystemExit as exit_:
        code = int(exit_.code or 0)
    err = capsys.readouterr().err
    assert code == 2
    assert expected in err
    assert "s3cret" not in err
