"""From a warehouse to a file."""

from __future__ import annotations

import os
from pathlib import Path

from pyspark.sql import SparkSession

from pgque_exporter.errors import UserError
from pgque_pipeline.report.collect import collect
from pgque_pipeline.report.page import page
from pgque_pipeline.warehouse.store import Warehouse

# Windows that `slo` has.
WINDOW_DAYS = (7, 28, 90)


def require_folder(path: Path) -> None:
    """Raises UserError where no file can be at `path`."""
    if path.is_dir():
        raise UserError("this is a folder", where=str(path), hint="name a file, such as report.html")
    if not path.absolute().parent.is_dir():
        raise UserError("there is no such folder", where=str(path.absolute().parent))


def write_report(spark: SparkSession, warehouse: Warehouse, path: Path, *, days: int) -> None:
    """Write the page about the newest `days`, one of WINDOW_DAYS; a page that was there stays until then."""
    text = page(collect(spark, warehouse, days=days))
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        partial.write_text(text, "utf-8")
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)
