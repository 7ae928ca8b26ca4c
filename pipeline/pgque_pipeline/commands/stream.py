"""`pgque-pipeline stream`: the tables kept up to date while the input is written."""

from __future__ import annotations

import argparse
import os
import signal
import sys
from types import FrameType

from pgque_exporter.errors import UserError
from pgque_pipeline.commands.opening import start_spark, warehouse_to_write
from pgque_pipeline.commands.options import (
    add_input_options,
    add_settings_options,
    add_spark_options,
    add_warehouse_options,
    seconds,
    settings,
)
from pgque_pipeline.progress import Progress
from pgque_pipeline.session import close_session
from pgque_pipeline.stream import Stop, StreamRequest, stream


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Describe the command."""
    parser = commands.add_parser(
        "stream",
        help="keep the tables up to date while the input is written",
        description="Follows files that others still write to, also when these are renamed or packed, and "
        "puts their points in force with every batch. It goes on where a stream or a run has left off. "
        "SIGTERM and Ctrl-C end it.",
    )
    add_input_options(parser)
    parser.add_argument(
        "--trigger", type=seconds, default=10, metavar="SECONDS", help="from batch to batch (10)"
    )
    parser.add_argument(
        "--tables-every",
        type=seconds,
        default=300,
        metavar="SECONDS",
        help="how often the tables made of points are made anew (300)",
    )
    parser.add_argument("--once", action="store_true", help="read what is there, make the tables, and end")
    add_settings_options(parser)
    parser.add_argument("--quiet", action="store_true", help="show no progress")
    add_warehouse_options(parser)
    add_spark_options(parser)


def execute(arguments: argparse.Namespace) -> int:
    """Do it; the exit code."""
    chosen = settings(arguments)
    for place in arguments.input:
        if not place.exists():
            raise UserError("there is no such file or folder", where=str(place))
    warehouse = warehouse_to_write(arguments)
    stop = Stop()

    def end(number: int, frame: FrameType | None) -> None:  # noqa: ARG001
        if stop.asked.is_set():  # the patience is gone
            os._exit(0)
        stop.asked.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, end)
    spark = start_spark(arguments)
    try:
        request = StreamRequest(
            inputs=[place.resolve() for place in arguments.input],
            settings=chosen,
            trigger=arguments.trigger,
            tables_every=arguments.tables_every,
            once=arguments.once,
        )
        summary = stream(spark, warehouse, request, Progress(quiet=arguments.quiet), stop)
        print(f"{summary.points:,} points taken, {summary.refused:,} refused", flush=True)
    finally:
        close_session(spark)
    if stop.torn:  # what is under way would be waited for, and nothing of it is needed
        sys.stderr.flush()
        os._exit(0)
    return 0
