"""A run, or a stream, to be killed: a process of its own on the Java process of another.

    python -m tests.pipeline.killed_run run|stream PORT TOKEN INPUT WAREHOUSE

Spark takes seconds to start, and what a kill can leave half done is the driver's work. So these runs share
the tests' Spark, as runs on a cluster do, where what was under way goes on writing for a while, too.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path


def main() -> None:
    command, port, token, place, root = sys.argv[1:]
    os.environ["PYSPARK_GATEWAY_PORT"], os.environ["PYSPARK_GATEWAY_SECRET"] = port, token
    from pyspark import SparkContext
    from pyspark.java_gateway import launch_gateway
    from pyspark.sql import SparkSession

    from pgque_pipeline.progress import Progress
    from pgque_pipeline.run import Request, run
    from pgque_pipeline.stream import Stop, StreamRequest, stream
    from pgque_pipeline.warehouse.store import open_warehouse
    from tests.pipeline.test_run import NOW
    from tests.pipeline.truth import SETTINGS

    gateway = launch_gateway()
    java = gateway.jvm.org.apache.spark
    context = java.api.java.JavaSparkContext.fromSparkContext(java.SparkContext.getOrCreate())
    spark = SparkSession(SparkContext(gateway=gateway, jsc=context), java.sql.classic.SparkSession.active())
    inputs, warehouse, progress = [Path(place)], open_warehouse(Path(root), create=True), Progress(quiet=True)
    if command == "run":
        run(spark, warehouse, Request(inputs=inputs, settings=SETTINGS, now=NOW, batch_bytes=1), progress)
    else:
        given = StreamRequest(
            inputs=inputs, settings=SETTINGS, trigger=0.2, tables_every=0.5, batch_bytes=100_000
        )
        stream(spark, warehouse, given, progress, Stop())
    os._exit(0)  # the Spark is not ours to stop


if __name__ == "__main__":
    main()
