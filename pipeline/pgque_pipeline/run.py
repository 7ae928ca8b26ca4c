"""One run: reads new input, makes the tables anew that it touches, and puts each step in force at once.

A run that is killed leaves the last step in force. The next one deletes what was under way and goes on.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from datetime import date, datetime, timedelta
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from pgque_exporter.errors import UserError
from pgque_pipeline import reading, schemas
from pgque_pipeline.progress import Progress
from pgque_pipeline.schemas import FRESH, POINTS, QUARANTINE, Table
from pgque_pipeline.settings import Settings
from pgque_pipeline.tables import (
    baselines,
    flow,
    forecast,
    health,
    incidents,
    latency,
    points,
    rollups,
    series,
    sli,
    slo,
)
from pgque_pipeline.warehouse.lock import only_run
from pgque_pipeline.warehouse.manifest import InputFile, Manifest
from pgque_pipeline.warehouse.store import Warehouse

_ONE_DAY = timedelta(days=1)
# Input that is read, and points whose tables are made, between two commits.
_BATCH_BYTES = 2 * 1024**3
_CHUNK_BYTES = 1024**3
_CHUNK_DAYS = 31
# Input for one file of a day's points, and how much smaller it is as Parquet.
_BYTES_PER_PART = 1024**3
_PACKED = 40
# Small tables cost little but the wait: some are made side by side.
_SIDE_BY_SIDE = 3
# Tables whose rows come spread as they are to be written.
_SPREAD = (schemas.ROLLUP_1M,)


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

    def wants(self, day: date) -> bool:
        """Whether the day is within the window."""
        return (self.begin is None or day >= self.begin) and (self.end is None or day <= self.end)


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
        _resettle(warehouse, request.settings)
        _make_days(spark, warehouse, request.settings, progress, summary)
        _make_whole(spark, warehouse, request.settings, progress)
        warehouse.sweep()
        return summary


def input_files(places: Iterable[Path]) -> dict[Path, InputFile]:
    """All files of these files and folders, hidden ones left out. Raises UserError where there is none."""
    found: dict[Path, InputFile] = {}
    for place in places:
        if not place.exists():
            raise UserError("there is no such file or folder", where=str(place))
        files = (
            [place]
            if place.is_file()
            else [path for path in sorted(place.rglob("*")) if _visible(path, place)]
        )
        if not files:
            raise UserError("there is no file in this folder", where=str(place))
        for path in files:
            try:
                with path.open("rb"):
                    state = path.stat()
            except FileNotFoundError:  # moved meanwhile; the next run finds it under its new name
                continue
            except OSError as error:
                raise UserError(f"can't read this file: {error.strerror}", where=str(path)) from None
            found[path.resolve()] = InputFile(state.st_size, state.st_mtime_ns)
    return found


def _visible(path: Path, place: Path) -> bool:
    return path.is_file() and not any(part.startswith(".") for part in path.relative_to(place).parts)


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
        if any(self._warehouse.root.resolve() in path.parents for path in files):
            raise UserError("the warehouse is within the input", where=str(self._warehouse.root))
        if self._request.window:
            self._window(files)
        else:
            self._what_is_new(files)

    def _what_is_new(self, files: dict[Path, InputFile]) -> None:
        known = self._warehouse.manifest.files
        new = {path: state for path, state in files.items() if known.get(str(path)) != state}
        earliest = self._earliest()
        for batch in self._batches(new):
            self._warehouse.commit(self._batch(batch, earliest, self._warehouse.manifest))

    def _window(self, files: dict[Path, InputFile]) -> None:
        before = self._warehouse.manifest
        following = replace(before, fresh={})
        for batch in self._batches(files):
            following = self._batch(batch, None, following)
        # Days that the input doesn't hold keep what was read of them before.
        self._warehouse.commit(
            replace(
                following,
                fresh={**before.fresh, **following.fresh},
                replaced=before.replaced | {*following.fresh},
            )
        )

    def _batches(self, files: dict[Path, InputFile]) -> Iterator[dict[Path, InputFile]]:
        total = sum(state.size for state in files.values())
        size = 0
        for batch in _batches(files, self._request.batch_bytes):
            self._summary.files += len(batch)
            text = f"{self._summary.files:,} of {len(files):,} files"
            self._progress.step("reading", size / total if total else 1, text)
            yield batch
            size += sum(state.size for state in batch.values())

    def _earliest(self) -> date | None:
        newest = self._warehouse.manifest.newest
        if newest is None:
            return None
        return newest - timedelta(days=self._request.settings.watermark_days)

    def _batch(self, files: dict[Path, InputFile], earliest: date | None, before: Manifest) -> Manifest:
        """The state with the points of some files."""
        request = self._request
        lines = reading.lines(self._spark, [*files])
        written, taken = self._warehouse.write_fresh(
            lines, now=request.now, earliest=earliest, wanted=(request.begin, request.end)
        )
        refused = sum(part.points for part in taken if part.day is None)
        self._summary.points += sum(part.points for part in taken) - refused
        self._summary.refused += refused
        following = replace(
            before,
            fresh={
                **before.fresh,
                **{day: (*before.fresh.get(day, ()), path) for day, path in written.items()},
            },
            pending=before.pending | _touched(written, self._warehouse.manifest),
        )
        if request.window:
            return following  # what is refused is told when the file is read for all its days
        following = replace(
            following, files={**before.files, **{str(path): state for path, state in files.items()}}
        )
        if refused or any(str(path) in before.files for path in files):
            following = self._quarantined(lines, files, earliest, following)
        return following

    def _quarantined(
        self, lines: DataFrame, files: Iterable[Path], earliest: date | None, before: Manifest
    ) -> Manifest:
        """The state with what was refused of these files in place of what was refused of them before."""
        rows = points.flat(lines, now=self._request.now, earliest=earliest)
        if earliest is not None:
            # A file that grows is read again: what is late in it now may have been in time then.
            days = [day for day in self._warehouse.days(POINTS) if day < earliest]
            taken = self._warehouse.read(self._spark, POINTS, days).select("series_id", "ts")
            rows = rows.join(taken.withColumn("taken", sf.lit(True)), ["series_id", "ts"], "left").where(
                "taken is null or reason is null"
            )
        found = points.rejected(rows)
        names = self._spark.createDataFrame([(str(path),) for path in files], "file string")
        others = self._warehouse.read(self._spark, QUARANTINE).join(names, "file", "left_anti")
        folder = self._warehouse.write_whole(QUARANTINE, others.unionByName(found).distinct())
        return replace(before, whole={**before.whole, QUARANTINE.name: folder})


def _parts(input_bytes: int) -> int:
    """Files for each day of a table, so that none grows too large."""
    return max(math.ceil(input_bytes / _BYTES_PER_PART), 1)


def _touched(days: Iterable[date], manifest: Manifest) -> set[date]:
    """These days, and those after them whose counters stand on theirs."""
    held = {*manifest.days.get(POINTS.name, {}), *manifest.fresh}
    return {*days} | {day + _ONE_DAY for day in days if day + _ONE_DAY in held}


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


def _resettle(warehouse: Warehouse, settings: Settings) -> None:
    """Have all be made anew when they were made with other settings."""
    text = json.dumps(asdict(settings), sort_keys=True)
    manifest = warehouse.manifest
    if manifest.settings != text and (manifest.days or manifest.fresh):
        days = frozenset(warehouse.days(POINTS)) if manifest.settings else frozenset()
        warehouse.commit(replace(manifest, settings=text, pending=manifest.pending | days, stale=True))


def _make_days(
    spark: SparkSession, warehouse: Warehouse, settings: Settings, progress: Progress, summary: Summary
) -> None:
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
    manifest = _with_points(spark, warehouse, days)
    made: dict[Table, dict[date, str]] = {POINTS: {d: manifest.days[POINTS.name][d] for d in days}}
    parts = _parts(max(map(warehouse.size, made[POINTS].values())) * _PACKED)

    def read(table: Table) -> DataFrame:
        return warehouse.read_folders(spark, table, [made[table][day] for day in sorted(made[table])])

    def make(*tables: tuple[Table, Callable[[], DataFrame]]) -> None:
        with ThreadPoolExecutor(_SIDE_BY_SIDE) as pool:
            written = [(table, pool.submit(_write, warehouse, table, rows, parts)) for table, rows in tables]
            made.update((table, result.result()) for table, result in written)

    before = sorted({day - _ONE_DAY for day in days} - {*days})
    stood = warehouse.read(spark, POINTS, before)
    fresh = warehouse.read_folders(spark, FRESH, _fresh(warehouse.manifest, days))
    named = warehouse.read(spark, schemas.SERIES, [*{*days} - warehouse.manifest.replaced])
    make(
        (schemas.ROLLUP_1M, lambda: rollups.rollup_1m(read(POINTS), stood, parts=parts)),
        (schemas.SERIES, lambda: series.series(read(POINTS), fresh, named)),
    )
    make((schemas.ROLLUP_1H, lambda: rollups.merged(read(schemas.ROLLUP_1M), "hour")))
    make(
        (
            schemas.HEALTH,
            lambda: health.health(read(POINTS), read(schemas.SERIES), settings.max_gap),
        ),
        (schemas.ROLLUP_1D, lambda: rollups.merged(read(schemas.ROLLUP_1H), "day")),
        (schemas.FLOW, lambda: flow.flow(read(schemas.ROLLUP_1H), read(schemas.SERIES))),
        (
            schemas.LATENCY,
            lambda: latency.latency(read(POINTS), read(schemas.ROLLUP_1H), read(schemas.SERIES)),
        ),
        (
            schemas.SLI,
            lambda: sli.sli(read(POINTS), read(schemas.ROLLUP_1H), read(schemas.SERIES), settings.objectives),
        ),
    )
    for table, folders in made.items():
        manifest = manifest.with_days(table.name, folders, days)
    done = {*days}
    warehouse.commit(
        replace(
            manifest,
            fresh={day: folders for day, folders in manifest.fresh.items() if day not in done},
            replaced=manifest.replaced - done,
            pending=manifest.pending - done,
            stale=True,
        )
    )


def _write(warehouse: Warehouse, table: Table, rows: Callable[[], DataFrame], parts: int) -> dict[date, str]:
    first, second = table.columns[1:3]
    found = rows()
    if table not in _SPREAD:
        found = found.repartition("date", sf.expr(f"pmod(xxhash64({first}), {parts})"))
    return warehouse.write_days(table, found.sortWithinPartitions("date", first, second))


def _write_whole(warehouse: Warehouse, table: Table, rows: Callable[[], DataFrame]) -> str:
    return warehouse.write_whole(table, rows())


def _fresh(manifest: Manifest, days: Iterable[date]) -> list[str]:
    return [folder for day in days for folder in manifest.fresh.get(day, ())]


def _with_points(spark: SparkSession, warehouse: Warehouse, days: Sequence[date]) -> Manifest:
    """The state in which `points` holds the fresh ones of these days too, in one folder a day."""
    manifest = warehouse.manifest
    held = manifest.days.get(POINTS.name, {})
    changed = [day for day in days if day in manifest.fresh]
    if not changed:
        return manifest
    fresh = _fresh(manifest, changed)
    kept = [held[day] for day in changed if day in held and day not in manifest.replaced]
    together = POINTS.shaped(warehouse.read_folders(spark, FRESH, fresh))
    if kept:
        together = together.unionByName(warehouse.read_folders(spark, POINTS, kept))
    parts = _parts(max(map(warehouse.size, (*fresh, *kept))) * _PACKED)
    found = warehouse.write_days(POINTS, points.deduplicated(together, parts))
    return manifest.with_days(POINTS.name, found, changed)


def _make_whole(spark: SparkSession, warehouse: Warehouse, settings: Settings, progress: Progress) -> None:
    """Make the tables without days, from all days that they look back on."""
    manifest = warehouse.manifest
    days = warehouse.days(POINTS)
    if not days or not manifest.stale:
        return
    progress.step("making the tables without days", 0, "")

    def back(table: Table, hours: int) -> DataFrame:
        first = days[-1] - timedelta(days=math.ceil(hours / 24))  # a date takes off whole days only
        return warehouse.read(spark, table, [day for day in days if day >= first])

    weeks, trend = settings.baseline_weeks * 7 * 24, settings.trend_hours
    makers: dict[Table, Callable[[], DataFrame]] = {
        schemas.INCIDENTS: lambda: incidents.incidents(
            warehouse.read(spark, schemas.HEALTH), settings.max_gap
        ),
        schemas.SLO: lambda: slo.slo(back(schemas.SLI, max(slo.WINDOW_HOURS)), settings.objectives),
        schemas.BASELINES: lambda: baselines.baselines(
            back(schemas.ROLLUP_1H, weeks),
            series.latest(back(schemas.SERIES, weeks)),
            time_zone=settings.time_zone,
            weeks=settings.baseline_weeks,
        ),
        schemas.FORECAST: lambda: forecast.forecast(
            back(schemas.ROLLUP_1M, trend),
            series.latest(back(schemas.SERIES, trend)),
            hours=settings.trend_hours,
        ),
    }
    with ThreadPoolExecutor(_SIDE_BY_SIDE) as pool:
        written = {table: pool.submit(_write_whole, warehouse, table, rows) for table, rows in makers.items()}
        folders = {table.name: result.result() for table, result in written.items()}
    warehouse.commit(replace(manifest, whole={**manifest.whole, **folders}, stale=False, newest=days[-1]))
