"""The command line: finds the command, runs it, and turns errors into one line."""

from __future__ import annotations

import argparse
import importlib
import sys
import traceback
from collections.abc import Sequence
from types import ModuleType

from pgque_exporter import __version__
from pgque_exporter.command_words import hide_password
from pgque_exporter.errors import UserError

_COMMANDS = {
    "run": "poll databases, serve metrics and health, push to a collector",
    "check": "verify each database: connection, packs, grants, one poll",
    "status": "show the queues of each database as a table",
    "ticker": "drive the queue engine: ticks, retries, rotation",
    "sql": "install, print or remove the SQL packs",
    "demo": "start a database with a load and the service, to look around",
}
INTERRUPTED = 130


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; the exit code: 0 well, 1 trouble, 2 wrong input, 130 interrupted."""
    if argv is None:
        hide_password()
    words = list(sys.argv[1:] if argv is None else argv)
    debug = "--debug" in words
    try:
        parser, module = _parser(words)
        arguments = parser.parse_args(words)
        if module is None:
            parser.print_help(sys.stderr)
            return UserError.exit_code
        return int(module.execute(arguments))
    except UserError as error:
        return _fail(str(error), error.exit_code)
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        sys.stderr.close()  # whoever read our output has gone; nothing is left to say
        return 1
    except Exception as error:  # noqa: BLE001 - a person gets a line, not a traceback
        if debug:
            from pgque_exporter.redaction import Redactor

            print(Redactor()(traceback.format_exc()), file=sys.stderr)
        return _fail(f"unexpected {type(error).__name__}. Run it again with --debug to see where", 1)


def _fail(line: str, code: int) -> int:
    print(f"pgque-exporter: error: {line}", file=sys.stderr)
    return code


def _parser(words: Sequence[str]) -> tuple[argparse.ArgumentParser, ModuleType | None]:
    """The parser, and the module of the chosen command: only that one is imported."""
    parser = argparse.ArgumentParser(
        prog="pgque-exporter", description="See, chart and page on every queue that lives in PostgreSQL."
    )
    parser.add_argument("--version", action="version", version=f"pgque-exporter {__version__}")
    commands = parser.add_subparsers(metavar="command")
    chosen = next((word for word in words if not word.startswith("-")), None)
    module = None
    for name, description in _COMMANDS.items():
        if name == chosen:
            module = importlib.import_module(f"pgque_exporter.commands.{name}")
            module.add_parser(commands)
        else:
            commands.add_parser(name, help=description)
    return parser, module
