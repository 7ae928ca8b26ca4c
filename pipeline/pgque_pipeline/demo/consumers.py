"""One consumer, step by step: how far it is, how late, what fails, and how long its batches take."""

from __future__ import annotations

import math
import random
from bisect import bisect_right
from dataclasses import dataclass, field

from pgque_pipeline.demo.plan import ConsumerPlan, QueuePlan, Span

# As the pack's instrumentation has them; seconds, and events.
PROCESSING_BOUNDS = (0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0, 30.0, 60.0, 300.0, 1800.0)
SIZE_BOUNDS = (1.0, 10.0, 50.0, 100.0, 500.0, 1000.0, 5000.0, 10000.0, 100000.0)
_TICK = 1  # seconds between two batches of a consumer that keeps up
_SPREAD = 0.5  # of the logarithm of a batch's duration
_TRIES = 3


@dataclass
class Stream:
    """All events of a queue: how many had been sent by when; straight lines in between."""

    times: list[float]
    counts: list[float]

    def add(self, moment: int, count: int) -> None:
        """`count` more events by `moment`."""
        self.times.append(moment)
        self.counts.append(self.counts[-1] + count)

    def sent_by(self, moment: float) -> float:
        """Events sent by a moment within what is known."""
        return _between(self.times, self.counts, moment)

    def time_of(self, number: float) -> float:
        """When that many events had been sent: when the next one came."""
        return _between(self.counts, self.times, number)


def _between(xs: list[float], ys: list[float], x: float) -> float:
    after = bisect_right(xs, x)
    if after == len(xs):
        return ys[-1]
    left, right = xs[after - 1], xs[after]
    return ys[after - 1] + (ys[after] - ys[after - 1]) * (x - left) / (right - left)


@dataclass
class Histogram:
    """Observations by bucket."""

    bounds: tuple[float, ...]
    counts: list[int] = field(default_factory=list)
    total: float = 0.0

    def __post_init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        """Begin anew."""
        self.counts, self.total = [0] * (len(self.bounds) + 1), 0.0


@dataclass
class Counted:
    """What the instrumentation has counted of a consumer."""

    nacked: int = 0
    redelivered: int = 0
    dead_lettered: int = 0


class Consumer:
    """The state of a consumer after each step.

    acked     events that it is done with
    lag       seconds since the first event was sent that it hasn't got; 0 if there is none
    idle      seconds since it did something
    open_events, open_age  of the batch that it works on
    dead      events that died in the last step
    """

    def __init__(self, plan: ConsumerPlan, queue: QueuePlan, chance: random.Random) -> None:
        self.name = plan.name
        self._plan = plan
        self._queue = queue
        self._chance = chance
        self.acked = 0
        self.lag = self.idle = self.open_age = 0.0
        self.open_events = self.dead = self.retrying = 0
        self.counted = Counted()
        self.processing = Histogram(PROCESSING_BOUNDS)
        self.sizes = Histogram(SIZE_BOUNDS)

    def step(self, stream: Stream, ticked: int, moment: int, seconds: int) -> None:
        """Work for the `seconds` before `moment`; `ticked` events can be taken."""
        before = self.acked
        hanging = next((span for span in self._plan.hangs if moment in span), None)
        falling = next((span for span in self._plan.falls if moment in span), None)
        if hanging is None:
            self.acked = max(before, min(ticked, self._reached(stream, ticked, moment, seconds, falling)))
        done = self.acked - before
        pending = ticked - self.acked
        self.lag = max(0.0, moment - stream.time_of(self.acked)) if pending > 0 else 0.0
        slow = 1.0 if falling is None else 2.5
        self._batches(done, seconds, self._plan.batch * slow * math.exp(self._chance.gauss(0, 0.1)))
        self._failures(done, moment, seconds)
        if hanging is not None:
            self.idle = self.open_age = float(moment - hanging.since)
        else:
            self.idle = self._chance.uniform(0, _TICK) if pending else self._chance.uniform(0, 2 * _TICK)
            self.open_age = min(self.idle, self._plan.batch * slow)

    def recount(self) -> None:
        """The instrumentation is installed anew."""
        self.counted = Counted()
        self.processing.clear()
        self.sizes.clear()

    def _reached(self, stream: Stream, ticked: int, moment: int, seconds: int, fall: Span | None) -> int:
        if fall is not None:
            pace = 1 - fall.amount * self._chance.uniform(-2, 4)
            return int(stream.sent_by(stream.time_of(self.acked) + pace * seconds))
        able = self.acked + int(self._plan.speed * self._queue.rate * seconds)
        # What came since the last tick or two is still on its way.
        fresh = stream.sent_by(moment) - stream.sent_by(moment - self._chance.uniform(0.5, 2) * _TICK)
        return min(able, int(ticked - fresh))

    def _batches(self, done: int, seconds: int, median: float) -> None:
        number = min(done, max(1, seconds // _TICK if median < _TICK else int(seconds / median)))
        if number == 0:
            return
        size = done / number
        self.open_events = max(1, round(size))
        seen = 0
        for index, bound in enumerate((*self.processing.bounds, math.inf)):
            below = round(number * _normal(math.log(bound / median) / _SPREAD))
            self.processing.counts[index] += below - seen
            seen = below
        self.processing.total += number * median * math.exp(_SPREAD**2 / 2)
        self.sizes.counts[sum(bound < size for bound in SIZE_BOUNDS)] += number
        self.sizes.total += done

    def _failures(self, done: int, moment: int, seconds: int) -> None:
        share = sum(span.amount for span in self._plan.rejected if moment in span)
        retried = self._some(done * (1 - share) * self._plan.retried)
        rejected = self._some(done * share)
        # Of those that fail by chance the odd one does so at every try.
        unlucky = self._some(retried * self._plan.retried ** (_TRIES - 1))
        self.dead = rejected + unlucky
        self.counted.nacked += retried + _TRIES * rejected + (_TRIES - 1) * unlucky
        self.counted.redelivered += retried + (_TRIES - 1) * rejected + (_TRIES - 2) * unlucky
        self.counted.dead_lettered += self.dead
        self.retrying = self._some((retried + rejected) * 60 / seconds)

    def _some(self, expected: float) -> int:
        return int(expected + self._chance.random()) if expected else 0


def _normal(x: float) -> float:
    """Share of a standard normal distribution below x."""
    return (1 + math.erf(x / math.sqrt(2))) / 2
