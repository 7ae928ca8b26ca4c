"""Somebody who works on queues, as a program of its own that can be killed.

python -m tests.alerts.worker tick    DSN QUEUE...           ticks the queues, and does the upkeep
python -m tests.alerts.worker send    DSN QUEUE...           sends five events a second to each
python -m tests.alerts.worker consume DSN QUEUE CONSUMER     takes and finishes batches
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path

import psycopg

from tests.support.database import Connection
from tests.support.processes import Process


def tick(db: Connection, *queues: str) -> None:
    for queue in queues:
        db.execute("select pgque.ticker(%s)", (queue,))
    db.execute("select pgque.maint()")
    db.execute("select pgque.maint_rotate_tables_step2()")


def send(db: Connection, *queues: str) -> None:
    for queue in queues:
        db.execute("select pgque.send(%s, '{}'::jsonb)", (queue,))


def consume(db: Connection, queue: str, consumer: str) -> None:
    rows = db.execute("select batch_id from pgque.receive(%s, %s, 1000000)", (queue, consumer)).fetchall()
    if rows:
        db.execute("select pgque.ack(%s)", rows[0])


WORK: dict[str, Callable[..., None]] = {"tick": tick, "send": send, "consume": consume}
PERIOD = 0.2  # seconds


def worker(folder: Path, work: str, dsn: str, *arguments: str) -> Process:
    """One of them, not started."""
    log = folder / f"{work}-{'-'.join(arguments)}.log"
    return Process([sys.executable, "-m", "tests.alerts.worker", work, dsn, *arguments], log=log)


def main(work: str, dsn: str, *arguments: str) -> None:
    with psycopg.connect(dsn, autocommit=True) as db:
        while True:
            WORK[work](db, *arguments)
            time.sleep(PERIOD)


if __name__ == "__main__":
    main(*sys.argv[1:])
