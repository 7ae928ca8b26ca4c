"""A run without an end: what is new in the input goes into the tables while others still write to it.

A batch of points every few seconds, put in force with the places up to which each file has been read, in
one step: so each point counts once, whenever the stream is killed. The tables are made at a slower pace.
"""

from __future__ import annotations

import json
import shutil
import threading
import time
import uuid
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from pgque_exporter.errors import UserError
from pgque_pipeline import intake
from pgque_pipeline.causes import cause
from pgque_pipeline.inputs import files_there, refuse_own_files
from pgque_pipeline.live_files import Look
from pgque_pipeline.live_source import LiveLines, LiveSource, options
from pgque_pipeline.progress import Progress
from pgque_pipeline.run import Summary, make_days, make_whole, resettle
from pgque_pipeline.settings import Settings
from pgque_pipeline.warehouse.lock import only_run
from pgque_pipeline.warehouse.store import CHECKPOINTS, Warehouse

# Input of a batch, and seconds after which nobody writes to a file any more.
BATCH_BYTES = 256 * 1024**2
SETTLE_SECONDS = 30.0
# How often in a row the stream is begun again without having got on, or making the tables is tried.
_TRIES = 5
_TICK = 0.1  # seconds
_PATIENCE = 10.0  # seconds for what is under way when the stream is to end


class TablesFailed(UserError):
    """The tables can't be made, time and again; all points that were taken are kept."""

    exit_code = 1


def _present() -> datetime:
    return datetime.now(UTC)


@dataclass(frozen=True)
class StreamRequest:
    """What to do.

    trigger       seconds from the begin of a batch to that of the next
    tables_every  seconds from when the tables were made until they are made again
    once          read what is there now, make the tables, and end; no file is waited for
    """

    inputs: Sequence[Path]
    settings: Settings
    trigger: float = 10.0
    tables_every: float = 300.0
    once: bool = False
    settle: float = SETTLE_SECONDS
    batch_bytes: int = BATCH_BYTES
    now: Callable[[], datetime] = _present


@dataclass
class Stop:
    """How a stream is told to end; `torn` says that something was under way that would not end."""

    asked: threading.Event = field(default_factory=threading.Event)
    torn: bool = False


def stream(
    spark: SparkSession, warehouse: Warehouse, request: StreamRequest, progress: Progress, stop: Stop
) -> Summary:
    """Follow the input until told to stop.

    Raises UserError while a run is at work on the warehouse, and TablesFailed.
    """
    with only_run(warehouse.root):
        warehouse = Warehouse(warehouse.root)  # as it is now that nobody else writes
        shutil.rmtree(warehouse.root / CHECKPOINTS, ignore_errors=True)
        warehouse.sweep()
        resettle(warehouse, request.settings)
        following = _Stream(spark, warehouse, request, progress, stop)
        following.all()
        if not stop.torn:
            warehouse.sweep()
            shutil.rmtree(warehouse.root / CHECKPOINTS, ignore_errors=True)
        return following.summary


@dataclass(frozen=True)
class _Query:
    """Spark's query, its checkpoint, and whether nothing of it is to be put in force any more."""

    spark: StreamingQuery
    checkpoint: Path
    over: threading.Event


class _Stream:
    def __init__(
        self,
        spark: SparkSession,
        warehouse: Warehouse,
        request: StreamRequest,
        progress: Progress,
        stop: Stop,
    ) -> None:
        self._spark = spark
        self._warehouse = warehouse
        self._request = request
        self._progress = progress
        self._stop = stop
        self.summary = Summary()
        # What writes has the turn while what nobody needs is deleted. The tables are made beside batches.
        self._turn = threading.Lock()
        self._pool = ThreadPoolExecutor(1)
        self._making: Future[None] | None = None
        self._tables_due = time.monotonic()
        self._tables_failed = 0  # how often in a row
        self._committed = 0
        self._caught_up = False

    def all(self) -> None:
        """Follow the input; once more after a mishap, such as a file that was renamed at the wrong moment."""
        tries = 0
        while not self._stop.asked.is_set():
            refuse_own_files(self._warehouse.root, files_there(self._request.inputs))
            committed = self._committed
            query = self._start()
            try:
                self._follow(query)
                break
            except PySparkException as error:
                tries = tries + 1 if self._committed == committed else 1
                if tries == _TRIES:
                    raise
                self._progress.warn(f"begun again after a mishap: {cause(error)}")
                self._stop.asked.wait(min(self._request.trigger, 1.0))
            finally:
                self._end(query)
        if self._request.once and not self._stop.asked.is_set():
            self._making = self._pool.submit(self._make_tables)
            while not self._making.done() and not self._stop.asked.wait(_TICK):
                pass
            if self._making.done():
                self._making.result()
        if self._making is not None:
            wait([self._making], timeout=_PATIENCE)
            if self._making.done():
                self._tables_done(self._making)
            else:
                self._stop.torn = True
        self._pool.shutdown(wait=not self._stop.torn)

    def _start(self) -> _Query:
        request = self._request
        self._spark.dataSource.register(LiveSource)
        given = options(
            [*request.inputs],
            self._warehouse.root,
            settle=0.0 if request.once else request.settle,
            limit=request.batch_bytes,
        )
        checkpoint = self._warehouse.root / CHECKPOINTS / uuid.uuid4().hex
        over = threading.Event()

        def batch(rows: DataFrame, number: int) -> None:
            with self._turn:
                if not over.is_set():
                    self._batch(rows, _look(checkpoint, number))

        texts = self._spark.readStream.format(LiveSource.name()).options(**given).load()
        writer = texts.writeStream.foreachBatch(batch).option("checkpointLocation", str(checkpoint))
        if request.once:
            writer = writer.trigger(availableNow=True)
        else:
            writer = writer.trigger(processingTime=f"{round(request.trigger * 1000)} milliseconds")
        return _Query(writer.start(), checkpoint, over)

    def _follow(self, query: _Query) -> None:
        """Wait until the query ends or is to end; make the tables meanwhile. Raises what it died of."""
        while query.spark.isActive and not self._stop.asked.wait(_TICK):
            if not self._request.once:
                self._tables_if_due()
        error = None if self._stop.asked.is_set() else query.spark.exception()
        if error is not None:
            raise error

    def _end(self, query: _Query) -> None:
        """End the query. A batch that is under way may come to its end; one that would begin does nothing."""
        query.over.set()
        if not self._turn.acquire(timeout=_PATIENCE):
            self._stop.torn = True
            return
        self._turn.release()
        until = time.monotonic() + _PATIENCE
        while query.spark.isActive and query.spark.status["isTriggerActive"] and time.monotonic() < until:
            time.sleep(_TICK)  # it notes down what it has done: interrupted, it would complain
        query.spark.stop()
        shutil.rmtree(query.checkpoint, ignore_errors=True)

    # --- points ----------------------------------------------------------------------------------

    def _batch(self, rows: DataFrame, look: Look) -> None:
        """Put the lines of a batch in force, and with them what is known of the input by then."""
        begun = time.monotonic()
        warehouse = self._warehouse
        watermark = intake.watermark(warehouse, self._request.settings)
        rules = intake.Rules(self._request.now(), watermark=watermark)
        taken = intake.Taken()
        if look.pieces:
            taken = intake.take(warehouse, LiveLines(rows), rules)
        quarantine = intake.quarantine_with(
            warehouse, warehouse.manifest.quarantine, taken, again=look.again, moved=look.moved
        )
        warehouse.change(
            lambda current: replace(
                intake.with_taken(current, taken), quarantine=quarantine, files=look.files
            )
        )
        self._committed += 1
        self._caught_up = not look.more
        self.summary.files += len(look.again)
        self.summary.points += taken.points
        self.summary.refused += taken.refused
        if taken.points or taken.refused:
            self._progress.note(_told(taken, time.monotonic() - begun))

    # --- tables ----------------------------------------------------------------------------------

    def _tables_if_due(self) -> None:
        if self._making is not None and self._making.done():
            making, self._making = self._making, None
            self._tables_due = time.monotonic() + self._request.tables_every
            self._tables_done(making)
        if self._making is None and self._caught_up and time.monotonic() >= self._tables_due:
            self._making = self._pool.submit(self._make_tables)

    def _tables_done(self, making: Future[None]) -> None:
        """Go on after a failure, since points can be taken all the same; but not for ever."""
        error = making.exception()
        if error is None:
            self._tables_failed = 0
            return
        if isinstance(error, UserError):  # such as another run on the warehouse: nothing to be tried again
            raise error
        self._tables_failed += 1
        why = cause(error)
        self._progress.warn(
            f"{datetime.now(UTC):%H:%M:%S} the tables can't be made, "
            f"failure {self._tables_failed} of {_TRIES} in a row: {why}"
        )
        if self._tables_failed >= _TRIES:
            raise TablesFailed(
                f"the tables can't be made, {_TRIES} times in a row: {why}",
                where=str(self._warehouse.root),
                hint="all points that were taken are kept: mend the cause and start the stream again",
            ) from error

    def _make_tables(self) -> None:
        begun, before = time.monotonic(), self.summary.days
        warehouse, settings = self._warehouse, self._request.settings
        quiet = Progress(quiet=True)  # a line tells when it is done
        with self._turn:
            warehouse.sweep()
        resettle(warehouse, settings)
        make_days(self._spark, warehouse, settings, quiet, self.summary)
        make_whole(self._spark, warehouse, settings, quiet)
        days, seconds = self.summary.days - before, time.monotonic() - begun
        if days:
            self._progress.note(
                f"{datetime.now(UTC):%H:%M:%S} tables of {days:,} days made in {seconds:.1f} s"
            )


def _look(checkpoint: Path, number: int) -> Look:
    """What a batch reads, as Spark has written it down before the batch began."""
    *_, offset = (checkpoint / "offsets" / str(number)).read_text("utf-8").splitlines()
    return Look.from_json(json.loads(offset))


def _told(taken: intake.Taken, seconds: float) -> str:
    now = datetime.now(UTC)
    text = f"{now:%H:%M:%S} {taken.points:,} points, {taken.points / seconds:,.0f} points/s"
    if taken.newest is not None:
        text += f", the newest {_age((now - taken.newest).total_seconds())} old"
    return text + (f", {taken.refused:,} refused" if taken.refused else "")


def _age(seconds: float) -> str:
    for size, unit in ((86400, "days"), (3600, "h"), (60, "min")):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.1f} s"
