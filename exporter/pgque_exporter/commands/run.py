"""`pgque-exporter run`: the service, until a signal ends it."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import gc
import logging
import os
import resource
import signal
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from pgque_exporter import logs
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

_LAST_RESORT = 4.7  # seconds after the signal

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
    stop = asyncio.Event()
    code = 0

    def end(number: signal.Signals) -> None:
        nonlocal code
        code = 130 if number is signal.SIGINT else 0
        if stop.is_set():
            os._exit(code)  # asked twice: no more patience
        log.info("%s: ending", number.name)
        stop.set()
        _arm_last_resort(code)

    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, end, number)
    reloader = Reloader(config, load)
    loop.add_signal_handler(signal.SIGHUP, reloader.wish)
    await run_service(config, stop=stop, redact=redact, reloader=reloader)
    return code


def _allow_many_connections() -> None:
    """Open as many files as the system lets us: the usual limit is for programs with few connections."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(ValueError, OSError):  # then the usual limit has to do
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def _arm_last_resort(code: int) -> None:
    """Leave in time whatever hangs: a name lookup runs in a thread that nothing can interrupt."""
    timer = threading.Timer(_LAST_RESORT, os._exit, (code,))
    timer.daemon = True
    timer.start()
