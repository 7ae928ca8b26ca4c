"""On a hot standby of a server with PgQ its pack answers too."""

from __future__ import annotations

from dataclasses import replace

import psycopg
from psycopg.rows import dict_row

from pgque_exporter.demo.cluster import Cluster
from tests.support.observed import CONTRACT
from tests.support.pgq import PgqQueue
from tests.support.standby import Standby


def test_every_function_answers_as_on_the_primary(pgq_server: Cluster, queue: PgqQueue) -> None:
    queue.subscribe("app")
    queue.send_and_tick(20)
    messages = queue.receive("app")
    queue.nack("app", messages[0])
    queue.finish(messages)
    queue.send_and_tick(30)
    queue.send(7)
    queue.wait(4000)

    with Standby(pgq_server) as standby:
        standby.catch_up()
        dsn = standby.dsn(queue.db.info.dbname)
        with psycopg.connect(dsn, autocommit=True, row_factory=dict_row) as following:
            following.execute("set role pgque_monitor")
            there = replace(queue, db=following)
            for call in CONTRACT:
                assert len(there.ask(call)) == len(queue.ask(call)), call
            assert there.stats()["depth"] == queue.stats()["depth"] == 37
            assert there.metrics()[("pgque.message.retry_waiting", None)] == 1
            assert there.ask("exact_backlog('q')") == queue.ask("exact_backlog('q')")
            assert there.health() == queue.health()
            assert {"ticker_running", "retry_overdue"} <= there.troubles().keys()
