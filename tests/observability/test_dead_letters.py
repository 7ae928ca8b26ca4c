"""What consumers gave up on, page by page, and never a payload."""

from __future__ import annotations

from tests.support.observed import Queue

COLUMNS = ["dead_letter_id", "queue_name", "consumer_name", "dead_at", "event_type", "reason"]


def bury(queue: Queue, count: int, reason: str | None) -> None:
    """Dead letters of the consumer `app`, with payloads that must not be seen."""
    queue.run(
        "insert into pgque.dead_letter"
        " (dl_queue_id, dl_consumer_id, dl_reason, ev_id, ev_time, ev_type, ev_data, ev_extra1)"
        " select q.queue_id, c.co_id, %s, n, now(), 'order', 'SECRET', 'SECRET' from pgque.queue q"
        " cross join pgque.consumer c cross join generate_series(1, %s) n"
        " where q.queue_name = 'q' and c.co_name = 'app'",
        reason, count,
    )  # fmt: skip


def test_each_is_on_one_page(queue: Queue) -> None:
    queue.subscribe("app")
    bury(queue, 7, "no such order")
    queue.run("set role pgque_monitor")
    pages, after = [], 0
    while page := queue.ask(f"dead_letters({after}, 3)"):
        pages.append(len(page))
        assert all(list(row) == COLUMNS for row in page)
        assert {
            (row["queue_name"], row["consumer_name"], row["event_type"], row["reason"]) for row in page
        } == {("q", "app", "order", "no such order")}
        assert all(row["dead_letter_id"] > after for row in page)
        after = page[-1]["dead_letter_id"]
    assert pages == [3, 3, 1]
    assert "SECRET" not in str(queue.ask("dead_letters()"))
    assert queue.ask("dead_letters(0, -1)") == []


def test_a_page_and_a_reason_have_their_limits(queue: Queue) -> None:
    queue.subscribe("app")
    bury(queue, 10001, "r" * 300)
    assert len(queue.ask("dead_letters(0, null)")) == 10000
    assert {len(row["reason"]) for row in queue.ask("dead_letters(0, 20000)")} == {200}


def test_a_reason_may_be_unknown(queue: Queue) -> None:
    queue.subscribe("app")
    bury(queue, 1, None)
    assert [row["reason"] for row in queue.ask("dead_letters()")] == [None]
