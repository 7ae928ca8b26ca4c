"""However many scrape, the database sees one session."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.exporter.harness import config, running, target
from tests.faults.stage import Stage
from tests.support.processes import wait_for

pytestmark = pytest.mark.slow

SCRAPES = 200


def test_many_parallel_scrapes_leave_one_session(bystander: Stage) -> None:
    with running(config(target(bystander.dsn))) as service, ThreadPoolExecutor(SCRAPES) as pool:
        wait_for(lambda: service.sample("pgque_queue_depth{"), "a first poll")
        answers = list(pool.map(lambda _: service.get("/metrics"), range(SCRAPES)))
        assert {answer.status for answer in answers} == {200}
        assert all("pgque_queue_depth{" in answer.text for answer in answers)
        assert len(bystander.sessions()) == 1
    wait_for(lambda: bystander.sessions() == [], "none is left")
