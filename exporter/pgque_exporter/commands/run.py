"""`pgque-exporter run`: the service, until a signal ends it."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import gc
import logging
import resource
import signal
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from pgque_exporter import logs
from pgque_exporter.commands.ending import Ending
from pgque_exporter.commands.options import (
    add_config_options,
    add_shard_option,
    learn,
    load_config,
    load_shard,
)
from pgque_exporter.config import Config
from pgque_exporter.redaction import Redactor
from pgque_exporter.reload import Reloader
from pgque_exporter.service import run_service

log = logging.getLogger(__name__)

# A poll makes tens of thousands of objects that live until the next and are then freed by their counts.
# By default that is reason enough to look through all of them for cycles, several times a poll.
_GARBAGE_COLLECTION = (100_000, 20, 50)


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Describe the command."""
    parser = commands.add_parser("run", help="poll databases, serve metrics and health, push to a collector")
    add_config_options(parser)
    add_shard_option(parser)
    parser.add_argument(
        "--web-config", metavar="FILE", type=Path, help="TLS and authentication of the pages (YAML)"
    )


def execute(arguments: argparse.Namespace) -> int:
    """Run until SIGTERM (exit code 0) or Ctrl-C (130); SIGHUP reloads the configuration file."""
    redact = Redactor()

    def load() -> Config:
        config = replace(load_config(arguments), shard=load_shard(arguments))
        if arguments.web_config is not None:
            config = replace(config, web_config=arguments.web_config)
        learn(redact, config)
        return config

    config = load()
    _allow_many_connections()
    logs.set_up("debug" if arguments.debug else config.log_level, redact)
    gc.set_threshold(*_GARBAGE_COLLECTION)
    return asyncio.run(_run(config, redact, load))


async def _run(config: Config, redact: Redactor, load: Callable[[], Config]) -> int:
    ending = Ending()
    reloader = Reloader(config, load)
    asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, reloader.wish)
    await run_service(config, stop=ending.stop, redact=redact, reloader=reloader)
    return ending.code


def _allow_many_connections() -> None:
    """Open as many files as the system lets us: the usual limit is for programs with few connections."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(ValueError, OSError):  # then the usual limit has to do
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
