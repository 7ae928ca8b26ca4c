"""How many series a database may bring, and which of too many stay.

Prometheus refuses a whole scrape that goes beyond its limits. Here the excess alone goes, counted, and
whoever stays is the same from poll to poll.
"""

from __future__ import annotations

import threading
from collections import Counter

from pgque_exporter.config_limits import Limits
from pgque_exporter.snapshot import Family, HistogramFamily, HistogramSeries, Labels

TARGET_LIMIT, TOTAL_LIMIT = "target_limit", "total_limit"  # why series are dropped here

_Families = tuple[Family, ...]
_Histograms = tuple[HistogramFamily, ...]
_Subject = tuple[str, str, str]  # engine, queue, consumer


class SeriesBudget:
    """The series that all databases may have together; safe to use from several threads.

    First come, first served: what a database holds, another's growth can't take from it. It holds that
    also while it can't be polled, so that its series are the same when it is back.
    """

    def __init__(self, total: int) -> None:
        self._total = total
        self._held: dict[str, int] = {}
        self._lock = threading.Lock()

    def take(self, database: str, wanted: int) -> int:
        """Hold up to `wanted` series for `database`, in place of what it held; how many it may have."""
        with self._lock:
            others = sum(self._held.values()) - self._held.get(database, 0)
            granted = self._held[database] = max(0, min(wanted, self._total - others))
            return granted

    def release(self, database: str) -> None:
        """Give back what a database held that is polled no more."""
        with self._lock:
            self._held.pop(database, None)


class SeriesLimit:
    """Keeps the series of one database within its limit and the budget of all.

    What belongs to one queue or consumer stays or goes together: half a state set or a part of a queue's
    metrics would tell lies. Those of the poll before stay first, then the others by name.
    """

    def __init__(self, database: str, limits: Limits, budget: SeriesBudget) -> None:
        self._database = database
        self._limits = limits
        self._budget = budget
        self._before: tuple[_Families, _Histograms] = ((), ())

    def apply(
        self, families: _Families, histograms: _Histograms
    ) -> tuple[_Families, _Histograms, dict[str, int]]:
        """What may stay of a poll's series, and how many had to go, by reason."""
        wanted = sum(len(family.labels) for family in families)
        wanted += sum(_lines(series) for family in histograms for series in family.series)
        dropped = {TARGET_LIMIT: 0, TOTAL_LIMIT: 0}
        allowed = min(wanted, self._limits.series_per_target)
        granted = self._budget.take(self._database, allowed)
        if granted < wanted:
            kept = self._kept(families, histograms, granted)
            families = tuple(filter(_has_series, (_of_family(family, kept) for family in families)))
            histograms = tuple(filter(_has_series, (_of_histogram(family, kept) for family in histograms)))
            gone = wanted - sum(kept.values())
            dropped[TARGET_LIMIT] = gone if granted == allowed else wanted - allowed
            dropped[TOTAL_LIMIT] = gone - dropped[TARGET_LIMIT]
        self._before = families, histograms
        return families, histograms, dropped

    def _kept(self, families: _Families, histograms: _Histograms, room: int) -> Counter[_Subject]:
        """Those who may stay, and how many series each has."""
        before = _sizes(*self._before)
        sizes = _sizes(families, histograms)
        kept: Counter[_Subject] = Counter()
        for subject in sorted(sizes, key=lambda one: (one not in before, one)):
            if sizes[subject] <= room:
                kept[subject] = sizes[subject]
                room -= sizes[subject]
        return kept


def _subject(labels: Labels) -> _Subject:
    given = dict(labels)
    return given.get("engine", ""), given.get("queue", ""), given.get("consumer", "")


def _lines(series: HistogramSeries) -> int:
    return len(series.counts) + 2  # a line per bucket, the sum, the count


def _sizes(families: _Families, histograms: _Histograms) -> Counter[_Subject]:
    sizes = Counter(_subject(labels) for family in families for labels in family.labels)
    for family in histograms:
        for series in family.series:
            sizes[_subject(series.labels)] += _lines(series)
    return sizes


def _of_family(family: Family, kept: Counter[_Subject]) -> Family:
    return Family.of(family.metric, [one for one in family.series if _subject(one.labels) in kept])


def _of_histogram(family: HistogramFamily, kept: Counter[_Subject]) -> HistogramFamily:
    return HistogramFamily(family.metric, tuple(one for one in family.series if _subject(one.labels) in kept))


def _has_series(family: Family | HistogramFamily) -> bool:
    return bool(family.labels if isinstance(family, Family) else family.series)
