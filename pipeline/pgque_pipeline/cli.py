"""The command line of the pipeline."""

from __future__ import annotations

import argparse
import logging
import sys
import traceback
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, date, datetime
from pathlib import Path
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from pgque_exporter import __version__
from pgque_exporter.errors import UserError
from pgque_pipeline.schemas import TABLES
from pgque_pipeline.settings import Settings

INTERRUPTED = 130


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; the exit code: 0 well, 1 trouble, 2 wrong input, 130 interrupted."""
    words = list(sys.argv[1:] if argv is None else argv)
    parser = _parser()
    arguments = parser.parse_args(words)
    try:
        return int(arguments.execute(arguments))
    except UserError as error:
        return _fail(str(error), error.exit_code)
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        sys.stderr.close()
        return 1
    except Exception as error:  # noqa: BLE001 - a person gets a line, not a traceback
        if arguments.debug:
            traceback.print_exc()
        first = (str(error).strip().splitlines() or [""])[0][:300]
        return _fail(f"{type(error).__name__}: {first}. Run it again with --debug to see where", 1)


def _fail(line: str, code: int) -> int:
    print(f"pgque-pipeline: error: {line}", file=sys.stderr)
    return code


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="pgque-pipeline", description="Metric history of queues, on Spark.")
    parser.add_argument("--version", action="version", version=f"pgque-pipeline {__version__}")
    commands = parser.add_subparsers(metavar="command", required=True)
    run = commands.add_parser(
        "run",
        help="read new input and bring the tables up to date",
        description="Reads what is new in the input and makes the tables anew that it touches. A run that "
        "is killed is made good by the next. With --from or --to those days are read again from all of the "
        "input and replaced.",
    )
    run.add_argument(
        "--input", nargs="+", required=True, type=Path, metavar="PATH", help="files or folders of OTLP JSON"
    )
    run.add_argument(
        "--from", dest="begin", type=_day, metavar="DAY", help="first day to replace, such as 2026-01-31"
    )
    run.add_argument("--to", dest="end", type=_day, metavar="DAY", help="last day to replace")
    run.add_argument(
        "--time-zone", type=_zone, default="UTC", help="of the hours of a week in baselines (UTC)"
    )
    run.add_argument(
        "--watermark", type=_count, default=7, metavar="DAYS", help="how late a point may come (7)"
    )
    run.add_argument(
        "--max-gap",
        type=_count,
        default=300,
        metavar="SECONDS",
        help="silence after which health is unknown (300)",
    )
    run.add_argument("--quiet", action="store_true", help="show no progress")
    _add_common(run)
    run.add_argument("--master", help="Spark master (local[*]); spark-submit brings its own")
    run.add_argument("--memory", default="2g", type=_memory, help="memory of the local Java process (2g)")
    run.set_defaults(execute=_run)
    tables = commands.add_parser("tables", help="list the tables, their columns and where they are")
    _add_common(tables)
    tables.set_defaults(execute=_tables)
    return parser


def _add_common(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--warehouse", required=True, type=Path, metavar="FOLDER", help="folder of the tables"
    )
    parser.add_argument("--debug", action="store_true", help="show tracebacks")


def _day(text: str) -> date:
    try:
        return date.fromisoformat(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is no day such as 2026-01-31") from None


def _zone(text: str) -> str:
    try:
        ZoneInfo(text)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise argparse.ArgumentTypeError(f"{text!r} is no time zone such as Europe/Berlin") from None
    return text


def _count(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is no whole number")
    return int(text)


def _memory(text: str) -> str:
    if not (text[:-1].isdecimal() and text[-1:] in ("m", "g")):
        raise argparse.ArgumentTypeError(f"{text!r} is no amount of memory such as 2g or 1500m")
    return text


def _run(arguments: argparse.Namespace) -> int:
    from pgque_pipeline.progress import Progress
    from pgque_pipeline.run import Request, input_files, run
    from pgque_pipeline.session import open_session
    from pgque_pipeline.warehouse.lock import only_run
    from pgque_pipeline.warehouse.store import open_warehouse

    if arguments.begin and arguments.end and arguments.begin > arguments.end:
        raise UserError("--from is after --to")
    settings = replace(
        Settings(),
        time_zone=arguments.time_zone,
        watermark_days=arguments.watermark,
        max_gap=arguments.max_gap,
    )
    # What is wrong shall show at once, not after the seconds that Spark takes to start.
    input_files(arguments.input)
    warehouse = open_warehouse(arguments.warehouse.resolve(), create=True)
    with only_run(warehouse.root):
        pass
    if not arguments.debug:
        logging.getLogger("SQLQueryContextLogger").disabled = True
    spark = open_session(master=arguments.master, memory=arguments.memory)
    progress = Progress(quiet=arguments.quiet)
    request = Request(
        inputs=arguments.input,
        settings=settings,
        now=datetime.now(UTC),
        begin=arguments.begin,
        end=arguments.end,
    )
    try:
        summary = run(spark, warehouse, request, progress)
    finally:
        progress.end()
        spark.stop()
    print(
        f"{summary.files:,} files read, {summary.points:,} points taken, {summary.refused:,} refused, "
        f"{summary.days:,} days made"
    )
    return 0


def _tables(arguments: argparse.Namespace) -> int:
    from pgque_pipeline.warehouse.store import open_warehouse

    warehouse = open_warehouse(arguments.warehouse.resolve(), create=False)
    for table in TABLES.values():
        print(f"{table.name}: {table.doc}")
        for field in table.fields:
            unit = f" [{field.unit}]" if field.unit else ""
            print(f"    {field.name} {field.type}{unit}: {field.doc}")
        for folder in warehouse.folders(table):
            print(f"  {warehouse.root / folder}")
    return 0
