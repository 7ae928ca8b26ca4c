"""Options that several commands share, and the values that they take."""

from __future__ import annotations

import argparse
import math
import os
from datetime import date
from pathlib import Path
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from pgque_exporter.config import TargetConfig
from pgque_exporter.config_targets import check_dsn
from pgque_exporter.config_values import readable
from pgque_exporter.errors import UserError
from pgque_pipeline import objectives
from pgque_pipeline.settings import OBJECTIVES, Settings


def add_warehouse_options(parser: argparse.ArgumentParser) -> None:
    """Where the tables are, and whether a mistake shows its traceback."""
    parser.add_argument(
        "--warehouse", required=True, type=Path, metavar="FOLDER", help="folder of the tables"
    )
    parser.add_argument("--debug", action="store_true", help="show tracebacks")


def add_input_options(parser: argparse.ArgumentParser) -> None:
    """What is read."""
    parser.add_argument(
        "--input", nargs="+", required=True, type=Path, metavar="PATH", help="files or folders of OTLP JSON"
    )


def add_spark_options(parser: argparse.ArgumentParser) -> None:
    """Which Spark does the work."""
    parser.add_argument("--master", help="Spark master (local[*]); spark-submit brings its own")
    parser.add_argument("--memory", default="2g", type=memory, help="memory of the local Java process (2g)")


def add_settings_options(parser: argparse.ArgumentParser) -> None:
    """What shapes the tables."""
    parser.add_argument(
        "--time-zone", type=zone, default="UTC", help="of the hours of a week in baselines (UTC)"
    )
    parser.add_argument(
        "--watermark", type=count, default=7, metavar="DAYS", help="how late a point may come (7)"
    )
    parser.add_argument(
        "--max-gap",
        type=count,
        default=300,
        metavar="SECONDS",
        help="silence after which health is unknown (300)",
    )
    parser.add_argument(
        "--objectives", type=Path, metavar="FILE", help="what is promised, instead of the usual (YAML)"
    )


def settings(arguments: argparse.Namespace) -> Settings:
    """What the options of `add_settings_options` say. Raises UserError if the objectives can't be read."""
    given = arguments.objectives
    return Settings(
        time_zone=arguments.time_zone,
        watermark_days=arguments.watermark,
        max_gap=arguments.max_gap,
        objectives=OBJECTIVES if given is None else objectives.read(given),
    )


def destination(dsn: str, option: str) -> TargetConfig:
    """The database that an option names; its password may be where the exporter looks for it.

    Raises UserError, which never holds any of the text.
    """
    if not dsn:
        raise UserError("the dsn is empty", where=option, hint="write postgresql://user@host/dbname")
    name = check_dsn(dsn, option)
    file = os.environ.get("PGQUE_PASSWORD_FILE")
    return TargetConfig(name, dsn, readable(file, "PGQUE_PASSWORD_FILE") if file else None)


def day(text: str) -> date:
    """A day as ISO 8601 writes it."""
    try:
        return date.fromisoformat(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is no day such as 2026-01-31") from None


def zone(text: str) -> str:
    """The name of a time zone."""
    try:
        ZoneInfo(text)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise argparse.ArgumentTypeError(f"{text!r} is no time zone such as Europe/Berlin") from None
    return text


def count(text: str) -> int:
    """A whole number, 0 or more."""
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is no whole number")
    return int(text)


def seconds(text: str) -> float:
    """A time in seconds, above 0."""
    try:
        found = float(text)
    except ValueError:
        found = math.nan
    if not 0 < found < math.inf:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of seconds above 0")
    return found


def memory(text: str) -> str:
    """An amount of memory as Java takes it."""
    if not (text[:-1].isdecimal() and text[-1:] in ("m", "g")):
        raise argparse.ArgumentTypeError(f"{text!r} is no amount of memory such as 2g or 1500m")
    return text
