"""Health as state sets: a row for each state of each check, 1 for the one that it is in, else 0.

A pack sends the checks that aren't ok, and a status of every queue and consumer. Its other checks of
them are ok. Whatever it does send stays.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field

from pgque_exporter.catalogue import Catalogue
from pgque_exporter.config_limits import Limits
from pgque_exporter.label_sets import excess
from pgque_exporter.pack import Pack
from pgque_exporter.snapshot import Family, Labels

HEALTH_STATE = "pgque.queue.health_state"
HEALTH_STATUS = "pgque.queue.health_status"
# The states, and their numbers.
STATES: Mapping[str, float | None] = {"ok": 0.0, "warning": 1.0, "critical": 2.0, "unknown": None}
_LONGEST_STATE = ("state", max(STATES, key=len))


@dataclass(frozen=True, slots=True)
class Health:
    """State sets and statuses, both whole.

    troubles  labels of the states that a check is in and that aren't ok
    ok        number of checks that are
    dropped   states that are beyond the limits of labels, by reason
    """

    states: Family
    statuses: Family
    troubles: tuple[Labels, ...]
    ok: int
    dropped: Counter[str] = field(default_factory=Counter)


class StateSets:
    """Completes the health of one database. As long as nothing changes, it is the same object."""

    def __init__(self, catalogue: Catalogue, limits: Limits) -> None:
        self._limits = limits
        self._none = Family(catalogue[HEALTH_STATE], (), ()), Family(catalogue[HEALTH_STATUS], (), ())
        self._given: tuple[Sequence[Pack], Family, Family, Set[Labels]] = ((), *self._none, frozenset())
        self._health = Health(*self._none, (), 0)
        self._sets: dict[Labels, tuple[Labels, ...]] = {}

    def complete(
        self,
        packs: Sequence[Pack],
        states: Family | None,
        statuses: Family | None,
        untold: Set[Labels],
    ) -> Health:
        """The health that these rows of these packs tell; a check of `untold` isn't ok for want of a row."""
        given = (packs, states or self._none[0], statuses or self._none[1], untold)
        if given != self._given:
            self._health = self._completed(packs, dict(given[1].series), dict(given[2].series), untold)
            self._given = given
        return self._health

    def _completed(
        self,
        packs: Sequence[Pack],
        states: dict[Labels, float],
        statuses: dict[Labels, float],
        untold: Set[Labels],
    ) -> Health:
        current: dict[Labels, str] = {}  # state of a check, by the labels of the check
        by_engine = {pack.engine: pack for pack in packs}

        def checks_of(subject: Labels) -> tuple[str, ...]:
            pack = by_engine[subject[0][1]]
            return pack.consumer_checks if subject[-1][0] == "consumer" else pack.queue_checks

        subjects = dict.fromkeys(statuses)
        for labels, value in states.items():
            name, state = labels[-1]
            if value and name == "state" and state in STATES:
                current[labels[:-1]] = state
                name, check = labels[-2]
                # A check of something else, such as the scheduler, tells of no queue.
                if name == "check" and check in checks_of(labels[:-2]):
                    subjects[labels[:-2]] = None
        for subject in subjects:
            for check in checks_of(subject):
                if (*subject, ("check", check)) not in untold:
                    current.setdefault((*subject, ("check", check)), "ok")
        # What the pack says of such a check was dropped for the same reason: "ok" would be made up.
        dropped: Counter[str] = Counter()
        for check_labels in [*current]:
            reason = excess((check_labels[-1], _LONGEST_STATE), len(check_labels) + 1, self._limits)
            if reason is not None:
                del current[check_labels]
                dropped[reason] += len(STATES)
        self._sets = {check: self._sets.get(check) or _state_set(check) for check in current}
        for check_labels, state in current.items():
            for name, labels in zip(STATES, self._sets[check_labels], strict=True):
                states.setdefault(labels, float(name == state))

        # A pack that leaves the status out: the worst of its checks, unless none is known.
        worst: dict[Labels, float] = {}
        for check_labels, state in current.items():
            number, subject = STATES[state], check_labels[:-1]
            if number is not None and subject not in statuses:
                worst[subject] = max(number, worst.get(subject, number))
        statuses.update(worst)
        active = [labels for labels, value in states.items() if value]
        troubles = tuple(labels for labels in active if ("state", "ok") not in labels)
        return Health(
            Family.of(self._none[0].metric, states.items()),
            Family.of(self._none[1].metric, statuses.items()),
            troubles,
            len(active) - len(troubles),
            dropped,
        )


def _state_set(check: Labels) -> tuple[Labels, ...]:
    """The labels of a check with each state that it may be in, in the order of the states."""
    return tuple((*check, ("state", state)) for state in STATES)
