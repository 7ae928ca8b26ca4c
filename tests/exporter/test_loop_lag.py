"""How late the event loop is."""

from __future__ import annotations

import asyncio
import time

from pgque_exporter.loop_lag import LoopLag
from tests.exporter.harness import config, running
from tests.support.database import wait_until


def test_a_loop_that_is_held_up_is_seen() -> None:
    seen: list[float] = []

    async def run() -> None:
        lag = LoopLag(seen.append)
        lag.start()
        await asyncio.sleep(0.1)
        time.sleep(0.5)  # noqa: ASYNC251 - that is the point
        async with asyncio.timeout(60):
            while len(seen) < 2:  # noqa: ASYNC110 - there is no event for it
                await asyncio.sleep(0.1)
        lag.stop()
        before = len(seen)
        await asyncio.sleep(1.5)
        assert len(seen) == before

    asyncio.run(run())
    assert max(seen) > 0.4
    assert min(seen) >= 0


def test_it_is_on_the_page() -> None:
    with running(config()) as service:
        count = "\npgque_exporter_event_loop_lag_seconds_count "
        wait_until(lambda: count in service.get("/metrics").text, what="the first look at the loop")
