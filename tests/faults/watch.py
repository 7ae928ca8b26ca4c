"""Two databases polled side by side: one that is made to fail, and a bystander."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Self

from pgque_exporter.connection import FailureKind
from pgque_exporter.redaction import Redactor
from pgque_exporter.target import PollOutcome, Target
from tests.exporter.harness import CATALOGUE, target
from tests.support.processes import wait_for

INTERVAL = 0.25  # seconds
TIMEOUT = 0.75


@dataclass(frozen=True)
class Poll:
    """A poll that has ended; clocks are monotonic seconds."""

    begun: float
    ended: float
    failure: FailureKind | None
    points: int
    skipped: int


@dataclass
class Polls:
    """What became of the polls of one database, in order."""

    polls: list[Poll] = field(default_factory=list)

    def note(self, outcome: PollOutcome) -> None:
        ended = time.monotonic()
        points = outcome.result.snapshot.points if outcome.result is not None else 0
        self.polls.append(Poll(ended - outcome.duration, ended, outcome.failure, points, outcome.skipped))

    def since(self, clock: float) -> list[Poll]:
        """Polls that began then or later."""
        return [poll for poll in self.polls if poll.begun >= clock]

    def wait(self, enough: Callable[[list[Poll]], bool], what: str, *, since: float) -> list[Poll]:
        """Those since then, as soon as they are enough."""
        wait_for(lambda: enough(self.since(since)), what, timeout=30)
        return self.since(since)


class Watch:
    """Polls both databases in a thread while the context is open."""

    def __init__(self, victim: str, bystander: str, **options: Any) -> None:
        self.victim = Polls()
        self.bystander = Polls()
        self._dsns = {"victim": victim, "bystander": bystander}
        self._options = {"interval": INTERVAL, "timeout": TIMEOUT, **options}
        self._loop = asyncio.new_event_loop()
        self._stop = asyncio.Event()
        self._thread = threading.Thread(target=self._run)
        self._failed: list[BaseException] = []

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(20)
        if self._failed:
            raise self._failed[0]

    def _run(self) -> None:
        try:
            self._loop.run_until_complete(self._poll())
            self._loop.run_until_complete(self._loop.shutdown_default_executor())
        except BaseException as error:  # noqa: BLE001 - raised again in the test's own thread
            self._failed.append(error)
        finally:
            self._loop.close()

    async def _poll(self) -> None:
        await asyncio.gather(
            *(
                Target(target(dsn, name, **self._options), CATALOGUE, Redactor(), self.note).run(self._stop)
                for name, dsn in self._dsns.items()
            )
        )

    def note(self, outcome: PollOutcome) -> None:
        """Take a poll that has ended; called in the thread that polls."""
        polls = self.victim if outcome.state.name == "victim" else self.bystander
        polls.note(outcome)
