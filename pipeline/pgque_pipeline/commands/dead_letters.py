"""`pgque-pipeline dead-letters`: what consumers gave up on, grouped by fault."""

from __future__ import annotations

import argparse
import asyncio
import sys

from pgque_exporter.commands.options import expand, redactor
from pgque_exporter.config import TargetConfig, load_file
from pgque_exporter.config_targets import is_name
from pgque_exporter.errors import UserError
from pgque_pipeline.commands.opening import spark_for, warehouse_to_write
from pgque_pipeline.commands.options import add_spark_options, add_warehouse_options, destination
from pgque_pipeline.dead_letters import look


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Describe the command."""
    parser = commands.add_parser(
        "dead-letters",
        help="look at the databases' dead letters and group them by fault",
        description="Reads the dead letters of all databases, never a payload, and replaces the table "
        "dead_letters. Exit code 1 if a database can't be read; the others are in the table all the same.",
    )
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--config", metavar="FILE", help="the service's configuration: all of its targets")
    source.add_argument(
        "--dsn",
        action="append",
        metavar="NAME=DSN",
        help="a database by its name in the service's configuration; may be given several times",
    )
    add_warehouse_options(parser)
    add_spark_options(parser)


def execute(arguments: argparse.Namespace) -> int:
    """Do it; the exit code."""
    targets, failures = _targets(arguments)
    warehouse = warehouse_to_write(arguments)
    with spark_for(arguments) as spark:
        seen = look(spark, warehouse, targets)
    for name, failure in [*failures, *seen.failures]:
        print(f"pgque-pipeline: warning: {name}: {failure}", file=sys.stderr)
    read = len(targets) - len(seen.failures)
    print(f"{seen.letters:,} dead letters of {seen.faults:,} faults in {read:,} databases")
    return 1 if failures or seen.failures else 0


def _targets(arguments: argparse.Namespace) -> tuple[list[TargetConfig], list[tuple[str, str]]]:
    """All databases, and by name the servers that can't be searched for some."""
    if arguments.config is not None:
        config = load_file(arguments.config)
        targets, unsearched = asyncio.run(expand(config, redactor(config)))
        return targets, [(name, str(error)) for name, error in unsearched.items()]
    targets = []
    for text in arguments.dsn:
        name, _, dsn = text.partition("=")
        if not is_name(name) or any(name == target.name for target in targets):
            raise UserError(
                "each database needs a name of its own",
                where="--dsn",
                hint="write NAME=postgresql://user@host/dbname",
            )
        targets.append(TargetConfig(name, dsn, destination(dsn, "--dsn").password_file))
    return targets, []
