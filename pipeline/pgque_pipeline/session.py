"""The Spark session: the one place that makes it."""

from __future__ import annotations

import atexit
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
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
_LOGGING = Path(__file__).with_name("log4j2.properties")

# What suits one machine; `spark-submit` brings its own.
_LOCAL: Mapping[str, str] = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.sql.shuffle.partitions": "8",
    "spark.sql.files.openCostInBytes": "65536",
    "spark.sql.sources.parallelPartitionDiscovery.threshold": "100000",
}
_SOCKET_NAME = len("/.01234567-89ab-cdef-0123-456789abcdef.sock")
_SOCKET_PATH = 103  # bytes of a socket's path on all systems

_PATIENCE = 5.0  # seconds for the workers' end
_TICK = 0.02


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
        for name, value in {**_LOCAL, **_sockets()}.items():
            builder = builder.config(name, value)
    for name, value in {**MEANING, **(settings or {})}.items():
        builder = builder.config(name, value)
    # From the main thread Spark would take Ctrl-C for itself, to ask Java something amid another answer.
    with ThreadPoolExecutor(1) as other:
        return other.submit(builder.getOrCreate).result()


def _sockets() -> Mapping[str, str]:
    """Sockets to and from Python that cost a third less for each task than TCP's, where their names fit.

    They have a folder of their own: workers that are killed leave theirs behind.
    """
    folder = tempfile.mkdtemp(prefix="pgque-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    if len(os.fsencode(folder)) + _SOCKET_NAME > _SOCKET_PATH:
        return {}
    return {
        "spark.python.unix.domain.socket.enabled": "true",
        "spark.python.unix.domain.socket.dir": folder,
    }


def close_session(spark: SparkSession) -> None:
    """End the session and all that is under way, without a word of Spark's about what it misses then.

    It would hang up on its idle Python workers and only then end them, and they show a traceback at once.
    """
    with suppress(Py4JError, OSError):  # Java is gone already
        spark.sparkContext.setLogLevel("OFF")
        spark.sparkContext.cancelAllJobs()
        end_workers(spark)
    spark.stop()


def end_workers(spark: SparkSession) -> None:
    """End the Python workers that the driver's Java has started, and wait for them; no job may follow."""
    until = time.monotonic() + _PATIENCE
    while (workers := workers_of(spark)) and time.monotonic() < until:
        for worker in workers:
            with suppress(ProcessLookupError):
                os.killpg(worker, signal.SIGKILL)  # asked to end, they may show a traceback too
        time.sleep(_TICK)


def workers_of(spark: SparkSession) -> list[int]:
    """The processes that fork workers: Java's children that have made themselves the head of a group."""
    java: Any = spark.sparkContext._jvm
    children = [child.pid() for child in java.java.lang.ProcessHandle.current().children().toArray()]
    return [child for child in children if child != os.getpid() and _group(child) == child]


def _group(process: int) -> int | None:
    try:
        return os.getpgid(process)
    except ProcessLookupError:
        return None
