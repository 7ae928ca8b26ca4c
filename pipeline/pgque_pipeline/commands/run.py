"""`pgque-pipeline run`: new input into the tables."""

from __future__ import annotations

import argparse
from datetime import UTC, datetime

from pgque_exporter.errors import UserError
from pgque_pipeline.commands.opening import spark_for, warehouse_to_write
from pgque_pipeline.commands.options import (
    add_input_options,
    add_settings_options,
    add_spark_options,
    add_warehouse_options,
    day,
    destination,
    settings,
)
from pgque_pipeline.commands.publish import report
from pgque_pipeline.inputs import input_files
from pgque_pipeline.progress import Progress
from pgque_pipeline.publishing import publish
from pgque_pipeline.run import Request, run
from pgque_pipeline.warehouse.store import open_warehouse


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Describe the command."""
    parser = commands.add_parser(
        "run",
        help="read new input and bring the tables up to date",
        description="Reads what is new in the input and makes the tables anew that it touches. A run that "
        "is killed is made good by the next. With --from or --to those days are read again from all of the "
        "input and replaced.",
    )
    add_input_options(parser)
    parser.add_argument(
        "--from", dest="begin", type=day, metavar="DAY", help="first day to replace, such as 2026-01-31"
    )
    parser.add_argument("--to", dest="end", type=day, metavar="DAY", help="last day to replace")
    add_settings_options(parser)
    parser.add_argument(
        "--publish-to", metavar="DSN", help="then write into this database what `publish` writes"
    )
    parser.add_argument("--quiet", action="store_true", help="show no progress")
    add_warehouse_options(parser)
    add_spark_options(parser)


def execute(arguments: argparse.Namespace) -> int:
    """Do it; the exit code."""
    if arguments.begin and arguments.end and arguments.begin > arguments.end:
        raise UserError("--from is after --to")
    target = destination(arguments.publish_to, "--publish-to") if arguments.publish_to is not None else None
    # What is wrong shall show at once, not after the seconds that Spark takes to start.
    chosen = settings(arguments)
    input_files(arguments.input)
    warehouse = warehouse_to_write(arguments)
    progress = Progress(quiet=arguments.quiet)
    request = Request(
        inputs=arguments.input,
        settings=chosen,
        now=datetime.now(UTC),
        begin=arguments.begin,
        end=arguments.end,
    )
    with spark_for(arguments) as spark:
        try:
            summary = run(spark, warehouse, request, progress)
        finally:
            progress.end()
    print(
        f"{summary.files:,} files read, {summary.points:,} points taken, {summary.refused:,} refused, "
        f"{summary.days:,} days made"
    )
    if target is not None:
        report(publish(open_warehouse(warehouse.root, create=False), target))
    return 0
