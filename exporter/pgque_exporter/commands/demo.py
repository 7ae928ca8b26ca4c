"""`pgque-exporter demo`: an embedded PostgreSQL, a load with four stories, and the service beside it."""

from __future__ import annotations

import argparse
import os

from pgque_exporter.config import parse_duration
from pgque_exporter.demo.run import run
from pgque_exporter.errors import UserError

DEFAULT_PORT = 9718


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Describe the command."""
    parser = commands.add_parser(
        "demo",
        help="start a database with a load and the service, to look around",
        description="Starts a throw-away PostgreSQL with the queue engine, lets producers and consumers work "
        "on four queues, some of them badly, and serves metrics, health and a status page. Ends by Ctrl-C; "
        "nothing stays behind.",
    )
    parser.add_argument(
        "--port",
        metavar="N",
        help=f"port of the pages, 0 for any free one (default: PORT, or {DEFAULT_PORT})",
    )
    parser.add_argument(
        "--duration", metavar="TIME", help="end by itself after 30s, 2m, ... (default: DURATION)"
    )
    parser.add_argument("--debug", action="store_true", help="show where an error comes from")


def execute(arguments: argparse.Namespace) -> int:
    """Run the demo; 0 when its time is over, and after Ctrl-C or SIGTERM, its usual ends."""
    port = _setting(arguments.port, "--port", "PORT")
    duration = _setting(arguments.duration, "--duration", "DURATION")
    run(
        DEFAULT_PORT if port is None else _port(*port),
        None if duration is None else _seconds(*duration),
    )
    return 0


def _setting(option: str | None, option_name: str, variable: str) -> tuple[str, str] | None:
    """The text given, with the place where it was given; an empty variable counts as unset."""
    if option is not None:
        return option, option_name
    text = os.environ.get(variable)
    return (text, variable) if text else None


def _port(text: str, where: str) -> int:
    if not (text.isascii() and text.isdecimal() and int(text) <= 65535):
        raise UserError(f"{text!r} is not a port", where=where, hint="choose a number from 1 to 65535")
    return int(text)


def _seconds(text: str, where: str) -> float:
    try:
        return parse_duration(f"{text}s" if text.isdecimal() else text)
    except ValueError as error:
        what, _, hint = str(error).partition("|")
        raise UserError(what, where=where, hint=hint) from None
