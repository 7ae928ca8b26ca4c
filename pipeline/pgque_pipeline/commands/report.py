"""`pgque-pipeline report`: the tables as one page for people."""

from __future__ import annotations

import argparse
from pathlib import Path

from pgque_exporter.errors import UserError
from pgque_pipeline.commands.opening import spark_for
from pgque_pipeline.commands.options import add_spark_options, add_warehouse_options
from pgque_pipeline.report.write import WINDOW_DAYS, require_folder, write_report
from pgque_pipeline.warehouse.store import open_warehouse


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Describe the command."""
    parser = commands.add_parser(
        "report",
        help="write a page with what the tables tell",
        description="Writes one HTML page, whole in itself: what needs attention, promises and their error "
        "budgets, incidents, forecasts, flow, lag, and what the data doesn't know.",
    )
    parser.add_argument(
        "--output", required=True, type=Path, metavar="FILE", help="the page, such as report.html"
    )
    parser.add_argument(
        "--days", type=int, choices=WINDOW_DAYS, default=28, help="how far back it looks (28)"
    )
    add_warehouse_options(parser)
    add_spark_options(parser)


def execute(arguments: argparse.Namespace) -> int:
    """Do it; the exit code."""
    require_folder(arguments.output)
    warehouse = open_warehouse(arguments.warehouse.resolve(), create=False)
    with spark_for(arguments) as spark:
        try:
            write_report(spark, warehouse, arguments.output, days=arguments.days)
        except OSError as error:
            raise UserError(
                f"can't write the report: {error.strerror}", where=str(arguments.output)
            ) from None
    print(arguments.output)
    return 0
