"""One run: reads new input, makes the tables anew that it touches, and puts each step in force at once.

A run that is killed leaves the last step in force. The next one deletes what was under way and goes on.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import date, datetime, timedelta
from pathlib import Path

from pyspark.sql import SparkSession

from pgque_pipeline import daily, intake, overall, reading, schemas, settling
from pgque_pipeline.inputs import input_files, refuse_own_files, without_vanished
from pgque_pipeline.parts import parts_for
from pgque_pipeline.progress import Progress
from pgque_pipeline.schemas import POINTS, Table
from pgque_pipeline.settings import Settings
from pgque_pipeline.tables import slo
from pgque_pipeline.warehouse.lock import only_run
from pgque_pipeline.warehouse.manifest import InputFile, Manifest
from pgque_pipeline.warehouse.store import Warehouse

# Input that is read, and points whose tables are made, between two commits.
_BATCH_BYTES = 2 * 1024**3
_CHUNK_BYTES = 1024**3
_CHUNK_DAYS = 31
_SETTLED = (POINTS, schemas.SERIES)


@dataclass(frozen=True)
class Request:
    """What to do.

    begin, end  days, both included: these are read again from all input and replaced. Without them what
                is new in the input is added.
    now         the present, in UTC; points of more than a day later are refused
    """

    inputs: Sequence[Path]
    settings: Settings
    now: datetime
    begin: date | None = None
    end: date | None = None
    batch_bytes: int = _BATCH_BYTES

    @property
    def window(self) -> bool:
        """Whether days are to be replaced."""
        return self.begin is not None or self.end is not None


@dataclass
class Summary:
    """What a run did."""

    files: int = 0
    points: int = 0
    refused: int = 0
    days: int = 0


def run(spark: SparkSession, warehouse: Warehouse, request: Request, progress: Progress) -> Summary:
    """Bring the warehouse up to date. Raises UserError while another run is at work on it."""
    with only_run(warehouse.root):
        warehouse = Warehouse(warehouse.root)  # as it is now that nobody else writes
        warehouse.sweep()
        summary = Summary()
        _Reading(spark, warehouse, request, progress, summary).all()
        resettle(warehouse, request.settings)
        make_days(spark, warehouse, request.settings, progress, summary)
        make_whole(spark, warehouse, request.settings, progress)
        warehouse.sweep()
        return summary


# --- input ---------------------------------------------------------------------------------------


class _Reading:
    """Reads input in batches, each put in force on its own; a window as a whole, to be replaced at once."""

    def __init__(
        self,
        spark: SparkSession,
        warehouse: Warehouse,
        request: Request,
        progress: Progress,
        summary: Summary,
    ) -> None:
        self._spark = spark
        self._warehouse = warehouse
        self._request = request
        self._progress = progress
        self._summary = summary

    def all(self) -> None:
        """Read what is to be read."""
        files = input_files(self._request.inputs)
        refuse_own_files(self._warehouse.root, files)
        if self._request.window:
            self._window(files)
        else:
            self._what_is_new(files)

    def _what_is_new(self, files: dict[Path, InputFile]) -> None:
        known = self._warehouse.manifest.files
        new = {path: state for path, state in files.items() if known.get(str(path)) != state}
        rules = self._rules()
        for batch in self._batches(new):
            self._warehouse.commit(self._batch(batch, rules, self._warehouse.manifest))
        self._warehouse.change(lambda current: replace(current, files=without_vanished(current.files)))

    def _window(self, files: dict[Path, InputFile]) -> None:
        before = self._warehouse.manifest
        following = replace(before, fresh={})
        rules = self._rules()
        for batch in self._batches(files):
            following = self._batch(batch, rules, following)
        # Days that the input doesn't hold keep what was read of them before.
        self._warehouse.commit(
            replace(
                following,
                fresh={**before.fresh, **following.fresh},
                replaced=before.replaced | {*following.fresh},
            )
        )

    def _rules(self) -> intake.Rules:
        request = self._request
        watermark = intake.watermark(self._warehouse, request.settings)
        return intake.Rules(request.now, request.begin, request.end, watermark)

    def _batches(self, files: dict[Path, InputFile]) -> Iterator[dict[Path, InputFile]]:
        total = sum(state.size for state in files.values())
        size = 0
        for batch in _batches(files, self._request.batch_bytes):
            self._summary.files += len(batch)
            text = f"{self._summary.files:,} of {len(files):,} files"
            self._progress.step("reading", size / total if total else 1, text)
            yield batch
            size += sum(state.size for state in batch.values())

    def _batch(self, files: dict[Path, InputFile], rules: intake.Rules, before: Manifest) -> Manifest:
        """The state with the points of some files."""
        lines = reading.lines(self._spark, [*files])
        taken = intake.take(self._warehouse, lines, rules)
        self._summary.points += taken.points
        self._summary.refused += taken.refused
        if taken.gone:
            self._summary.files -= len(taken.gone)
            first, *more = sorted(taken.gone)
            others = f" and {len(more):,} more" if more else ""
            self._progress.note(f"passed over, as it is gone by now: {first}{others}")
        there = {str(path): state for path, state in files.items() if str(path) not in taken.gone}
        following = replace(
            intake.with_taken(before, taken),
            quarantine=intake.quarantine_with(self._warehouse, before.quarantine, taken, again=there.keys()),
        )
        if rules.window:  # what else there is in these files is still to be read
            return following
        return replace(following, files={**before.files, **there})


def _batches(files: dict[Path, InputFile], limit: int) -> Iterator[dict[Path, InputFile]]:
    batch: dict[Path, InputFile] = {}
    size = 0
    for path, state in files.items():
        if batch and size + state.size > limit:
            yield batch
            batch, size = {}, 0
        batch[path] = state
        size += state.size
    if batch:
        yield batch


# --- tables --------------------------------------------------------------------------------------


def resettle(warehouse: Warehouse, settings: Settings) -> None:
    """Have all be made anew when they were made with other settings."""
    text = json.dumps(asdict(settings), sort_keys=True)

    def settled(manifest: Manifest) -> Manifest:
        if manifest.settings == text or not (manifest.days or manifest.fresh):
            return manifest
        days = frozenset(manifest.days.get(POINTS.name, {})) if manifest.settings else frozenset()
        return replace(manifest, settings=text, pending=manifest.pending | days, stale=True)

    warehouse.change(settled)


def make_days(
    spark: SparkSession, warehouse: Warehouse, settings: Settings, progress: Progress, summary: Summary
) -> None:
    """Make the tables anew of all days that ask for it."""
    pending = sorted(warehouse.manifest.pending)
    for chunk in _chunks(warehouse, pending):
        progress.step("making days", summary.days / len(pending), f"{chunk[0]} to {chunk[-1]}")
        _make_chunk(spark, warehouse, settings, chunk)
        summary.days += len(chunk)


def _chunks(warehouse: Warehouse, days: Sequence[date]) -> Iterator[list[date]]:
    """Days in turn, as many at a time as make a bearable amount of data."""
    manifest = warehouse.manifest
    held = manifest.days.get(POINTS.name, {})
    chunk: list[date] = []
    size = 0
    for day in days:
        folders = [*manifest.fresh.get(day, ()), *([held[day]] if day in held else [])]
        more = sum(warehouse.size(folder) for folder in folders)
        if chunk and (size + more > _CHUNK_BYTES or len(chunk) == _CHUNK_DAYS):
            yield chunk
            chunk, size = [], 0
        chunk.append(day)
        size += more
    if chunk:
        yield chunk


def _make_chunk(spark: SparkSession, warehouse: Warehouse, settings: Settings, days: list[date]) -> None:
    """Make all tables of some days from their points, and put them in force together."""
    settled = _settled(spark, warehouse, days)
    made: dict[Table, dict[date, str]] = {
        table: {day: settled.days[table.name][day] for day in days} for table in _SETTLED
    }
    points = {**warehouse.manifest.days.get(POINTS.name, {}), **made[POINTS]}
    jobs = []
    for day in days:
        own = warehouse.paths([points[day]])
        before = warehouse.paths(filter(None, [points.get(day - intake.ONE_DAY)]))
        series = warehouse.paths([made[schemas.SERIES][day]])
        jobs.append(daily.Day(day, own, series, before, parts_for([*own, *before])))
    made |= warehouse.write_daily(spark, jobs, settings)
    warehouse.change(lambda current: _with_made(current, settled, made, days))


def _with_made(
    current: Manifest, used: Manifest, made: dict[Table, dict[date, str]], days: Sequence[date]
) -> Manifest:
    """The state in force with the tables of these days, made of what was there when that was begun."""
    for table, folders in made.items():
        current = current.with_days(table.name, folders, days)
    done = {*days}
    # A stream takes points meanwhile.
    fresh = {
        day: tuple(one for one in folders if day not in done or one not in used.fresh.get(day, ()))
        for day, folders in current.fresh.items()
    }
    fresh = {day: folders for day, folders in fresh.items() if folders}
    again = {day for day in done if day in fresh or day - intake.ONE_DAY in fresh}
    return replace(
        current,
        fresh=fresh,
        replaced=current.replaced - done,
        pending=current.pending - done | again,
        stale=True,
    )


def _settled(spark: SparkSession, warehouse: Warehouse, days: Sequence[date]) -> Manifest:
    """The state in which `points` and `series` hold the fresh points of these days too."""
    manifest = warehouse.manifest
    jobs = []
    for day in days:
        if day in manifest.fresh:
            fresh = manifest.fresh[day]
            kept = [] if day in manifest.replaced else [day]
            held, named = (warehouse.folders(table, kept) for table in _SETTLED)
            fresh_paths, held_paths, named_paths = map(warehouse.paths, (fresh, held, named))
            parts = parts_for([*fresh_paths, *held_paths])
            jobs.append(settling.Day(day, fresh_paths, held_paths, named_paths, parts))
    if jobs:
        for table, folders in zip(_SETTLED, warehouse.write_settled(spark, jobs), strict=True):
            manifest = manifest.with_days(table.name, folders, folders)
    return manifest


def make_whole(spark: SparkSession, warehouse: Warehouse, settings: Settings, progress: Progress) -> None:
    """Make the tables without days, from all days that they look back on."""
    manifest = warehouse.manifest
    days = warehouse.days(POINTS)
    if not days or not manifest.stale:
        return
    progress.step("making the tables without days", 0, "")

    def back(table: Table, hours: int, of: Table) -> list[Path]:
        """As far back from the newest day that another table, or this one, has."""
        newest = max(warehouse.days(of), default=days[-1])
        first = newest - timedelta(days=math.ceil(hours / 24))  # a date takes off whole days only
        return warehouse.paths(warehouse.folders(table, [day for day in days if day >= first]))

    weeks, trend = settings.baseline_weeks * 7 * 24, settings.trend_hours
    history = overall.History(
        health=warehouse.paths(warehouse.folders(schemas.HEALTH)),
        sli=back(schemas.SLI, max(slo.WINDOW_HOURS), schemas.SLI),
        hours=back(schemas.ROLLUP_1H, weeks, schemas.ROLLUP_1H),
        series_of_hours=back(schemas.SERIES, weeks, schemas.ROLLUP_1H),
        minutes=back(schemas.ROLLUP_1M, trend, schemas.ROLLUP_1M),
        days=back(schemas.ROLLUP_1D, trend, schemas.ROLLUP_1M),
        series_of_minutes=back(schemas.SERIES, trend, schemas.ROLLUP_1M),
    )
    folders = warehouse.write_overall(spark, history, settings)
    warehouse.change(lambda now: replace(now, whole={**now.whole, **folders}, stale=False, newest=days[-1]))
