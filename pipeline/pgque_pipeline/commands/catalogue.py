"""`pgque-pipeline catalogue`: the tables into an Iceberg catalogue."""

from __future__ import annotations

import argparse

from pgque_exporter.errors import UserError
from pgque_pipeline.commands.options import add_warehouse_options
from pgque_pipeline.warehouse.store import open_warehouse


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Describe the command."""
    parser = commands.add_parser(
        "catalogue",
        help="copy the tables into an Iceberg catalogue",
        description="Has the tables of an Iceberg catalogue hold what the warehouse says. Days that are "
        "as they were the last time are left alone. Needs no Spark.",
    )
    add_warehouse_options(parser)
    parser.add_argument(
        "--to", required=True, metavar="NAME", help="the catalogue, as PyIceberg's configuration calls it"
    )
    parser.add_argument(
        "--namespace", default="queues", metavar="NAME", help="where the tables are in it (queues)"
    )


def execute(arguments: argparse.Namespace) -> int:
    """Do it; the exit code."""
    try:
        from pgque_pipeline.catalogue import copy, open_catalogue
    except ImportError:
        raise UserError(
            "PyIceberg isn't installed", hint="pip install 'pgque-exporter[pipeline,iceberg]'"
        ) from None
    warehouse = open_warehouse(arguments.warehouse.resolve(), create=False)
    for table in copy(warehouse, open_catalogue(arguments.to), arguments.namespace):
        print(f"{arguments.namespace}.{table.name}: {table.written:,} written, {table.removed:,} removed")
    return 0
