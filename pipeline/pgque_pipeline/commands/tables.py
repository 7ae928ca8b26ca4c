"""`pgque-pipeline tables`: what there is, and where."""

from __future__ import annotations

import argparse

from pgque_pipeline.commands.options import add_warehouse_options
from pgque_pipeline.schemas import TABLES
from pgque_pipeline.warehouse.store import open_warehouse


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Describe the command."""
    parser = commands.add_parser("tables", help="list the tables, their columns and where they are")
    add_warehouse_options(parser)


def execute(arguments: argparse.Namespace) -> int:
    """Do it; the exit code."""
    warehouse = open_warehouse(arguments.warehouse.resolve(), create=False)
    for table in TABLES.values():
        print(f"{table.name}: {table.doc}")
        for field in table.fields:
            unit = f" [{field.unit}]" if field.unit else ""
            print(f"    {field.name} {field.type}{unit}: {field.doc}")
        for folder in warehouse.folders(table):
            print(f"  {warehouse.root / folder}")
    return 0
