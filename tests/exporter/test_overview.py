"""The snapshot as people see it: queues, and what is told of other things beside them."""

from __future__ import annotations

from pgque_exporter.overview import queues
from tests.exporter.harness import ToyPack, poll
from tests.support.database import Database


def test_what_has_health_alone_is_no_queue(database: Database, toy: ToyPack) -> None:
    toy.add("pgque.queue.depth", 3, queue="orders")
    toy.add_health("orders", "ticker", "warning", "late")
    toy.add_health("system", "scheduler", "critical", "the job is gone")
    snapshot = poll(database.dsn()).snapshot
    [queue] = queues(snapshot)
    assert (queue.name, queue.status) == ("orders", "warning")
    assert [check.check for check in queue.checks] == ["ticker"]
    assert [check.queue for check in snapshot.checks if check not in queue.checks] == ["system"]
