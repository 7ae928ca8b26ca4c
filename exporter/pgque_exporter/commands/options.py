"""Options that several commands share."""

from __future__ import annotations

import argparse
import os
import sys

from pgque_exporter.config import Config, load_environment, load_file, misspelt
from pgque_exporter.redaction import Redactor


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


def load_config(arguments: argparse.Namespace) -> Config:
    """The configuration that the options and the environment ask for; UserError if it is wrong."""
    if arguments.config is not None:
        return load_file(arguments.config)
    for line in misspelt(os.environ):
        print(f"pgque-exporter: warning: {line}", file=sys.stderr)
    return load_environment(os.environ, dsn=arguments.dsn)


def redactor(config: Config) -> Redactor:
    """A redactor that knows the secrets of the configuration."""
    redact = Redactor()
    for target in config.targets:
        redact.add_dsn(target.dsn)
    if config.otlp is not None:
        redact.add(*config.otlp.headers.values())
    return redact
