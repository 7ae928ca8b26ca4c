"""Of an error's pages the line that says what went wrong."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from pgque_pipeline.causes import cause


def told(call: Callable[[], object]) -> str:
    with pytest.raises(Exception) as caught:  # noqa: PT011 - whatever it is
        call()
    return cause(caught.value)


def test_of_an_error_in_java(spark: SparkSession, tmp_path: Path) -> None:
    """Met in a call, and raised by what the call does in a task of its own."""
    (tmp_path / "file").touch()
    write = spark.range(1).write
    assert told(lambda: write.parquet(str(tmp_path / "file" / "table"))) == (
        "org.apache.hadoop.fs.ParentNotDirectoryException: "
        f"Parent path is not a directory: file:{tmp_path}/file"
    )
    (tmp_path / "broken.parquet").write_text("not a table at all")
    read = spark.read.schema("id bigint").parquet(str(tmp_path / "broken.parquet"))
    assert f"{tmp_path}/broken.parquet" in told(read.collect)


def test_of_an_error_in_a_python_worker(spark: SparkSession) -> None:
    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from batches
        raise ValueError("no room left\nand more of that")

    rows = spark.range(1).mapInArrow(work, "id bigint")
    assert told(rows.collect) == "ValueError: no room left"


def test_of_an_error_with_words_of_its_own(spark: SparkSession) -> None:
    assert told(lambda: spark.range(1).select("nothing")).startswith(
        "AnalysisException: [UNRESOLVED_COLUMN.WITH_SUGGESTION]"
    )


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (ValueError(), "ValueError:"),
        (OSError(28, "No space left on device", "a"), "OSError: [Errno 28] No space left on device: 'a'"),
        (RuntimeError("x" * 1000), f"RuntimeError: {'x' * 286}"),
    ],
)
def test_of_any_other_error(error: Any, line: str) -> None:
    assert cause(error) == line
