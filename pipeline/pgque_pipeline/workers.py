"""Work that Spark spreads over its Python workers, each job on its own: from files to files."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from pyspark.sql import SparkSession

Job = TypeVar("Job")
Result = TypeVar("Result")


def spread(spark: SparkSession, work: Callable[[Job], Result], jobs: Sequence[Job]) -> list[Result]:
    """What comes of each job, in their order.

    A job may be begun more than once, by a cluster that has lost a worker: it has to bear that.
    """
    if not jobs:
        return []
    return spark.sparkContext.parallelize(jobs, len(jobs)).map(work).collect()
