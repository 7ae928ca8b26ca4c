"""Random histories of queues: after every step the contract answers what the oracle does."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import psycopg
import pytest
from psycopg.rows import dict_row

from pgque_exporter.demo.cluster import Cluster
from tests.observability.compare import disagreements, undelivered
from tests.observability.history import STEPS, History
from tests.support.database import Database, new_database
from tests.support.observed import Connection

HISTORIES = int(os.environ.get("PGQUE_ORACLE_HISTORIES", "20"))
SEEDS = [int(os.environ["PGQUE_ORACLE_SEED"])] if "PGQUE_ORACLE_SEED" in os.environ else range(HISTORIES)


@dataclass(frozen=True)
class Disagreement:
    """What was found at the end of a history, and the numbers of the steps that led there."""

    steps: list[int]
    log: list[str]
    complaints: list[str]

    def __str__(self) -> str:
        return "\n  ".join([
            "after these steps:", *self.log, "the contract and the oracle disagree:", *self.complaints
        ])


@dataclass(frozen=True)
class Stage:
    """A database in which one history is played after the other."""

    db: Connection
    dsn: str

    @contextmanager
    def history(self, seed: int) -> Iterator[History]:
        history = History(self.db, self.dsn, seed)
        try:
            yield history
        finally:
            history.end()

    def play(self, seed: int, steps: Sequence[int], *, only_end: bool = False) -> Disagreement | None:
        """Take steps of a seed until contract or engine disagree with the oracle."""
        with self.history(seed) as history:
            for number, step in enumerate(steps, 1):
                history.take(step)
                if only_end and number < len(steps):
                    continue
                complaints = disagreements(self.db, turn=step)
                if step % 8 == 7:
                    complaints += undelivered(self.db)
                if complaints:
                    return Disagreement(list(steps[:number]), history.log, complaints)
        return None

    def shortened(self, seed: int, found: Disagreement) -> Disagreement:
        """The same without the steps that don't matter."""
        for step in reversed(found.steps[:-1]):
            shorter = self.play(seed, [kept for kept in found.steps if kept != step], only_end=True)
            found = shorter or found
        return found


@contextmanager
def stage_in(database: Database) -> Iterator[Stage]:
    dsn = database.dsn()
    with psycopg.connect(dsn, autocommit=True, row_factory=dict_row) as db:
        yield Stage(db, dsn)


@pytest.fixture(scope="module")
def stage(cluster: Cluster, pack_template: str) -> Iterator[Stage]:
    with new_database(cluster, template=pack_template) as database, stage_in(database) as stage:
        yield stage


def test_a_wrong_answer_is_found_and_told_by_the_steps_that_matter(
    cluster: Cluster, pack_template: str
) -> None:
    with new_database(cluster, template=pack_template) as database, stage_in(database) as stage:
        answer = stage.db.execute("select pg_get_functiondef('pgque.in_flight(text)'::regprocedure) as sql")
        (right,) = answer.fetchall()
        wrong = right["sql"].replace("s.sub_batch,", "s.sub_batch + 1,")
        stage.db.execute(wrong.encode())

        seed, found = next((seed, found) for seed in range(20) if (found := stage.play(seed, range(STEPS))))
        told = stage.shortened(seed, found)

        assert len(told.log) <= 3
        assert told.complaints
        assert all(line.startswith("in_flight: ") for line in told.complaints)


@pytest.mark.parametrize("seed", SEEDS)
def test_contract_agrees_with_the_oracle_after_every_step(stage: Stage, seed: int) -> None:
    found = stage.play(seed, range(STEPS))
    if found is not None:
        pytest.fail(f"PGQUE_ORACLE_SEED={seed}: {stage.shortened(seed, found)}", pytrace=False)
