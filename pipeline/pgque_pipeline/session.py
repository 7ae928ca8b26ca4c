"""The Spark session: the one place that makes it."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

from pgque_pipeline import class_archive
from pgque_pipeline.java import needed_java

# What the tables' meaning rests on, wherever the session comes from.
MEANING: Mapping[str, str] = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.ansi.enabled": "true",
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    # A line may hold many thousand points: not too many lines at a time on their way to Python.
    "spark.sql.execution.arrow.maxRecordsPerBatch": "200",
    "spark.sql.execution.arrow.maxBytesPerBatch": "16m",
}

# Spark's Java only tells the workers what to do: what the fast one of its compilers makes is good enough, and
# the other took half of a short run. Which collector is at work is left to the user: two that are asked for
# keep Java from starting.
_JAVA_OPTIONS = ("-XX:TieredStopAtLevel=1", "-XX:ReservedCodeCacheSize=256m")
_PATIENCE = 5.0  # seconds for the workers' end
_LOGGING = Path(__file__).with_name("log4j2.properties")

# What suits one machine; `spark-submit` brings its own.
_LOCAL: Mapping[str, str] = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.sql.shuffle.partitions": "8",
    # To and from Python: a third less for each task than over TCP.
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.sql.files.openCostInBytes": "65536",
    "spark.sql.sources.parallelPartitionDiscovery.threshold": "100000",
}


def open_session(
    *,
    master: str | None = None,
    memory: str = "2g",
    settings: Mapping[str, str] | None = None,
    java_options: Sequence[str] | None = None,
) -> SparkSession:
    """The session, on this machine unless `master` or spark-submit says otherwise.

    `memory` is that of the local Java process, `java_options` stand for those that make it start fast.
    Raises UserError where there is no Java that fits.
    """
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    builder = SparkSession.builder.appName("pgque-pipeline")
    if "PYSPARK_GATEWAY_PORT" not in os.environ:
        java = needed_java()
        given = class_archive.options(java) if java_options is None else java_options
        options = (*_JAVA_OPTIONS, *given, f"-Dlog4j2.configurationFile=file:{_LOGGING}")
        builder = builder.master(master or "local[*]").config("spark.driver.memory", memory)
        builder = builder.config("spark.driver.extraJavaOptions", " ".join(f'"{one}"' for one in options))
        for name, value in _LOCAL.items():
            builder = builder.config(name, value)
    for name, value in {**MEANING, **(settings or {})}.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def close_session(spark: SparkSession) -> None:
    """End the session, and before it the processes that Java has started for it.

    Spark would hang up on its idle workers and only then end them: a traceback of theirs may come in between.
    """
    with suppress(Py4JError, OSError):  # Java is gone already
        end_workers(spark)
    spark.stop()


def end_workers(spark: SparkSession) -> None:
    """End the Python workers that the driver's Java has started, and wait for them; no job may follow."""
    for worker in (workers := workers_of(spark)):
        worker.destroy()
    until = time.monotonic() + _PATIENCE
    while any(worker.isAlive() for worker in workers) and time.monotonic() < until:
        time.sleep(0.01)


def workers_of(spark: SparkSession) -> list[Any]:
    """Java's handles of its children; this process isn't meant, which is one under spark-submit."""
    java: Any = spark.sparkContext._jvm
    children = java.java.lang.ProcessHandle.current().children().toArray()
    return [child for child in children if child.pid() != os.getpid()]
