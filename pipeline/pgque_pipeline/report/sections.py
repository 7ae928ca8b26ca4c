"""The parts of the page, each from the facts that it tells."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime, timedelta
from itertools import groupby

from pgque_pipeline.report.charts.budget import budget_chart
from pgque_pipeline.report.charts.heat import DAYS, SHADES, heat_map
from pgque_pipeline.report.charts.outlook import outlook_chart
from pgque_pipeline.report.charts.series import flow_chart, lag_chart
from pgque_pipeline.report.charts.timeline import timeline
from pgque_pipeline.report.facts import Facts, Forecast, Objective, Promise
from pgque_pipeline.report.findings import findings, headline
from pgque_pipeline.report.markup import Markup, element, join
from pgque_pipeline.report.words import (
    NOTHING,
    Clock,
    Names,
    counted,
    duration,
    listed,
    number,
    percent,
)

_DAY = timedelta(days=1)
NEVER = "never"
_WINDOWS = (24, 168, 672, 2160)  # hours
_LEVELS = {"critical": "critical", "warning": "warning", "ok": "good"}


class Sections:
    """The parts of one report."""

    def __init__(self, facts: Facts) -> None:
        self._facts = facts
        self._scope = facts.scope
        self._clock = Clock(facts.scope.time_zone)
        self._names = Names(facts.scope)

    def all(self) -> Markup:
        """Every part that there is something to tell in, in the order in which it is read."""
        return join(
            self._summary(),
            self._promises(),
            self._incidents(),
            self._forecast(),
            self._flow(),
            self._lag(),
            self._week(),
            self._dead_letters(),
            self._refused(),
            self._unknown(),
        )

    # --- parts -----------------------------------------------------------------------------------

    def _summary(self) -> Markup:
        cards = [
            element(
                "li",
                element(
                    "p", _badge(one.level), " ", element("a", one.title, href=f"#{one.place}"), class_="title"
                ),
                element("p", one.sentence),
                class_=f"card {one.level}",
            )
            for one in findings(self._facts, self._clock, self._names)
        ]
        return element(
            "section",
            element("h2", "What needs attention"),
            element("p", headline(self._facts), class_="headline"),
            element("ul", *cards, class_="cards"),
            id="attention",
        )

    def _promises(self) -> Markup | None:
        facts = self._facts
        if not facts.objectives:
            return None
        figures = [self._objective(one) for one in facts.objectives]
        return _section(
            "promises",
            "Promises",
            "An objective says which share has to be good. What it leaves of the whole is the error budget; "
            "a promise is broken when more than that went wrong. Time without data counts neither way.",
            element("div", *figures, class_="grid"),
        )

    def _objective(self, one: Objective) -> Markup:
        clock, names = self._clock, self._names
        burned = {window for promise in one.worst for window in promise.burns}
        hours = sorted(burned.intersection(_WINDOWS), reverse=True)
        headings = [
            "",
            "kept",
            "budget left",
            *(f"{'' if index else 'burn, '}{duration(window * 3600)}" for index, window in enumerate(hours)),
        ]
        rows = [
            [
                names(promise.entity),
                percent(promise.attainment, promise.target),
                _share_left(promise),
                *(_burn(promise, window) for window in hours),
            ]
            for promise in one.worst
        ]
        shown = f", the {len(one.worst)} that came off worst" if one.promised > len(one.worst) else ""
        words = f"{one.broken} of {one.promised} broken" if one.broken else f"all {one.promised} kept"
        return _figure(
            f"{one.name}: {one.meaning}",
            f"{percent(one.target)} promised; {words}{shown}.",
            budget_chart(
                f"Error budget of {one.name}", one.worst, self._scope.begin, self._scope.as_of, clock
            ),
            _legend([(f"c{index + 1}", names(promise.entity)) for index, promise in enumerate(one.worst)]),
            _table(headings, rows, open_=True),
        )

    def _incidents(self) -> Markup:
        facts, clock, names = self._facts, self._clock, self._names
        incidents = facts.incidents
        if not incidents.count:
            return _section("incidents", "Incidents", "No check was warning or critical.")
        text = (
            f"{counted(incidents.count, 'incident')}, {incidents.critical} of them critical, of "
            f"{counted(incidents.track_count, 'check')}. In hatched times nobody watched: they "
            "count neither as healthy nor as an incident."
        )
        if incidents.track_count > len(incidents.tracks):
            text += f" Shown: {counted(len(incidents.tracks), 'check')}, those that were in trouble longest."
        rows = [
            [
                f"{one.check} of {names(one.entity)}",
                one.worst,
                clock.minute(one.started),
                clock.minute(one.ended)
                if one.ended
                else f"going on; last seen {clock.minute(one.last_seen)}",
                duration(one.critical_seconds) if one.critical_seconds else NOTHING,
                duration(one.warning_seconds) if one.warning_seconds else NOTHING,
                duration(one.unknown_seconds) if one.unknown_seconds else NOTHING,
            ]
            for one in incidents.worst
        ]
        more = incidents.count - len(incidents.worst)
        return _section(
            "incidents",
            "Incidents",
            text,
            timeline(incidents.tracks, self._scope.begin, self._scope.as_of, clock, names),
            _legend([("ok", "ok"), ("warning", "warning"), ("critical", "critical"), ("none", "unknown")]),
            _table(
                ["check", "worst", "from", "to", "critical", "warning", "unknown"],
                rows,
                name=f"The {len(rows)} that matter most" if more else "As a table",
                after=f"{counted(more, 'other incident')} not shown." if more else None,
            ),
        )

    def _forecast(self) -> Markup | None:
        facts, clock, names = self._facts, self._clock, self._names
        if not facts.judged:
            return None
        if not facts.forecasts:
            return _section(
                "forecast",
                "Forecast",
                f"No lag of {counted(facts.judged, 'consumer')} grows towards its rotation period.",
            )
        figures = []
        rows = []
        for one in facts.forecasts:
            name = names(one.entity)
            interval = _interval(one)
            when = clock.minute(one.as_of + timedelta(seconds=one.left))
            rows.append(
                [name, duration(one.lag), duration(one.rotation_period), duration(one.left), interval, when]
            )
            figures.append(
                _figure(
                    name,
                    f"{duration(one.left)} left; 95 % interval: {interval}."
                    if one.left
                    else "It has passed the period.",
                    outlook_chart(name, one, clock),
                    _legend([("c1", "lag"), ("c2 dashed", "if it goes on"), ("limit", "rotation period")]),
                )
            )
        more = facts.growing - len(rows)
        return _section(
            "forecast",
            "Forecast",
            "When does lag pass the rotation period, and the consumer block the queue's tables? Straight "
            f"lines through the last six hours. Of {counted(facts.judged, 'consumer')}, {facts.growing} "
            f"{'is' if facts.growing == 1 else 'are'} on the way there"
            + (f"; the {len(rows)} that come first:" if more else "."),
            element("div", *figures, class_="grid"),
            _table(["consumer", "lag", "rotation period", "left", "95 % interval", "on"], rows),
        )

    def _flow(self) -> Markup | None:
        facts, clock, names = self._facts, self._clock, self._names
        if not facts.flows:
            return None
        figures = []
        for one in facts.flows:
            name = names(one.entity)
            hours = [(hour, sent, acked) for hour, sent, acked in one.hours]
            figures.append(
                _figure(
                    name,
                    f"{number(one.sent)} events sent.",
                    flow_chart(name, one, self._scope.begin, self._scope.as_of, clock),
                    _legend([("c1", "sent"), ("c2", "acknowledged by the slowest consumer")]),
                    _table(
                        ["day", "sent a second, mean", "highest", "acknowledged, mean"],
                        self._by_day(hours, _flow_day),
                    ),
                )
            )
        return _section(
            "flow",
            "Flow by hour",
            "Events a second. " + _shown(len(figures), facts.flow_count, "queue", "that send most"),
            element("div", *figures, class_="grid"),
        )

    def _lag(self) -> Markup | None:
        facts, clock, names = self._facts, self._clock, self._names
        if not facts.lags:
            return None
        figures = []
        for one in facts.lags:
            name = names(one.entity)
            most = max((p99 for *_, p99 in one.hours), default=0.0)
            figures.append(
                _figure(
                    name,
                    f"At most {duration(most)} in the 99th percentile of an hour.",
                    lag_chart(name, one, self._scope.begin, self._scope.as_of, clock),
                    _legend([("c1", "p50"), ("c5", "p95"), ("c2", "p99"), ("limit", "rotation period")]),
                    _table(
                        ["day", "p50, median hour", "p95, worst hour", "p99, worst hour"],
                        self._by_day(one.hours, _lag_day),
                    ),
                )
            )
        return _section(
            "lag",
            "Lag over the weeks",
            "Age of the oldest event that a consumer hasn't got; percentiles of the samples of each hour. "
            "The scale is logarithmic. "
            + _shown(len(figures), facts.lag_count, "consumer", "that were latest"),
            element("div", *figures, class_="grid"),
        )

    def _week(self) -> Markup:
        facts, names = self._facts, self._names
        if not facts.weeks:
            return _section(
                "week",
                "A usual week",
                "There is no baseline yet: an hour of the week needs three weeks of data.",
            )
        figures = []
        for one in facts.weeks:
            name = names(one.entity)
            rows = [
                [f"{hour:02}:00", *(_median(one.medians.get(24 * day + hour)) for day in range(7))]
                for hour in range(24)
            ]
            figures.append(
                _figure(
                    name,
                    f"At most {number(max(one.medians.values()))} events a second.",
                    heat_map(name, one),
                    element(
                        "p",
                        "less ",
                        *(element("span", class_=f"cell h{index}") for index in range(0, SHADES + 1, 3)),
                        " more",
                        class_="legend",
                    ),
                    _table(["hour", *DAYS], rows),
                )
            )
        return _section(
            "week",
            "A usual week",
            f"Median of the events sent a second, by hour of the week in {self._scope.time_zone}. "
            + _shown(len(figures), facts.week_count, "queue", "that send most"),
            element("div", *figures, class_="grid"),
        )

    def _dead_letters(self) -> Markup | None:
        facts, clock, names = self._facts, self._clock, self._names
        if not facts.dead_letters:
            return None
        rows = [
            [
                number(one.count),
                one.reason or "no reason given",
                one.event_type or NOTHING,
                names(one.entity),
                clock.minute(one.first) if one.first else NOTHING,
                clock.minute(one.last) if one.last else NOTHING,
            ]
            for one in facts.dead_letters
        ]
        more = facts.dead_letter_groups - len(rows)
        return _section(
            "dead-letters",
            "Dead letters by reason",
            f"{counted(facts.dead_letter_count, 'dead letter')} of "
            f"{counted(facts.dead_letter_groups, 'kind')}: what differs from event to event is left out of "
            "the reason.",
            _table(
                ["dead letters", "reason", "type", "of", "first", "last"],
                rows,
                open_=True,
                after=f"{counted(more, 'other kind')} not shown." if more else None,
            ),
        )

    def _refused(self) -> Markup | None:
        facts = self._facts
        if not facts.refused_count:
            return None
        rows = [[one.reason, number(one.count), number(one.files)] for one in facts.refused]
        return _section(
            "quarantine",
            "Quarantine",
            f"{counted(facts.refused_count, 'line or point', 'lines and points')} of the input could not be "
            "used. Nothing of it is in this report.",
            _table(["reason", "how many", "in files"], rows, open_=True),
        )

    def _unknown(self) -> Markup:
        items = [element("li", words) for words in self._unknowns()]
        return _section("unknown", "What the data doesn't know", None, element("ul", *items))

    def _unknowns(self) -> Iterable[str]:
        facts, scope, clock = self._facts, self._scope, self._clock
        if facts.gap_count:
            longest = facts.gaps[0]
            where = f" of {longest.database}" if scope.database_count > 1 and longest.database else ""
            yield (
                f"{counted(facts.gap_count, 'gap')} of {duration(facts.unwatched_seconds)} in all, in which "
                f"nobody watched; the longest from {clock.minute(longest.begin)} to "
                f"{clock.minute(longest.end)}{where}."
            )
        else:
            yield "The databases were watched without a gap."
        if scope.database_count > len(scope.databases):
            yield f"Gaps are told of {len(scope.databases)} of the {scope.database_count:,} databases only."
        days = (scope.as_of - scope.begin) / _DAY
        if facts.weeks and any(len(one.medians) < 168 for one in facts.weeks):
            missing = max(168 - len(one.medians) for one in facts.weeks)
            yield f"Up to {counted(missing, 'hour')} of the week have no baseline, for want of data."
        elif not facts.weeks:
            length = counted(round(days), "day")
            yield f"With {length} of data there is no telling what is usual for an hour of the week."
        silent = scope.consumer_count - facts.judged
        if silent > 0:
            yield f"{counted(silent, 'consumer')} had too few samples in the last hours for a forecast."
        if facts.unjudged:
            names = listed(facts.unjudged)
            yield f"Nothing in the data is about {names}: those promises could not be judged."
        yield (
            "A forecast is a straight line. It knows nothing of the night, of a restart, of somebody who "
            "looks after it now."
        )
        if not facts.refused_count:
            yield "All of the input could be used."

    # --- tables ----------------------------------------------------------------------------------

    def _by_day(
        self,
        hours: Sequence[tuple[datetime, *tuple[float | None, ...]]],
        row: Callable[[list[tuple[float | None, ...]]], list[str]],
    ) -> list[list[str]]:
        """A row for each local day."""
        return [
            [day, *row([tuple(values) for _, *values in found])]
            for day, found in groupby(hours, key=lambda hour: self._clock.day(hour[0]))
        ]


# --- pieces --------------------------------------------------------------------------------------


def _section(place: str, title: str, text: str | None, *parts: Markup | None) -> Markup:
    heading = element("h2", title, id=f"{place}-title")
    words = element("p", text, class_="lead") if text else None
    return element("section", heading, words, *parts, id=place, aria_labelledby=f"{place}-title")


def _figure(title: str, text: str, *parts: Markup) -> Markup:
    return element("figure", element("figcaption", element("h3", title), element("p", text)), *parts)


def _legend(entries: Sequence[tuple[str, str]]) -> Markup:
    items = [element("li", element("span", class_=f"key {style}"), " ", words) for style, words in entries]
    return element("ul", *items, class_="legend")


def _table(
    headings: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    open_: bool = False,
    name: str = "As a table",
    after: str | None = None,
) -> Markup:
    head = element("tr", *(element("th", heading, scope="col") for heading in headings))
    body = [
        element("tr", element("th", row[0], scope="row"), *(element("td", cell) for cell in row[1:]))
        for row in rows
    ]
    table = element("table", element("thead", head), element("tbody", *body))
    last = element("p", after, class_="quiet") if after else None
    scrolled = element("div", table, class_="scroll", tabindex=0, role="region", aria_label=name)
    if open_:
        return join(scrolled, last)
    return element("details", element("summary", name), scrolled, last)


def _badge(level: str) -> Markup:
    return element("span", _LEVELS[level], class_=f"badge {level}")


def _shown(shown: int, all_: int, one: str, which: str) -> str:
    return "" if all_ <= shown else f"Shown: {counted(shown, one)} of {all_:,}, those {which}."


def _share_left(promise: Promise) -> str:
    return f"{100 * (1 - promise.burn):.0f}\u00a0%"


def _interval(one: Forecast) -> str:
    if one.earliest is None:
        return NOTHING
    low, high = duration(one.earliest), NEVER if one.latest is None else duration(one.latest)
    return low if low == high else f"{low} to {high}"


def _burn(promise: Promise, window: int) -> str:
    burn = promise.burns.get(window)
    return NOTHING if burn is None else f"{burn:.1f}"


def _median(value: float | None) -> str:
    return NOTHING if value is None else number(value)


def _known(values: Iterable[float | None]) -> list[float]:
    return [value for value in values if value is not None]


def _flow_day(hours: list[tuple[float | None, ...]]) -> list[str]:
    sent, acked = _known(hour[0] for hour in hours), _known(hour[1] for hour in hours)
    return [
        number(sum(sent) / len(sent)) if sent else NOTHING,
        number(max(sent)) if sent else NOTHING,
        number(sum(acked) / len(acked)) if acked else NOTHING,
    ]


def _lag_day(hours: list[tuple[float | None, ...]]) -> list[str]:
    p50, p95, p99 = (sorted(_known(hour[index] for hour in hours)) for index in range(3))
    return [duration(p50[len(p50) // 2]), duration(p95[-1]), duration(p99[-1])]
