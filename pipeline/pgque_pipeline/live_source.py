"""Lines of files that are still written to, as a source of Spark's Structured Streaming.

An offset is a `Look`: all that is known of the input, and what is to be read to get there. What was
read before a stream began is told by the warehouse, so Spark's own checkpoint has to outlive nothing.
"""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import DataFrame
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from pgque_pipeline import live_files
from pgque_pipeline.inputs import files_there
from pgque_pipeline.live_files import Look, Piece, Watch
from pgque_pipeline.reading import Lists, Share, shares
from pgque_pipeline.warehouse import manifest
from pgque_pipeline.warehouse.manifest import InputFile

Offset = dict[str, Any]
T = TypeVar("T")


def options(inputs: list[Path], warehouse: Path, *, settle: float, limit: int) -> dict[str, str]:
    """What the source has to be told; `settle` and `limit` as for `Watch`."""
    return {
        "inputs": json.dumps([str(path) for path in inputs]),
        "warehouse": str(warehouse),
        "settle": str(settle),
        "limit": str(limit),
    }


class LiveSource(DataSource):
    """Rows of file and line."""

    @classmethod
    def name(cls) -> str:
        """What it is called in `readStream.format`."""
        return "pgque-live"

    def schema(self) -> str:
        """Its columns."""
        return "file string, line binary"

    def streamReader(self, schema: StructType) -> LiveReader:  # noqa: ARG002, N802
        """Its reader."""
        return LiveReader(self.options)


class _Task(InputPartition):
    def __init__(self, task: list[Share[Piece]]) -> None:
        super().__init__(task)


class LiveReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Looks at the input for each batch; lives in a process of its own beside the driver."""

    def __init__(self, given: MutableMapping[str, str]) -> None:
        self._inputs = [Path(path) for path in json.loads(given["inputs"])]
        self._warehouse = Path(given["warehouse"])
        self._watch = Watch(settle=float(given["settle"]), limit=int(given["limit"]))
        self._fixed: Mapping[Path, InputFile] | None = None

    def initialOffset(self) -> Offset:  # noqa: N802
        """What the warehouse knows of the input. The first look tells whether there is more."""
        return Look(manifest.load(self._warehouse).files, more=True).as_json()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """From now on nothing that comes is new."""
        self._fixed = files_there(self._inputs)

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:  # noqa: ARG002, N802
        """Where to get to with the next batch; `start` if there is nothing to do."""
        before = Look.from_json(start)
        found = files_there(self._inputs) if self._fixed is None else self._fixed
        look = self._watch.look(found, before.files)
        if not look.pieces and look.more == before.more and dict(look.files) == dict(before.files):
            return start
        return look.as_json()

    def partitions(self, start: Offset, end: Offset) -> list[InputPartition]:  # noqa: ARG002
        """What each task is to read."""
        return [_Task(task) for task in shares(Look.from_json(end).pieces)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The lines of a task."""
        for path, texts in live_files.read(partition.value):
            files = pa.array([path] * len(texts), pa.string())
            yield pa.RecordBatch.from_arrays([files, pa.array(texts, pa.binary())], ["file", "line"])


@dataclass(frozen=True)
class LiveLines:
    """The lines of a batch of this source."""

    rows: DataFrame

    def spread(self, work: Callable[[int, Lists], T]) -> tuple[list[T], frozenset[str]]:
        """What comes of the lines of each task, with its number. A file that is gone has ended the batch."""
        task = partial(_worked, work=work)
        found = self.rows.select("file", "line").mapInArrow(task, "result binary").collect()
        return [pickle.loads(row["result"]) for row in found], frozenset()  # noqa: S301 - from our workers


def _worked(
    batches: Iterator[pa.RecordBatch], work: Callable[[int, Lists], object]
) -> Iterator[pa.RecordBatch]:
    context = TaskContext.get()
    result = work(context.partitionId() if context else 0, _lists(batches))
    yield pa.RecordBatch.from_pydict({"result": [pickle.dumps(result)]})


def _lists(batches: Iterator[pa.RecordBatch]) -> Lists:
    for batch in batches:
        pairs = zip(batch.column("file").to_pylist(), batch.column("line").to_pylist(), strict=True)
        for file, of_file in groupby(pairs, itemgetter(0)):
            yield file, [line for _, line in of_file]
