"""One queue of the shop, step by step."""

from __future__ import annotations

import random
from collections import deque

from pgque_pipeline.demo.consumers import Consumer, Stream
from pgque_pipeline.demo.plan import HOUR, Plan, QueuePlan
from pgque_pipeline.demo.traffic import Traffic


class Queue:
    """The state of a queue after each step.

    sent          events since the beginning; `ticked` of them can be taken
    throughput    events a second in the last step
    tick_age, rotation_age  seconds
    dead_letters  those that are kept; `dead_of_hour` came in the last hour
    """

    def __init__(self, world: Plan, plan: QueuePlan, seed: int, begin: int) -> None:
        self.plan = plan
        chance = random.Random(f"{seed}:{plan.name}")
        self._world = world
        self._chance = chance
        self._traffic = Traffic(plan, chance)
        self._stream = Stream([float(begin)], [0.0])
        self.consumers = [Consumer(consumer, plan, chance) for consumer in plan.consumers]
        self.ticked = 0
        self.throughput = self.tick_age = 0.0
        self._rotated = begin
        self.rotation_age = 0.0
        self.dead_letters = self.replayed = self.purged = 0
        self._dead: deque[tuple[int, int]] = deque()

    @property
    def sent(self) -> int:
        """Events since the beginning."""
        return int(self._stream.counts[-1])

    @property
    def depth(self) -> int:
        """Events that some consumer hasn't got."""
        return self.sent - min(consumer.acked for consumer in self.consumers)

    @property
    def retry_waiting(self) -> int:
        """Events that wait for another try."""
        return sum(consumer.retrying for consumer in self.consumers)

    @property
    def dead_of_hour(self) -> int:
        """Events that died within the last hour."""
        return sum(count for _, count in self._dead)

    def oldest_age(self, moment: int) -> float:
        """Seconds since the oldest event was sent that somebody hasn't got; 0 if there is none."""
        first = min(consumer.acked for consumer in self.consumers)
        return max(0.0, moment - self._stream.time_of(first)) if self.depth else 0.0

    def step(self, moment: int, seconds: int) -> None:
        """Go on to `moment`, `seconds` after the last."""
        fresh = self._traffic.step(moment, seconds)
        revived = 0
        if any(moment - seconds < at <= moment for at in self.plan.replays):
            revived, self.dead_letters = self.dead_letters, 0
            self.replayed += revived
        if any(moment - seconds < at <= moment for at in self.plan.purges):
            self.purged += self.dead_letters
            self.dead_letters = 0
        self._stream.add(moment, fresh + revived)
        self.throughput = (fresh + revived) / seconds
        stopped = next((span for span in self._world.stopped if moment in span), None)
        if stopped is None:
            self.ticked = self.sent
            self.tick_age = self._chance.uniform(0, 1)
        else:
            self.tick_age = float(moment - stopped.since)
        for consumer in self.consumers:
            consumer.step(self._stream, self.ticked, moment, seconds)
        self._rotate(moment)
        self._bury(moment)

    def recount(self) -> None:
        """The instrumentation is installed anew."""
        self.replayed = self.purged = 0
        for consumer in self.consumers:
            consumer.recount()

    def _rotate(self, moment: int) -> None:
        due = moment - self._rotated >= self.plan.rotation
        if due and max(consumer.lag for consumer in self.consumers) < self.plan.rotation:
            self._rotated = moment
        self.rotation_age = moment - self._rotated + self._chance.uniform(0, 1)

    def _bury(self, moment: int) -> None:
        dead = sum(consumer.dead for consumer in self.consumers)
        self.dead_letters += dead
        self._dead.append((moment, dead))
        while self._dead[0][0] <= moment - HOUR:
            self._dead.popleft()
