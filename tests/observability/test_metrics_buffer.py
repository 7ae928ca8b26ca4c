"""Metrics kept in the database: whole collections, a bounded past, and few who may touch them."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any, LiteralString

import psycopg
import pytest

from tests.support.database import PACK_INSTALL, Database
from tests.support.observed import Connection, Queue, one

PACK_UNINSTALL = PACK_INSTALL.with_name("uninstall.sql")


def buffer_metrics(db: Connection) -> int:
    return int(one(db, "select pgque.buffer_metrics() as appended")["appended"])


def lay(db: Connection, count: int, *, hours_ago: float) -> None:
    """So many rows of an earlier collection."""
    db.execute(
        "insert into pgque.metrics_buffer"
        " select now() - make_interval(secs => %s), 'pgque.queue.depth', 'gauge', 0, '{\"queue\": \"q\"}'"
        " from generate_series(1, %s)",
        (hours_ago * 3600, count),
    )


def old_rows(db: Connection) -> int:
    query: LiteralString = (
        "select count(*) as rows from pgque.metrics_buffer where collected_at < now() - interval '1 minute'"
    )
    return int(one(db, query)["rows"])


def test_a_collection_is_what_the_contract_says_under_one_time(queue: Queue) -> None:
    queue.subscribe("app")
    queue.send_and_tick(5)
    with queue.db.transaction():
        appended = buffer_metrics(queue.db)
        said = queue.db.execute(
            "select now() as collected_at, metric_name, metric_type, value, labels from pgque.otel_metrics()"
        ).fetchall()
    kept = queue.db.execute("select * from pgque.metrics_buffer").fetchall()
    assert sorted(map(str, kept)) == sorted(map(str, said))
    assert appended == len(kept) > 10


def test_collections_line_up(queue: Queue) -> None:
    queue.subscribe("app")
    for count in (1, 2):
        queue.send_and_tick(count)
        buffer_metrics(queue.db)
    depths = queue.db.execute(
        "select value from pgque.metrics_buffer where metric_name = 'pgque.queue.depth' order by collected_at"
    ).fetchall()
    assert [row["value"] for row in depths] == [1, 3]


def test_what_is_older_than_asked_for_goes(queue: Queue) -> None:
    lay(queue.db, 3, hours_ago=23)
    lay(queue.db, 5, hours_ago=25)
    buffer_metrics(queue.db)
    assert old_rows(queue.db) == 3
    queue.db.execute("select pgque.buffer_metrics(keep => '1 hour')")
    assert old_rows(queue.db) == 0


def test_a_large_past_goes_bit_by_bit_oldest_first(queue: Queue) -> None:
    for hours_ago in (30, 50, 40):
        lay(queue.db, 8_000, hours_ago=hours_ago)
    left = []
    for _ in range(3):
        buffer_metrics(queue.db)
        left.append(old_rows(queue.db))
    assert left == [14_000, 4_000, 0]
    lay(queue.db, 8_000, hours_ago=30)
    lay(queue.db, 8_000, hours_ago=50)
    buffer_metrics(queue.db)
    oldest = one(queue.db, "select now() - min(collected_at) as age from pgque.metrics_buffer")["age"]
    assert oldest < timedelta(hours=31)


@pytest.mark.parametrize("keep", [None, "0", "-1 hour"])
def test_to_keep_nothing_is_refused(queue: Queue, keep: str | None) -> None:
    lay(queue.db, 1, hours_ago=1)
    with pytest.raises(psycopg.errors.InvalidParameterValue, match="keep must be positive"):
        queue.db.execute("select pgque.buffer_metrics(%s)", (keep,))
    assert old_rows(queue.db) == 1


def test_calls_at_the_same_time_do_not_wait_for_each_other(
    pack_database: Database, queue: Queue
) -> None:
    lay(queue.db, 100, hours_ago=30)
    other = pack_database.connect(autocommit=False)
    other.execute("select pgque.buffer_metrics()")
    queue.db.execute("set lock_timeout = '1 s'")
    assert buffer_metrics(queue.db) > 0
    other.commit()
    assert old_rows(queue.db) == 0


def test_only_an_operator_fills_it_and_the_monitor_reads_it(queue: Queue) -> None:
    db = queue.db
    allowed = {
        "pgque_admin": {"call", "select"},
        "pgque_monitor": {"select"},
        "pgque_reader": set[str](),
        "pgque_writer": set[str](),
    }
    statements: dict[str, LiteralString] = {
        "call": "select pgque.buffer_metrics()",
        "select": "select from pgque.metrics_buffer",
        "insert": "insert into pgque.metrics_buffer values (now(), 'x', 'gauge', 1, '{}')",
        "update": "update pgque.metrics_buffer set value = 1",
        "delete": "delete from pgque.metrics_buffer",
        "truncate": "truncate pgque.metrics_buffer",
    }
    for role, rights in allowed.items():
        db.execute(f"set role {role}".encode())
        for name, statement in statements.items():
            if name in rights:
                db.execute(statement)
            else:
                with pytest.raises(psycopg.errors.InsufficientPrivilege):
                    db.execute(statement)
        db.execute("reset role")
    for kind in ("select", "insert", "update", "delete", "truncate"):
        query: LiteralString = "select has_table_privilege('public', 'pgque.metrics_buffer', %s) as may"
        assert one(db, query, kind) == {"may": False}


def run(db: Connection, path: Path) -> None:
    db.execute(path.read_text(encoding="utf-8").encode())


def test_installing_again_keeps_what_was_collected_and_uninstalling_does_not(queue: Queue) -> None:
    lay(queue.db, 3, hours_ago=2)
    run(queue.db, PACK_INSTALL)
    assert old_rows(queue.db) == 3
    assert buffer_metrics(queue.db) > 0
    run(queue.db, PACK_UNINSTALL)
    found = one(
        queue.db,
        "select to_regclass('pgque.metrics_buffer') as table, to_regproc('pgque.buffer_metrics') as function",
    )
    assert found == {"table": None, "function": None}


def test_the_cost_does_not_grow_with_what_is_kept(queue: Queue) -> None:
    def buffers() -> int:
        """Pages that one call touches, once the session's caches are filled and its plans are generic."""
        query: LiteralString = (
            "explain (analyze, buffers, timing off, format json) select pgque.buffer_metrics()"
        )
        for _ in range(7):
            queue.db.execute(query)
        plan: Any = one(queue.db, query)["QUERY PLAN"][0]["Plan"]
        return int(plan["Shared Hit Blocks"] + plan["Shared Read Blocks"])

    lay(queue.db, 1_000, hours_ago=1)
    queue.db.execute("vacuum analyze pgque.metrics_buffer")
    few = buffers()
    lay(queue.db, 200_000, hours_ago=2)
    queue.db.execute("vacuum analyze pgque.metrics_buffer")
    many = buffers()
    assert many < few * 1.3, (few, many, "a deeper index is all there should be")
