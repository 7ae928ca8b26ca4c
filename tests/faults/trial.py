"""What every fault has to show."""

from __future__ import annotations

import time
from collections.abc import Callable
from itertools import pairwise

from tests.faults.faults import Cost, Fault
from tests.faults.stage import Stage
from tests.faults.watch import Polls, Watch
from tests.support.processes import wait_for

Record = Callable[[str, object], None]


def trial(fault: Fault, victim: Stage, bystander: Stage, record: Record) -> None:
    """Let a fault happen to the victim, and see what it costs whom.

    It may cost the victim's polls while it lasts, with the failures that it names. The first poll that
    begins after its end succeeds, one idle session is all that is left on the server, and no poll of the
    bystander ever fails. How long things took is only recorded.
    """
    with Watch(victim.dsn, bystander.dsn) as watch:
        begun = time.monotonic()
        for polls in (watch.victim, watch.bystander):
            polls.wait(lambda found: any(poll.failure is None for poll in found), "all is well", since=begun)
        begun = time.monotonic()
        with fault.happens(victim):
            acting = time.monotonic()
            during = watch.victim.wait(lambda found: len(found) >= 3, "polls meanwhile", since=acting)
        ended = time.monotonic()
        after = watch.victim.wait(lambda found: len(found) >= 3, "polls after the end", since=ended)
        # Looked at while the service still polls: what it holds open at most, between two polls.
        wait_for(lambda: victim.sessions("state") == [("idle",)], "nothing but one idle session is left")

    failed = [poll.failure for poll in during if poll.failure is not None]
    assert {poll.failure for poll in watch.victim.since(begun) if poll.failure is not None} <= fault.kinds
    assert len(failed) == len(during) if fault.cost is Cost.ALL else len(failed) <= 1
    assert [poll.failure for poll in after] == [None] * len(after)
    assert [poll.points for poll in after] == [1] * len(after)
    assert [poll.failure for poll in watch.bystander.polls] == [None] * len(watch.bystander.polls)
    record("longest poll", max(poll.ended - poll.begun for poll in watch.victim.polls))
    record("recovery", after[0].ended - ended)
    record("bystander's longest gap", longest_gap(watch.bystander))


def longest_gap(polls: Polls) -> float:
    """Seconds between two successful polls."""
    ends = [poll.ended for poll in polls.polls if poll.failure is None]
    return max(later - earlier for earlier, later in pairwise(ends))
