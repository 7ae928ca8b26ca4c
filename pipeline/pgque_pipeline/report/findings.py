"""What needs attention, in sentences: the first screen of the report."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta

from pgque_pipeline.report.facts import Facts, Forecast, Incident, Promise
from pgque_pipeline.report.words import Clock, Names, counted, duration, listed, number, percent

_SOON_HOURS = 24
_MOST = 3  # sentences of a kind


@dataclass(frozen=True)
class Finding:
    """Something to know. `level` is critical, warning or ok; `place` the id of the section with more."""

    level: str
    title: str
    sentence: str
    place: str


def headline(facts: Facts) -> str:
    """The report in one sentence."""
    promised = sum(one.promised for one in facts.objectives)
    broken = sum(one.broken for one in facts.objectives)
    parts = []
    if promised:
        parts.append(
            f"{broken} of {counted(promised, 'promise')} broken"
            if broken
            else f"all {counted(promised, 'promise')} kept"
        )
    incidents = facts.incidents
    if incidents.count:
        still = f", {incidents.going_on} still going on" if incidents.going_on else ""
        parts.append(f"{counted(incidents.count, 'incident')}{still}")
    else:
        parts.append("no incident")
    if facts.growing:
        parts.append(f"{counted(facts.growing, 'consumer')} on the way to be blocked")
    text = "; ".join(parts)
    return f"{text[0].upper()}{text[1:]}."


def findings(facts: Facts, clock: Clock, names: Names) -> list[Finding]:
    """What needs attention, the most urgent first; something good where there is nothing."""
    found = [
        *(_blocked(one, clock, names) for one in facts.forecasts[:_MOST]),
        *_going_on(facts, clock, names),
        *_broken(facts, names),
        *_longest(facts, clock, names),
        *_dead(facts, names),
    ]
    found.sort(key=lambda one: ("critical", "warning", "ok").index(one.level))
    return [*found, *_kept(facts)]


def _blocked(one: Forecast, clock: Clock, names: Names) -> Finding:
    name = names(one.entity)
    if one.left <= 0:
        return Finding(
            "critical",
            f"{name} blocks rotation",
            f"Its lag, {duration(one.lag)}, is beyond the rotation period, {duration(one.rotation_period)}.",
            "forecast",
        )
    when = clock.minute(one.as_of + timedelta(seconds=one.left))
    soon = one.left <= _SOON_HOURS * 3600
    return Finding(
        "critical" if soon else "warning",
        f"{name} will be blocked in {duration(one.left)}",
        f"If it goes on like this, its lag of {duration(one.lag)} passes the rotation period of "
        f"{duration(one.rotation_period)} on {when}{_interval(one)}.",
        "forecast",
    )


def _interval(one: Forecast) -> str:
    if one.earliest is None:
        return ""
    if one.latest is None:
        return f", in {duration(one.earliest)} at the earliest, or not at all"
    low, high = duration(one.earliest), duration(one.latest)
    return "" if low == high else f" (between {low} and {high} from the last sample)"


def _going_on(facts: Facts, clock: Clock, names: Names) -> Iterator[Finding]:
    going_on = [one for one in facts.incidents.worst if one.ended is None]
    for one in going_on[:_MOST]:
        lasted = (one.last_seen - one.started).total_seconds()
        yield Finding(
            one.worst,
            f"{one.check} of {names(one.entity)} is going on",
            f"{one.worst.capitalize()} since {clock.minute(one.started)}; that is {duration(lasted)}.",
            "incidents",
        )
    rest = facts.incidents.going_on - min(_MOST, len(going_on))
    if rest > 0:
        yield Finding(
            "warning", f"{counted(rest, 'more incident')} going on", "See the timeline.", "incidents"
        )


def _broken(facts: Facts, names: Names) -> Iterator[Finding]:
    for one in facts.objectives:
        if not one.broken:
            continue
        first = one.worst[0]
        others = one.broken - 1
        also = f" {counted(others, 'other')} broken as well." if others else ""
        yield Finding(
            "critical" if first.burn >= 2 else "warning",
            f"Promise broken: {one.name} of {names(first.entity)}",
            f"{_kept_share(first)}: {one.meaning}. It spent {number(first.burn)} "
            f"times its error budget.{also}",
            "promises",
        )


def _kept_share(one: Promise) -> str:
    return f"{percent(one.attainment, one.target)} instead of {percent(one.target)}"


def _longest(facts: Facts, clock: Clock, names: Names) -> Iterator[Finding]:
    for one in facts.incidents.longest[:_MOST]:
        ended = one.ended or one.last_seen
        unknown = f", {duration(one.unknown_seconds)} of it unwatched" if one.unknown_seconds else ""
        length = (ended - one.started).total_seconds()
        yield Finding(
            "warning",
            f"{one.check} of {names(one.entity)} took {duration(length)}",
            f"From {clock.minute(one.started)} to {clock.minute(ended)}, {_states(one)}{unknown}.",
            "incidents",
        )


def _states(one: Incident) -> str:
    parts = [(one.critical_seconds, "critical"), (one.warning_seconds, "warning")]
    return listed([f"{duration(seconds)} {state}" for seconds, state in parts if seconds]) or one.worst


def _dead(facts: Facts, names: Names) -> Iterator[Finding]:
    if facts.dead_letters:
        worst = facts.dead_letters[0]
        reason = f"“{worst.reason}”" if worst.reason else "without a reason"
        yield Finding(
            "warning",
            f"{counted(facts.dead_letter_count, 'dead letter')} wait to be looked at",
            f"Most of one kind: {number(worst.count)} of {names(worst.entity)}, {reason}.",
            "dead-letters",
        )


def _kept(facts: Facts) -> Iterator[Finding]:
    promised = sum(one.promised for one in facts.objectives)
    kept = promised - sum(one.broken for one in facts.objectives)
    if kept and promised:
        yield Finding(
            "ok",
            f"{counted(kept, 'promise')} kept" if kept < promised else f"All {counted(kept, 'promise')} kept",
            f"Of {counted(facts.scope.queue_count, 'queue')} and "
            f"{counted(facts.scope.consumer_count, 'consumer')}.",
            "promises",
        )
