"""`pgque-pipeline demo`: generated weeks through the pipeline, and the report on them."""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import webbrowser
from datetime import UTC, datetime
from pathlib import Path

from pgque_exporter.errors import UserError
from pgque_pipeline.commands.opening import spark_for
from pgque_pipeline.commands.options import add_spark_options, count
from pgque_pipeline.demo.history import SEED, round_down, write_history
from pgque_pipeline.progress import Progress
from pgque_pipeline.report.words import counted
from pgque_pipeline.report.write import write_report
from pgque_pipeline.run import Request, run
from pgque_pipeline.settings import Settings
from pgque_pipeline.warehouse.store import open_warehouse

DAYS = 28
# Polls far apart, so that all of it takes a minute or two, and what then counts as a gap.
_STEP, _MAX_GAP = 600, 900
_ARCHIVE, _WAREHOUSE, _REPORT = "archive", "warehouse", "report.html"
_DESKTOPS = ("DISPLAY", "WAYLAND_DISPLAY")


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Describe the command."""
    parser = commands.add_parser(
        "demo",
        help="generate weeks of metrics, run the pipeline on them and show the report",
        description="Generates some weeks of a shop with four queues, one healthy, one late, one stuck and "
        "one failing, as the exporter would have archived them; makes the tables; writes the report and "
        "opens it where there is a desktop.",
    )
    parser.add_argument(
        "--folder",
        type=Path,
        default=Path("demo-history"),
        help="where all of it goes; what an earlier demo left there is replaced (demo-history)",
    )
    parser.add_argument("--days", type=count, default=DAYS, help=f"how many days ({DAYS})")
    parser.add_argument("--seed", type=count, default=SEED, help=f"what chance begins with ({SEED})")
    parser.add_argument("--quiet", action="store_true", help="show no progress and no desktop")
    parser.add_argument("--debug", action="store_true", help="show tracebacks")
    add_spark_options(parser)


def execute(arguments: argparse.Namespace) -> int:
    """Do it; the exit code."""
    folder: Path = arguments.folder.resolve()
    if not arguments.days:
        raise UserError("--days has to be 1 or more")
    _clear(folder)
    days = counted(arguments.days, "day")
    progress = Progress(quiet=arguments.quiet)
    # Before anything is generated: without a Java there is no point in it.
    with spark_for(arguments) as spark:
        try:
            points = write_history(
                folder / _ARCHIVE,
                end=round_down(datetime.now(UTC), _STEP),
                days=arguments.days,
                seed=arguments.seed,
                step=_STEP,
                progress=lambda share: progress.step("generating", share, days),
            )
            warehouse = open_warehouse(folder / _WAREHOUSE, create=True)
            settings = Settings(max_gap=_MAX_GAP)
            request = Request(inputs=[folder / _ARCHIVE], settings=settings, now=datetime.now(UTC))
            run(spark, warehouse, request, progress)
            progress.step("writing the report", 1, "")
            write_report(spark, open_warehouse(warehouse.root, create=False), folder / _REPORT, days=DAYS)
        finally:
            progress.end()
    page = folder / _REPORT
    print(f"{points:,} generated points of {days}, in tables and as a page:")
    print(f"  Report  {page}")
    print(f"  Tables  pgque-pipeline tables --warehouse {folder / _WAREHOUSE}")
    print(f"  Input   {folder / _ARCHIVE}")
    if not arguments.quiet:
        _show(page)
    return 0


def _clear(folder: Path) -> None:
    """Make the folder, without what an earlier demo left. Raises UserError if it holds anything else."""
    if folder.exists() and not folder.is_dir():
        raise UserError("this is no folder", where=str(folder))
    strange = [path.name for path in folder.glob("*") if path.name not in (_ARCHIVE, _WAREHOUSE, _REPORT)]
    if strange:
        raise UserError(
            f"this folder holds other things ({', '.join(sorted(strange)[:3])})",
            where=str(folder),
            hint="give a new or empty folder",
        )
    try:
        for name in (_ARCHIVE, _WAREHOUSE):
            if (folder / name).exists():
                shutil.rmtree(folder / name)
        (folder / _REPORT).unlink(missing_ok=True)
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"can't make room in this folder: {error.strerror}", where=str(folder)) from None


def _show(page: Path) -> None:
    """Open the page where there is a desktop; it is no failure if there is none."""
    if sys.platform.startswith("linux") and not any(os.environ.get(name) for name in _DESKTOPS):
        return
    try:
        webbrowser.open(page.as_uri())
    except (webbrowser.Error, OSError):
        return
