"""Tables in a folder: reads what is in force, writes what is to be."""

from __future__ import annotations

import os
import shutil
import threading
import uuid
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import date
from itertools import chain
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from pgque_exporter.errors import UserError
from pgque_pipeline import daily, fresh, overall, quarantine, settling
from pgque_pipeline.reading import Lines
from pgque_pipeline.schemas import POINTS, QUARANTINE, SERIES, TABLES, Table
from pgque_pipeline.settings import Settings
from pgque_pipeline.tables import points
from pgque_pipeline.tables.points import Days, Parse
from pgque_pipeline.warehouse import manifest as manifests
from pgque_pipeline.warehouse.manifest import Manifest, sync_folder

# Older states that a reader may still be at work on.
_KEPT_STATES = 2
# Where a stream keeps what Spark wants to remember of it. The manifest is what counts.
CHECKPOINTS = "checkpoints"


class Warehouse:
    """The tables in `root`, in the state that `manifest` says."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.manifest = manifests.load(root)
        self._changing = threading.Lock()

    def commit(self, manifest: Manifest) -> None:
        """Put a state in force."""
        self.manifest = manifests.commit(self.root, manifest)

    def change(self, step: Callable[[Manifest], Manifest]) -> None:
        """Put in force what `step` makes of the state in force, if that differs.

        For threads that work on different parts of it at a time.
        """
        with self._changing:
            following = step(self.manifest)
            if following != self.manifest:
                self.commit(following)

    # --- reading ---------------------------------------------------------------------------------

    def days(self, table: Table) -> list[date]:
        """Days that the table has."""
        return sorted(self.manifest.days.get(table.name, {}))

    def folders(self, table: Table, days: Iterable[date] | None = None) -> list[str]:
        """The folders that hold a table, or some days of it; relative to the warehouse."""
        if table.extent == "file":
            return [*self.manifest.quarantine]
        if table.extent == "whole":
            folder = self.manifest.whole.get(table.name)
            return [folder] if folder else []
        held = self.manifest.days.get(table.name, {})
        return [held[day] for day in sorted(held if days is None else {*days} & {*held})]

    def read(self, spark: SparkSession, table: Table, days: Iterable[date] | None = None) -> DataFrame:
        """A table, or some days of it; empty where there is nothing yet.

        Of points also those that a stream has taken and that aren't in the folders of the table yet.
        """
        if table is POINTS and self.manifest.fresh:
            return self._newest_points(spark, days)
        return self.read_folders(spark, table, self.folders(table, days))

    def _newest_points(self, spark: SparkSession, days: Iterable[date] | None) -> DataFrame:
        held, taken = self.manifest.days.get(POINTS.name, {}), self.manifest.fresh
        wanted = {*held, *taken} if days is None else {*days}
        settled = [held[day] for day in sorted({*held} & wanted - {*taken})]
        rest = [folder for day in sorted({*taken} & wanted) for folder in self.folders_of_points(day)]
        # Fresh points have more columns than points, and all of these.
        together = self.read_folders(spark, POINTS, rest)
        return self.read_folders(spark, POINTS, settled).unionByName(points.deduplicated(together))

    def folders_of_points(self, day: date) -> list[str]:
        """The folders that together hold the points of a day, fresh ones too, and some points twice."""
        held = self.manifest.days.get(POINTS.name, {})
        stay = [held[day]] if day in held and day not in self.manifest.replaced else []
        return [*self.manifest.fresh.get(day, ()), *stay]

    def read_folders(self, spark: SparkSession, table: Table, folders: Sequence[str]) -> DataFrame:
        """What these folders hold of a table; empty without folders."""
        if not folders:
            return spark.createDataFrame([], table.schema)
        paths = [str(self.root / folder) for folder in folders]
        if table.extent != "day":
            return spark.read.schema(table.schema).parquet(*paths)
        # The day is in a folder's name, not in its files; a time in the row tells it as well.
        stored = ", ".join(f"`{field.name}` {field.type}" for field in table.fields if field.name != "date")
        return table.shaped(
            spark.read.schema(stored).parquet(*paths).withColumn("date", sf.to_date(table.time))
        )

    # --- writing ---------------------------------------------------------------------------------

    def write_fresh(
        self, lines: Lines, parse: Parse, *, wanted: Days, taken: Mapping[date, Sequence[Path]]
    ) -> tuple[dict[date, str], str, list[fresh.Outcome], frozenset[str]]:
        """Write what comes of lines into two new folders, as `fresh.write` does; not in force yet.

        The parts with points by day, the folder of what was refused (there is none if nothing was), what the
        tasks say, and the files that were gone.
        """
        points, refused = self._new_folder(POINTS), self._new_folder(QUARANTINE)
        outcomes, gone = fresh.write(lines, parse, fresh.Places(points, refused, wanted, taken))
        _sync(points, refused)
        return self._by_day(points), str(refused.relative_to(self.root)), outcomes, gone

    def write_quarantine(
        self,
        folders: Sequence[str],
        *,
        dropped: Collection[str] = (),
        renamed: Mapping[str, str] | None = None,
    ) -> str | None:
        """Write what these folders tell into a new one, as `quarantine.copy`; None if nothing is left."""
        target = self._new_folder(QUARANTINE)
        if not quarantine.copy(self.paths(folders), target, dropped, renamed or {}):
            return None
        _sync(target)
        return str(target.relative_to(self.root))

    def write_settled(
        self, spark: SparkSession, days: Sequence[settling.Day]
    ) -> tuple[dict[date, str], dict[date, str]]:
        """Write points and series of these days into new folders; the parts of both by day."""
        targets = self._new_folder(POINTS), self._new_folder(SERIES)
        settling.write(spark, days, *targets)
        _sync(*targets)
        points, series = map(self._by_day, targets)
        return points, series

    def write_daily(
        self, spark: SparkSession, days: Sequence[daily.Day], settings: Settings
    ) -> dict[Table, dict[date, str]]:
        """Write the tables of these days that come of their points into new folders; the parts by day."""
        targets = {table: self._new_folder(table) for table in daily.TABLES}
        daily.write(spark, days, {table.name: target for table, target in targets.items()}, settings)
        _sync(*targets.values())
        return {table: self._by_day(target) for table, target in targets.items()}

    def write_overall(
        self, spark: SparkSession, history: overall.History, settings: Settings
    ) -> dict[str, str]:
        """Write the tables without days that come of those by day into new folders, by table."""
        targets = {table: self._new_folder(table) for table in overall.TABLES}
        overall.write(spark, history, {table.name: target for table, target in targets.items()}, settings)
        _sync(*targets.values())
        return {table.name: str(target.relative_to(self.root)) for table, target in targets.items()}

    def write_whole(self, table: Table, rows: DataFrame) -> str:
        """Write a table without days into a new folder, and say which. Not in force yet."""
        target = self._new_folder(table)
        rows.coalesce(1).write.parquet(str(target))
        _sync(target)
        return str(target.relative_to(self.root))

    def paths(self, folders: Iterable[str]) -> list[Path]:
        """Where these folders are."""
        return [self.root / folder for folder in folders]

    def size(self, folder: str) -> int:
        """Bytes in a folder."""
        return sum(path.stat().st_size for path in (self.root / folder).glob("*.parquet"))

    def sweep(self) -> None:
        """Delete what neither the state in force nor the one before needs: old data and what a kill left."""
        kept = manifests.existing(self.root)[-_KEPT_STATES:]
        names = {manifests.name_of(number) for number in kept}
        for path in self.root.glob("manifest-*"):
            if path.name not in names:
                path.unlink()
        needed = {folder for number in kept for folder in manifests.load(self.root, number).all_folders()}
        versions = {str(Path(*Path(folder).parts[:2])) for folder in needed}
        for table in TABLES:
            for version in (self.root / table).glob("*"):
                if str(version.relative_to(self.root)) not in versions:
                    _discard(version)
                    continue
                for part in version.glob("date=*"):
                    if str(part.relative_to(self.root)) not in needed:
                        _discard(part)

    def _by_day(self, folder: Path) -> dict[date, str]:
        parts = {part.name.removeprefix("date="): part for part in folder.glob("date=*")}
        return {date.fromisoformat(day): str(part.relative_to(self.root)) for day, part in parts.items()}

    def _new_folder(self, table: Table) -> Path:
        return self.root / table.name / f"{self.manifest.number + 1:012d}-{uuid.uuid4().hex[:8]}"


def open_warehouse(root: Path, *, create: bool) -> Warehouse:
    """The warehouse in a folder. Raises UserError where there is none and none is to be made."""
    if root.exists() and not root.is_dir():
        raise UserError("the warehouse has to be a folder", where=str(root))
    if not root.is_dir() or not manifests.existing(root):
        if not create:
            raise UserError(
                "there is no warehouse here", where=str(root), hint="`pgque-pipeline run` makes one"
            )
        strange = [path.name for path in root.glob("*") if not _ours(path)] if root.is_dir() else []
        if strange:
            raise UserError(
                f"this folder holds other things ({', '.join(sorted(strange)[:3])})",
                where=str(root),
                hint="give a new or empty folder",
            )
        try:
            root.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UserError(f"can't make this folder: {error.strerror}", where=str(root)) from None
    return Warehouse(root)


def _discard(folder: Path) -> None:
    # What a killed run has left may still be written by its executors. The next sweep gets the rest.
    shutil.rmtree(folder, ignore_errors=True)


def _ours(path: Path) -> bool:
    return path.name in {*TABLES, "run.lock", CHECKPOINTS} or path.name.startswith("manifest-")


def _sync(*folders: Path) -> None:
    """Have files and folders survive a power failure before something names them."""
    for base, _, files in chain.from_iterable(map(os.walk, folders)):
        for name in files:
            descriptor = os.open(os.path.join(base, name), os.O_RDONLY)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
        sync_folder(Path(base))
