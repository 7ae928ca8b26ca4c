"""Options that several commands share."""

from __future__ import annotations

import argparse
import contextlib
import os
import sys

from pgque_exporter import passwords
from pgque_exporter.config import Config, TargetConfig, load_environment, load_file, misspelt
from pgque_exporter.connection import PollError
from pgque_exporter.discovery import find
from pgque_exporter.redaction import Redactor
from pgque_exporter.sharding import Shard, parse_shard


def add_config_options(parser: argparse.ArgumentParser) -> None:
    """Add --config, --dsn and --debug."""
    source = parser.add_mutually_exclusive_group()
    source.add_argument("--config", metavar="FILE", help="YAML file; without it the environment counts")
    source.add_argument(
        "--dsn",
        help="one database, as a libpq connection string (leave the password to PGQUE_PASSWORD_FILE: here it "
        "would stand in the shell's history)",
    )
    parser.add_argument("--debug", action="store_true", help="log more, and show where an error comes from")


def add_shard_option(parser: argparse.ArgumentParser) -> None:
    """Add --shard."""
    parser.add_argument(
        "--shard",
        metavar="N/TOTAL",
        help="poll only a share of the targets, such as 2/8: the second of eight (default: PGQUE_SHARD)",
    )


def load_shard(arguments: argparse.Namespace) -> Shard | None:
    """The shard that the option or the environment asks for.

    The variable counts beside a configuration file too: all shards share the file.
    """
    if arguments.shard is not None:
        return parse_shard(arguments.shard, "--shard")
    text = os.environ.get("PGQUE_SHARD")
    return parse_shard(text, "PGQUE_SHARD") if text else None


def load_config(arguments: argparse.Namespace) -> Config:
    """The configuration that the options and the environment ask for; UserError if it is wrong."""
    if arguments.config is not None:
        return load_file(arguments.config)
    for line in misspelt(os.environ):
        print(f"pgque-exporter: warning: {line}", file=sys.stderr)
    return load_environment(os.environ, dsn=arguments.dsn)


async def expand(config: Config, redact: Redactor) -> tuple[list[TargetConfig], dict[str, PollError]]:
    """All targets, those of searched servers included; and by name the servers that can't be searched."""
    targets, failures = list(config.targets), {}
    for discovery in config.discoveries:
        try:
            targets += (await find(discovery, redact)).targets
        except PollError as error:
            failures[discovery.name] = error
    return targets, failures


def redactor(config: Config) -> Redactor:
    """A redactor that knows the secrets of the configuration."""
    redact = Redactor()
    learn(redact, config)
    return redact


def learn(redact: Redactor, config: Config) -> None:
    """Tell a redactor the secrets of the configuration, those in password files too."""
    databases = [*config.targets, *(discovery.server for discovery in config.discoveries)]
    if config.leader is not None:
        databases.append(config.leader.database)
    for database in databases:
        redact.add_dsn(database.dsn)
    for path in {database.password_file for database in databases if database.password_file is not None}:
        # A file that can't be read now is an error of the database's own, when it is polled.
        with contextlib.suppress(OSError, UnicodeDecodeError):
            redact.add(passwords.read(path))
    if config.otlp is not None:
        redact.add(*config.otlp.headers.values())
