"""What commands open before they begin: the warehouse, and Spark."""

from __future__ import annotations

import argparse
import logging
from collections.abc import Iterator
from contextlib import contextmanager

from pyspark.sql import SparkSession

from pgque_pipeline.commands.interrupts import Interrupts
from pgque_pipeline.session import close_session, open_session
from pgque_pipeline.warehouse.lock import only_run
from pgque_pipeline.warehouse.store import Warehouse, open_warehouse


def warehouse_to_write(arguments: argparse.Namespace) -> Warehouse:
    """The warehouse, new if there is none.

    Raises UserError at once, not after Spark's start, where it can't be written to or another run is at it.
    """
    warehouse = open_warehouse(arguments.warehouse.resolve(), create=True)
    with only_run(warehouse.root):
        return warehouse


def start_spark(arguments: argparse.Namespace) -> SparkSession:
    """Spark, as the options say; but with --debug without a log of mistakes that are told in one line."""
    if not arguments.debug:
        logging.getLogger("SQLQueryContextLogger").disabled = True
    return open_session(master=arguments.master, memory=arguments.memory)


@contextmanager
def spark_for(arguments: argparse.Namespace) -> Iterator[SparkSession]:
    """Spark, until the command is done with it or is interrupted."""
    with Interrupts() as interrupts:
        spark = start_spark(arguments)
        try:
            interrupts.allow()
            yield spark
        finally:
            close_session(spark)
