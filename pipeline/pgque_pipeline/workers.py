"""Work that Spark spreads over its Python workers, each job on its own: from files to files."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from pyspark.sql import SparkSession

# A task of Spark costs some 30 ms: jobs that would wait for each other anyway share one. A few for each core,
# so that none has much left when the others are done.
_TASKS_PER_CORE = 4

Job = TypeVar("Job")
Result = TypeVar("Result")


def spread(spark: SparkSession, work: Callable[[Job], Result], jobs: Sequence[Job]) -> list[Result]:
    """What comes of each job, in their order.

    A job may be begun more than once, by a cluster that has lost a worker: it has to bear that.
    """
    if not jobs:
        return []
    context = spark.sparkContext
    tasks = min(len(jobs), context.defaultParallelism * _TASKS_PER_CORE)
    return context.parallelize(jobs, tasks).map(work).collect()
