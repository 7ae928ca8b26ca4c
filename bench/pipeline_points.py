"""Raw OTLP JSON to `points` by the pipeline: what `pgque-pipeline run` does first, and nothing else.

    python -m bench.pipeline_points points INPUT OUTPUT

Prints JSON as the peers do. Spark and its workers are started before time is taken.
"""

from __future__ import annotations

import json
import shutil
import sys
import time
from datetime import UTC, datetime
from pathlib import Path

from pyspark.sql import functions as sf

from pgque_pipeline import fresh, intake, reading, settling
from pgque_pipeline.schemas import POINTS
from pgque_pipeline.session import close_session, open_session
from pgque_pipeline.warehouse.store import open_warehouse
from pgque_pipeline.workers import spread


def _warm(_: int) -> str:
    time.sleep(0.5)  # as long as the other workers take to begin
    return fresh.__name__


def main() -> int:
    _, given, target = sys.argv[1:]
    shutil.rmtree(target, ignore_errors=True)
    spark = open_session()
    spread(spark, _warm, range(spark.sparkContext.defaultParallelism))
    warehouse = open_warehouse(Path(target).resolve(), create=True)
    began = time.perf_counter()
    lines = reading.lines(spark, sorted(Path(given).glob("*.json")))
    taken = intake.take(warehouse, lines, intake.Rules(datetime.now(UTC)))
    days = [settling.Day(day, [warehouse.root / fresh], [], [], 1) for day, fresh in taken.folders.items()]
    points, _ = warehouse.write_settled(spark, days)
    seconds = time.perf_counter() - began
    found = warehouse.read_folders(spark, POINTS, [*points.values()])
    rows, total = found.agg(sf.count("*"), sf.sum("value")).collect()[0]
    close_session(spark)
    print(json.dumps({"points_seconds": seconds, "rows": {"points": rows}, "sum": total}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
