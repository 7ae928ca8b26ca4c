"""From the rows of a poll to its Snapshot: each row is in it, or counted with the reason why not."""

from __future__ import annotations

import json
import threading
import time
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from math import inf, isfinite
from typing import cast

from pgque_exporter.catalogue import Catalogue, Metric, MetricType, Source
from pgque_exporter.config_targets import TargetConfig
from pgque_exporter.histograms import BUCKET, HistogramRows, histogram_families, histogram_part
from pgque_exporter.label_sets import (
    BOUND,
    INVALID_LABEL,
    LONG_LABEL,
    MANY_LABELS,
    SUBJECT_LABELS,
    LabelSet,
    LabelSets,
)
from pgque_exporter.limits import TARGET_LIMIT, TOTAL_LIMIT, SeriesLimit
from pgque_exporter.pack import MetricRows, Pack, PackRows
from pgque_exporter.slices import slices
from pgque_exporter.snapshot import Family, HealthCheck, Labels, Snapshot
from pgque_exporter.state_sets import HEALTH_STATE, HEALTH_STATUS, STATES, Health, StateSets

UNKNOWN_METRIC, DUPLICATE = "unknown_metric", "duplicate"
NO_VALUE, INVALID_HISTOGRAM = "no_value", "invalid_histogram"
DROP_REASONS = (
    UNKNOWN_METRIC,
    INVALID_LABEL,
    LONG_LABEL,
    MANY_LABELS,
    DUPLICATE,
    NO_VALUE,
    INVALID_HISTOGRAM,
    TARGET_LIMIT,
    TOTAL_LIMIT,
)


_ColumnKey = tuple[str, str, str]  # schema, engine and metric: a pack may call its engine another name


@dataclass(frozen=True, slots=True)
class _Column:
    """The label sets of one metric of one pack, as the last poll had them.

    texts   each as it came
    places  where the series of each is; empty if a row was dropped, for then each has to be looked at again
    order   the places one after the other
    """

    texts: Collection[str]
    places: Mapping[str, int]
    order: list[int]
    labels: tuple[Labels, ...]


class Assembler:
    """Makes the snapshots of one database, oldest first.

    As a rule a poll brings the label sets of the one before with other values. Then only the values
    are looked at.
    """

    def __init__(self, target: TargetConfig, catalogue: Catalogue, limit: SeriesLimit) -> None:
        self._target = target
        self._catalogue = catalogue
        self._limit = limit
        self._sets: dict[str, LabelSets] = {}  # by engine
        self._columns: dict[_ColumnKey, _Column] = {}
        self._state_sets = StateSets(catalogue, target.limits)
        self._lock = threading.Lock()  # a poll that was given up may still be at work in its thread

    @property
    def remembered(self) -> int:
        """Number of label sets that are kept for the next poll."""
        return sum(map(len, self._sets.values()))

    def assemble(self, read: Sequence[PackRows], taken_at: float, started: float) -> Snapshot:
        """The snapshot of a poll begun at monotonic time `started` that saw the database at `taken_at`."""
        with self._lock:
            return self._assemble(read, taken_at, started)

    def _assemble(self, read: Sequence[PackRows], taken_at: float, started: float) -> Snapshot:
        poll = _Poll(self.remembered)
        for rows in read:
            for part in rows.metrics:
                self._take(poll, rows.pack, part)
        self._columns = poll.columns
        families = {name: _merged(found, poll.dropped) for name, found in poll.families.items()}
        packs = tuple(rows.pack for rows in read)
        health = self._state_sets.complete(
            packs, families.get(HEALTH_STATE), families.get(HEALTH_STATUS), poll.untold
        )
        families |= {HEALTH_STATE: health.states, HEALTH_STATUS: health.statuses}
        numbers = tuple(
            families[metric.name]
            for metric in self._catalogue
            if metric.name in families and families[metric.name].labels
        )
        histograms, misfits = histogram_families(self._catalogue, poll.histograms)
        numbers, histograms, excess = self._limit.apply(numbers, histograms)
        self._forget(poll)
        dropped = poll.dropped + health.dropped
        return Snapshot(
            database=self._target.name,
            taken_at=taken_at,
            duration=time.monotonic() - started,
            families=numbers,
            checks=tuple(check for rows in read for check in _checks(rows, health)),
            checks_ok=health.ok,
            dropped=dict.fromkeys(DROP_REASONS, 0) | dropped | {INVALID_HISTOGRAM: misfits} | excess,
            histograms=histograms,
        )

    def _take(self, poll: _Poll, pack: Pack, rows: MetricRows) -> None:
        """Put the rows of one metric where they belong."""
        name = rows.name or ""
        metric, part = self._catalogue.get(name), histogram_part(self._catalogue, name)
        if part is not None:
            texts, values = rows.columns()
            poll.used.append((pack.engine, texts))
            found = poll.histograms.setdefault(part[0].name, HistogramRows())
            _collect_part(*part, self._sets_of(pack).of(texts), _numbers(values), found, poll.dropped)
        elif metric is not None and self._may_have(metric):
            poll.families.setdefault(name, []).append(self._family(poll, pack, metric, rows))
        else:
            poll.dropped[UNKNOWN_METRIC] += rows.count

    def _family(self, poll: _Poll, pack: Pack, metric: Metric, rows: MetricRows) -> Family:
        """The good rows of one metric of one pack; the others are counted."""
        texts, written = rows.columns()
        values = _numbers(written)
        words = written if rows.plain_numbers else None
        key = (pack.schema, pack.engine, metric.name)
        column = self._columns.get(key)
        family = _repeated(metric, column, texts, values, words) if column is not None else None
        if family is None:
            sets = self._sets_of(pack).of(texts)
            found = _collect(metric, sets, values, poll.dropped)
            if metric.name == HEALTH_STATE:
                poll.untold.update(_without_value(sets, values))
            column = _column(sets, tuple(found))
            family = Family(metric, column.labels, tuple(found.values()))
            poll.learned = True
        poll.columns[key] = cast(_Column, column)
        poll.used.append((pack.engine, poll.columns[key].texts))
        return family

    def _may_have(self, metric: Metric) -> bool:
        """Whether rows of a pack may carry this metric; a histogram comes in parts."""
        if metric.source is Source.HISTORY:
            # One database tells it of all; what another said would be on the page beside it.
            return self._target.history
        return metric.source is not Source.SERVICE and metric.type is not MetricType.HISTOGRAM

    def _sets_of(self, pack: Pack) -> LabelSets:
        sets = self._sets.get(pack.engine)
        if sets is None:
            sets = self._sets[pack.engine] = LabelSets(pack.engine, self._target)
        return sets

    def _forget(self, poll: _Poll) -> None:
        """Drop the label sets that this poll didn't bring, if it brought any others."""
        if not poll.learned and self.remembered <= poll.remembered:
            return
        used: dict[str, set[str]] = {engine: set() for engine in self._sets}
        for engine, texts in poll.used:
            used[engine].update(texts)
        for engine, still in used.items():
            self._sets[engine].keep(still)
            if not still:
                del self._sets[engine]


class _Poll:
    """What is found while the rows of one poll are gone through."""

    def __init__(self, remembered: int) -> None:
        self.remembered = remembered  # label sets before it
        self.learned = False  # whether a metric's label sets are others than before
        self.columns: dict[_ColumnKey, _Column] = {}
        self.families: dict[str, list[Family]] = {}
        self.histograms: dict[str, HistogramRows] = {}
        self.used: list[tuple[str, Collection[str]]] = []  # engines and texts of label sets
        self.untold: set[Labels] = set()  # checks with a state of no value
        self.dropped: Counter[str] = Counter()


# --- numbers by column ---------------------------------------------------------------------------


def _repeated(
    metric: Metric,
    column: _Column,
    texts: Sequence[str],
    values: Sequence[float | None],
    words: Sequence[str] | None,
) -> Family | None:
    """The rows, if they are those of the column with good values, in the column's order."""
    places: list[int | None] = []
    for part in slices(len(texts)):
        places.extend(map(column.places.get, texts[part]))
    if len(places) != len(column.order):
        return None
    if places != column.order:
        rows = dict(zip(places, range(len(places)), strict=True))
        if None in rows or len(rows) != len(places):
            return None
        order = [rows[place] for place in column.order]
        values = [values[row] for row in order]
        words = [words[row] for row in order] if words is not None else None
    if None in values:
        return None
    numbers = cast("Sequence[float]", values)
    if min(numbers, default=0.0) < _least(metric):
        return None
    return Family(metric, column.labels, tuple(numbers), tuple(words) if words is not None else None)


def _collect(
    metric: Metric,
    sets: Sequence[LabelSet],
    values: Sequence[float | None],
    dropped: Counter[str],
) -> dict[Labels, float]:
    """The good rows of one metric; the others are counted."""
    subject = SUBJECT_LABELS if metric.source is Source.HISTORY else ()
    allowed = frozenset((*metric.labels, *subject))
    least = _least(metric)
    found: dict[Labels, float] = {}
    for one, value in zip(sets, values, strict=True):
        if one.reason is not None:
            dropped[one.reason] += 1
        elif not one.names <= allowed:
            dropped[INVALID_LABEL] += 1
        elif one.labels in found:
            dropped[DUPLICATE] += 1
        elif value is None or value < least:
            dropped[NO_VALUE] += 1
        else:
            found[one.labels] = value
    return found


def _without_value(sets: Sequence[LabelSet], values: Sequence[float | None]) -> Iterator[Labels]:
    """The labels but for the last, the state, of rows that have no value."""
    for one, value in zip(sets, values, strict=True):
        if value is None and one.labels:
            yield one.labels[:-1]


def _least(metric: Metric) -> float:
    """The least value that can be this metric's: a counter below zero would make the whole page invalid."""
    return 0.0 if metric.type is MetricType.COUNTER else -inf


def _column(sets: Sequence[LabelSet], labels: tuple[Labels, ...]) -> _Column:
    places: dict[str, int] = {}
    if len(labels) == len(sets):
        places = {one.text: place for place, one in enumerate(sets)}
    return _Column(places or [one.text for one in sets], places, list(places.values()), labels)


def _merged(families: Sequence[Family], dropped: Counter[str]) -> Family:
    """One family of what several packs have of a metric."""
    if len(families) == 1:
        return families[0]
    found: dict[Labels, float] = {}
    for labels, value in chain.from_iterable(family.series for family in families):
        if labels in found:
            dropped[DUPLICATE] += 1
        else:
            found[labels] = value
    return Family.of(families[0].metric, found.items())


def _numbers(texts: Sequence[str]) -> Sequence[float | None]:
    """Each as `_number`; all at once if all are good, which is a third of the work."""
    values: list[float] = []
    try:
        for part in slices(len(texts)):
            values.extend(map(float, texts[part]))
    except ValueError:  # no value, or a text that is no number
        return [_number(text) for text in texts]
    return values if isfinite(sum(values)) else [_number(text) for text in texts]


def _number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if isfinite(value) else None


# --- histograms, health --------------------------------------------------------------------------


def _collect_part(
    metric: Metric,
    part: str,
    sets: Sequence[LabelSet],
    values: Sequence[float | None],
    found: HistogramRows,
    dropped: Counter[str],
) -> None:
    """Add the good rows that are one part of a histogram and count the others."""
    allowed = frozenset((*metric.labels, BOUND))
    for one, value in zip(sets, values, strict=True):
        if one.reason is not None:
            dropped[one.reason] += 1
        elif not one.names <= allowed or (BOUND in one.names) != (part == BUCKET):
            dropped[INVALID_LABEL] += 1
        elif value is None or value < 0:
            dropped[NO_VALUE] += 1
        else:
            try:
                if not found.add(part, one.labels, value):
                    dropped[DUPLICATE] += 1
            except ValueError:
                dropped[INVALID_LABEL] += 1


def in_trouble(rows: PackRows) -> bool:
    """Whether a check of the pack isn't ok.

    Nothing is remembered for it: a poll that fails later on would never forget it again.
    """
    for part in rows.metrics:
        if part.name == HEALTH_STATE:
            texts, values = part.columns()
            found = zip(texts, _numbers(values), strict=True)
            return any(value and _tells_trouble(text) for text, value in found)
    return False


def _tells_trouble(text: str) -> bool:
    try:
        given = json.loads(text)
    except (ValueError, RecursionError):
        return False
    return isinstance(given, dict) and given.get("state") != "ok"


def _checks(rows: PackRows, health: Health) -> Iterator[HealthCheck]:
    """The checks that aren't ok, in the words of queue_health(), or failing that by their states alone."""
    engine = rows.pack.engine
    for queue, check, status, detail in rows.health:
        known = status if status is not None and status in STATES else "unknown"
        yield HealthCheck(engine, queue or "", check or "", known, detail or "")
    if not rows.health:
        for labels in health.troubles:
            given = dict(labels)
            if given["engine"] == engine:
                check = ":".join(filter(None, (given.get("check"), given.get("consumer"))))
                state = given.get("state")
                known = state if state is not None and state in STATES else "unknown"
                yield HealthCheck(engine, given.get("queue", ""), check, known, "")
