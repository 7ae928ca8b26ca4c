"""Queues made with their settings, and paused."""

from __future__ import annotations

import psycopg
import pytest

from tests.support.database import Connection, Database
from tests.support.queue import consume, rows, send, value


@pytest.fixture
def db(engine_database: Database) -> Connection:
    return engine_database.connect()


def test_a_queue_is_made_with_its_settings(db: Connection) -> None:
    make = "select pgque.create_queue('orders', %s::jsonb)"
    given = (
        '{"max_retries": 10, "rotation_period": "4 hours", "ticker_max_count": 1000, "event_ttl": "7 days",'
        ' "ticker_max_lag": "5 seconds", "ticker_idle_period": "2 minutes", "ticker_paused": true}'
    )
    settings = (
        "select queue_max_retries, queue_rotation_period::text, queue_ticker_max_count,"
        " queue_event_ttl::text, queue_ticker_max_lag::text, queue_ticker_idle_period::text,"
        " queue_ticker_paused from pgque.queue"
    )
    assert value(db, make, given) == 1
    assert rows(db, settings) == [(10, "04:00:00", 1000, "7 days", "00:00:05", "00:02:00", True)]
    # A queue that is there gets what is given, and null is the default.
    assert value(db, make, '{"max_retries": null, "ticker_paused": false}') == 0
    assert rows(db, settings) == [(None, "04:00:00", 1000, "7 days", "00:00:05", "00:02:00", False)]
    assert value(db, make, "{}") == value(db, make, None) == 0


@pytest.mark.parametrize(
    "bad", ['{"max_retries": 3, "colour": "red"}', '{"max_retries": -1}', "[1]", "7", '"max_retries"']
)
def test_a_mistake_in_the_settings_makes_no_queue(db: Connection, bad: str) -> None:
    with pytest.raises(psycopg.Error):
        db.execute("select pgque.create_queue('orders', %s::jsonb)", (bad,))
    assert rows(db, "select from pgque.queue") == []


def test_the_limit_of_names_holds_with_settings_too(db: Connection) -> None:
    assert value(db, "select pgque.create_queue(%s, '{}')", "é" * 28) == 1
    with pytest.raises(psycopg.Error, match="too long: 58 bytes, at most 57"):
        db.execute("select pgque.create_queue(%s, '{}')", ("é" * 29,))


def test_a_paused_queue_keeps_what_is_sent_until_it_goes_on(db: Connection) -> None:
    value(db, "select pgque.create_queue('orders', '{\"ticker_max_count\": 1}')")
    value(db, "select pgque.subscribe('orders', 'app')")
    value(db, "select pgque.pause_queue('orders')")
    send(db, "orders", "x")
    assert value(db, "select pgque.ticker()") == 0
    assert consume(db, "orders", "app") == []
    value(db, "select pgque.resume_queue('orders')")
    assert value(db, "select pgque.ticker()") == 1
    assert consume(db, "orders", "app") == ["x"]
    for call in ("pause_queue", "resume_queue"):
        with pytest.raises(psycopg.Error, match="queue not found: nowhere"):
            db.execute(f"select pgque.{call}('nowhere')".encode())
