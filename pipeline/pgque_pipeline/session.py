"""The Spark session: the one place that makes it."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from pyspark.sql import SparkSession

from pgque_exporter.errors import UserError

JAVA_NEEDED = 17

# What the tables' meaning rests on, wherever the session comes from.
MEANING: Mapping[str, str] = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.ansi.enabled": "true",
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    # A line may hold many thousand points: not too many lines at a time on their way to Python.
    "spark.sql.execution.arrow.maxRecordsPerBatch": "200",
    "spark.sql.execution.arrow.maxBytesPerBatch": "16m",
}

# A run of minutes: room for the code of many plans, and the slower of Java's compilers only for what is
# called ten times as often as Java would have it, since it took half of a short run. Which collector is at
# work is left to the user: two that are asked for keep Java from starting.
_JAVA_OPTIONS = (
    "-XX:ReservedCodeCacheSize=256m",
    "-XX:Tier4InvocationThreshold=50000",
    "-XX:Tier4MinInvocationThreshold=6000",
    "-XX:Tier4CompileThreshold=150000",
    "-XX:Tier4BackEdgeThreshold=400000",
)
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
    "spark.driver.extraJavaOptions": " ".join(
        (*_JAVA_OPTIONS, f"-Dlog4j2.configurationFile=file:{_LOGGING}")
    ),
}


def open_session(
    *, master: str | None = None, memory: str = "2g", settings: Mapping[str, str] | None = None
) -> SparkSession:
    """The session, on this machine unless `master` or spark-submit says otherwise.

    `memory` is that of the local Java process. Raises UserError where there is no Java that fits.
    """
    submitted = "PYSPARK_GATEWAY_PORT" in os.environ
    if not submitted:
        _check_java()
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    builder = SparkSession.builder.appName("pgque-pipeline")
    if not submitted:
        builder = builder.master(master or "local[*]").config("spark.driver.memory", memory)
        for name, value in _LOCAL.items():
            builder = builder.config(name, value)
    for name, value in {**MEANING, **(settings or {})}.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def find_java() -> str | None:
    """The java program that Spark would start: of JAVA_HOME, else of the path."""
    home = os.environ.get("JAVA_HOME")
    if home:
        program = Path(home) / "bin/java"
        return str(program) if program.exists() else None
    return shutil.which("java")


def java_version(program: str) -> int | None:
    """Major version of a java program; None if it doesn't say."""
    try:
        said = subprocess.run([program, "-version"], capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    match = re.search(r'version "(\d+)', said.stderr + said.stdout)
    return int(match[1]) if match else None


def _check_java() -> None:
    program = find_java()
    hint = f"install Java {JAVA_NEEDED} (Debian: openjdk-{JAVA_NEEDED}-jre-headless) or set JAVA_HOME"
    if program is None:
        raise UserError("Spark needs Java, and none was found", hint=hint)
    version = java_version(program)
    if version is None or version < JAVA_NEEDED:
        found = "does not tell its version" if version is None else f"is Java {version}"
        raise UserError(f"Spark needs Java {JAVA_NEEDED} or newer; {program} {found}", hint=hint)
