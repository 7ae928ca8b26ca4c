"""Cooperative groups as the engine itself makes them, through the eyes of the pack."""

from __future__ import annotations

from tests.support.instrumentation import counts, histogram
from tests.support.observed import Queue, Row, one

GROUP = "crew"


def take(queue: Queue, member: str, *, dead: str | None = None) -> list[Row]:
    return queue.db.execute(
        "select * from pgque.receive_coop(%s, %s, %s, 1000000, %s)", (queue.name, GROUP, member, dead)
    ).fetchall()


def silence(queue: Queue) -> None:
    """Nobody of the group has been heard of for an hour."""
    queue.db.execute("update pgque.subscription set sub_active = sub_active - interval '1 hour'")


def nack(queue: Queue, member: str, message: Row) -> None:
    queue.db.execute(
        "select pgque.nack(%s, m, '1 hour', 'boom') from pgque.receive_coop(%s, %s, %s, 1000000) m"
        " where m.msg_id = %s",
        (message["batch_id"], queue.name, GROUP, member, message["msg_id"]),
    )


def test_a_group_at_work_is_one_consumer_with_all_that_its_members_hold(queue: Queue) -> None:
    for member in ("a", "b", "c"):
        assert take(queue, member) == []
    for count in (600, 300, 100):
        queue.send_and_tick(count)
    held = take(queue, "a")
    take(queue, "b")
    assert queue.stats().items() >= {"consumers": 1, "depth": 1000}.items()
    assert queue.consumer(GROUP)["pending_events"] == 1000
    assert queue.metrics()["pgque.consumer.open_batch_events", GROUP] == 900
    assert [row["consumer_name"] for row in queue.ask("in_flight('q')")] == ["crew.a", "crew.b"]
    assert [row["pending_events"] for row in queue.ask("exact_backlog('q')")] == [1000]
    assert queue.troubles() == {}

    queue.finish(held)
    assert queue.consumer(GROUP)["pending_events"] == 400
    queue.wait(7200)
    assert [row["consumer_name"] for row in queue.ask("stuck_consumers('1 hour')")] == [GROUP]
    assert one(queue.db, "select count(*) as n from pgque.consumer_stats()")["n"] == 1


def test_a_batch_taken_over_is_finished_once(counted: Queue) -> None:
    take(counted, "a")
    take(counted, "b")
    counted.send_and_tick(5)
    before = take(counted, "a")
    silence(counted)
    after = take(counted, "b", dead="1 minute")
    assert counts(counted.db) == {}
    nack(counted, "b", after[0])
    counted.finish(before)  # too late: it is no longer the other's
    counted.finish(after)
    assert counts(counted.db) == {("q", GROUP, "acked"): 5, ("q", GROUP, "nacked"): 1}
    assert histogram(counted.db, "pgque.batch.size", GROUP)[1:] == (5, 1)


def test_a_member_that_leaves_in_the_middle_of_its_work_has_finished_nothing(counted: Queue) -> None:
    counted.configure("max_retries", "0")
    take(counted, "a")
    counted.send_and_tick(3)
    take(counted, "a")
    counted.db.execute("select pgque.unregister_subconsumer('q', 'crew', 'a', 1)")
    assert counts(counted.db) == {("q", GROUP, "dead_lettered"): 3}
    assert histogram(counted.db, "pgque.batch.size", GROUP)[1:] == (0, 0)


def test_windows_passed_over_are_no_work(counted: Queue) -> None:
    take(counted, "a")
    for _ in range(3):
        counted.force_tick()
        counted.tick()
    assert take(counted, "a") == []
    assert counts(counted.db) == {}
    assert counted.consumer(GROUP)["pending_events"] == 0
