"""Lines of input into the warehouse: what is usable as fresh points, what isn't into the quarantine.

The functions give the state that follows; whoever calls them puts it in force.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date, datetime, timedelta
from pathlib import Path

from pgque_pipeline import quarantine
from pgque_pipeline.reading import Lines
from pgque_pipeline.schemas import POINTS
from pgque_pipeline.settings import Settings
from pgque_pipeline.tables import points
from pgque_pipeline.warehouse.manifest import Manifest
from pgque_pipeline.warehouse.store import Warehouse

ONE_DAY = timedelta(days=1)
# Folders of the quarantine. More become one.
_MOST_FOLDERS = 16


@dataclass(frozen=True)
class Rules:
    """Which points are taken.

    now         the present, in UTC; points of more than a day later are refused
    begin, end  days, both included: those that are to be replaced, however old; None for no bound
    watermark   points of days before this one come too late, unless they are to be replaced
    """

    now: datetime
    begin: date | None = None
    end: date | None = None
    watermark: date | None = None

    @property
    def window(self) -> bool:
        """Whether days are to be replaced."""
        return self.begin is not None or self.end is not None

    @property
    def spared(self) -> points.Days | None:
        """The days that are to be replaced, whose points are never too late."""
        return (self.begin, self.end) if self.window else None


@dataclass(frozen=True)
class Taken:
    """What came of some lines: points in a folder for each day, and lines and points that were refused.

    quarantine  the folder that tells what was refused; None if nothing was
    gone        files that weren't there any more, or not to the end
    """

    folders: Mapping[date, str] = field(default_factory=dict)
    points: int = 0
    refused: int = 0
    newest: datetime | None = None
    quarantine: str | None = None
    gone: frozenset[str] = frozenset()


def watermark(warehouse: Warehouse, settings: Settings) -> date | None:
    """The first day that isn't too late; None as long as no run has ended."""
    newest = warehouse.manifest.newest
    return None if newest is None else newest - timedelta(days=settings.watermark_days)


def take(warehouse: Warehouse, lines: Lines, rules: Rules) -> Taken:
    """Write the usable ones of the points of `lines`, and what is refused. Not in force yet."""
    folders, refusals, outcomes, gone = warehouse.write_fresh(
        lines,
        points.parser(rules.now, rules.watermark, rules.spared),
        wanted=rules.spared or (None, None),
        taken=_before(warehouse, rules.watermark),
    )
    newest = max((one.newest for one in outcomes if one.newest is not None), default=None)
    refused = sum(one.refused for one in outcomes)
    return Taken(
        folders,
        points=sum(one.points for one in outcomes),
        refused=refused,
        newest=None if newest is None else datetime.fromtimestamp(newest / 1e6, rules.now.tzinfo),
        quarantine=refusals if refused else None,
        gone=gone,
    )


def _before(warehouse: Warehouse, watermark: date | None) -> dict[date, list[Path]]:
    """Where the points are of days that are too old for new ones."""
    manifest = warehouse.manifest
    days = {*manifest.days.get(POINTS.name, {}), *manifest.fresh}
    return {
        day: warehouse.paths(warehouse.folders_of_points(day))
        for day in days
        if watermark is not None and day < watermark
    }


def with_taken(before: Manifest, taken: Taken) -> Manifest:
    """The state `before` with these points as fresh ones."""
    fresh = {day: (*before.fresh.get(day, ()), folder) for day, folder in taken.folders.items()}
    # Counters of a day stand on the day before.
    held = {*before.days.get(POINTS.name, {}), *before.fresh}
    touched = {*fresh} | {day + ONE_DAY for day in fresh if day + ONE_DAY in held}
    return replace(before, fresh={**before.fresh, **fresh}, pending=before.pending | touched)


def quarantine_with(
    warehouse: Warehouse,
    before: Sequence[str],
    taken: Taken,
    *,
    again: Collection[str],
    moved: Mapping[str, str] | None = None,
) -> tuple[str, ...]:
    """The folders of the quarantine that tell what was refused now, too; `before` are those that did so far.

    again  files of which what was said before is replaced
    moved  files that have another name now, by their old one
    """
    moved = moved or {}
    named = {*again, *moved}
    folders = [
        warehouse.write_quarantine([folder], dropped=again, renamed=moved)
        if quarantine.tells_of(warehouse.root / folder, named)
        else folder
        for folder in before
    ]
    new = taken.quarantine
    if new is not None and taken.gone:  # read again once they are back, so nothing is said of them yet
        new = warehouse.write_quarantine([new], dropped=taken.gone)
    found = [folder for folder in (*folders, new) if folder is not None]
    if len(found) > _MOST_FOLDERS:
        found = [folder for folder in [warehouse.write_quarantine(found)] if folder is not None]
    return tuple(found)
