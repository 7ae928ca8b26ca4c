"""Lines of input into the warehouse: what is usable as fresh points, what isn't into the quarantine.

The functions give the state that follows; whoever calls them puts it in force.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date, datetime, timedelta

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from pgque_pipeline.reading import Lines
from pgque_pipeline.schemas import POINTS, QUARANTINE
from pgque_pipeline.settings import Settings
from pgque_pipeline.tables import points
from pgque_pipeline.warehouse.manifest import Manifest
from pgque_pipeline.warehouse.store import Warehouse

ONE_DAY = timedelta(days=1)


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

    gone  files that weren't there any more, or not to the end
    """

    folders: Mapping[date, str] = field(default_factory=dict)
    points: int = 0
    refused: int = 0
    newest: datetime | None = None
    gone: frozenset[str] = frozenset()


def watermark(warehouse: Warehouse, settings: Settings) -> date | None:
    """The first day that isn't too late; None as long as no run has ended."""
    newest = warehouse.manifest.newest
    return None if newest is None else newest - timedelta(days=settings.watermark_days)


def take(warehouse: Warehouse, lines: Lines, rules: Rules) -> Taken:
    """Write the usable ones of the points of `lines`. Not in force yet."""
    spared = rules.spared
    folders, parts = warehouse.write_fresh(
        lines, now=rules.now, earliest=rules.watermark, spared=spared, wanted=spared or (None, None)
    )
    newest = max((part.newest for part in parts if part.newest is not None), default=None)
    return Taken(
        folders,
        sum(part.points for part in parts if part.day is not None),
        sum(part.points for part in parts if part.day is None),
        None if newest is None else datetime.fromtimestamp(newest / 1e6, rules.now.tzinfo),
        frozenset(lines.gone) | {part.gone for part in parts if part.gone is not None},
    )


def with_taken(before: Manifest, taken: Taken) -> Manifest:
    """The state `before` with these points as fresh ones."""
    fresh = {day: (*before.fresh.get(day, ()), folder) for day, folder in taken.folders.items()}
    # Counters of a day stand on the day before.
    held = {*before.days.get(POINTS.name, {}), *before.fresh}
    touched = {*fresh} | {day + ONE_DAY for day in fresh if day + ONE_DAY in held}
    return replace(before, fresh={**before.fresh, **fresh}, pending=before.pending | touched)


def tell_refused(
    warehouse: Warehouse,
    lines: Lines,
    rules: Rules,
    folder: str | None,
    *,
    again: Sequence[str],
    moved: Mapping[str, str] | None = None,
    any_new: bool,
) -> str | None:
    """The folder of the quarantine that tells what of `lines` is refused; `folder` is that of before.

    again    files of which what was said before is replaced
    moved    files that have another name now, by their old one
    any_new  whether something of these lines is refused; where nothing is, and nothing was said of the
             files before, all stays as it is
    """
    if not any_new and (folder is None or not (again or moved)):
        return folder
    spark = lines.rows.sparkSession
    told = warehouse.read_folders(spark, QUARANTINE, [folder] if folder else [])
    names = spark.createDataFrame([(name,) for name in (*again, *(moved or {}))], "file string")
    if not any_new and told.join(names, "file", "left_semi").isEmpty():
        return folder
    if moved:
        table = spark.createDataFrame([*moved.items()], "file string, new_name string")
        named = told.join(sf.broadcast(table), "file", "left")
        told = QUARANTINE.shaped(named.withColumn("file", sf.coalesce("new_name", "file")))
    if again:
        replaced = spark.createDataFrame([(name,) for name in again], "file string")
        told = told.join(sf.broadcast(replaced), "file", "left_anti")
    found = points.rejected(_refused(spark, warehouse, lines, rules))
    return warehouse.write_whole(QUARANTINE, told.unionByName(found).distinct())


def with_refused(before: Manifest, folder: str | None) -> Manifest:
    """The state `before` with this quarantine."""
    return before if folder is None else replace(before, whole={**before.whole, QUARANTINE.name: folder})


def _refused(spark: SparkSession, warehouse: Warehouse, lines: Lines, rules: Rules) -> DataFrame:
    """All points of the lines, of which those with a reason are refused; not as too late if taken before."""
    rows = points.flat(lines, now=rules.now, earliest=rules.watermark, spared=rules.spared)
    if rules.watermark is None:
        return rows
    # A file that has changed is read again: what is late in it now may have been in time then.
    days = [day for day in warehouse.days(POINTS) if day < rules.watermark]
    taken = warehouse.read(spark, POINTS, days).select("series_id", "ts").withColumn("taken", sf.lit(True))
    return rows.join(taken, ["series_id", "ts"], "left").where("taken is null or reason is null")
