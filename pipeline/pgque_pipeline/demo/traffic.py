"""How many events a shop sends: days and nights, weekends, Monday mornings, and chance."""

from __future__ import annotations

import math
import random
from datetime import UTC, datetime

from pgque_pipeline.demo.plan import QueuePlan

_NIGHT = 0.25
_MORNING, _EVENING = 6.0, 23.0
_WEEKEND = 0.55
# What people have ordered over the weekend and look after on Monday, hour by hour.
_MONDAY = {8: 1.35, 9: 1.5, 10: 1.3}
# The chance of a step depends on the chance of the one before.
_MEMORY, _UNREST = 0.9, 0.025


class Traffic:
    """The events of one queue, step by step."""

    def __init__(self, plan: QueuePlan, chance: random.Random) -> None:
        self._plan = plan
        self._chance = chance
        self._mood = 0.0

    def step(self, moment: int, seconds: int) -> int:
        """Events sent in the `seconds` before `moment`."""
        self._mood = self._mood * _MEMORY + self._chance.gauss(0, _UNREST)
        surge = next((span.amount for span in self._plan.surges if moment in span), 1.0)
        rate = self._plan.rate * shape(moment) * surge * math.exp(self._mood)
        return int(rate * seconds + self._chance.random())


def shape(moment: int) -> float:
    """Of the rate on a usual day at noon, how much there is at a moment in Unix seconds."""
    local = datetime.fromtimestamp(moment, UTC)
    hour = local.hour + local.minute / 60
    day = max(0.0, math.sin(math.pi * (hour - _MORNING) / (_EVENING - _MORNING)))
    level = _NIGHT + (1 - _NIGHT) * day
    if local.weekday() >= 5:
        level *= _WEEKEND
    return level * (_MONDAY.get(local.hour, 1.0) if local.weekday() == 0 else 1.0)
