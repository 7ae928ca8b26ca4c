"""`pgque-pipeline publish`: baselines, SLOs and forecasts into PostgreSQL."""

from __future__ import annotations

import argparse
from collections.abc import Iterable

from pgque_pipeline.commands.options import add_warehouse_options, destination
from pgque_pipeline.publishing import Published, publish
from pgque_pipeline.warehouse.store import open_warehouse


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Describe the command."""
    parser = commands.add_parser(
        "publish",
        help="write baselines, SLOs and forecasts into PostgreSQL",
        description="Makes the tables of schema queue_history, if they aren't there, and has them hold what "
        "the warehouse says: what is the same stays untouched, what is no more is deleted. Needs no Spark.",
    )
    add_warehouse_options(parser)
    parser.add_argument(
        "--to",
        required=True,
        metavar="DSN",
        help="the database, as a libpq connection string (leave the password to PGQUE_PASSWORD_FILE: here it "
        "would stand in the shell's history)",
    )


def execute(arguments: argparse.Namespace) -> int:
    """Do it; the exit code."""
    target = destination(arguments.to, "--to")
    warehouse = open_warehouse(arguments.warehouse.resolve(), create=False)
    report(publish(warehouse, target))
    return 0


def report(tables: Iterable[Published]) -> None:
    """Print what became of each table."""
    for table in tables:
        print(
            f"{table.name}: {table.rows:,} rows published, {table.changed:,} of them changed, "
            f"{table.removed:,} removed; as of {table.as_of:%Y-%m-%d %H:%M:%S} UTC, "
            f"shown until {table.valid_until:%Y-%m-%d %H:%M:%S} UTC"
        )
        if table.merged:
            print(f"  {table.merged:,} rows differ from these only in labels that a metric here doesn't have")
        if table.unusable:
            print(f"  {table.unusable:,} rows left out: of no database, or with labels that can't be stored")
