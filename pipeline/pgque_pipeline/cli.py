"""The command line of the pipeline: finds the command, runs it, and turns errors into one line."""

from __future__ import annotations

import argparse
import importlib
import sys
import traceback
from collections.abc import Sequence
from types import ModuleType

from pgque_exporter import __version__
from pgque_exporter.errors import UserError

_COMMANDS = {
    "run": "read new input and bring the tables up to date",
    "stream": "keep the tables up to date while the input is written",
    "dead-letters": "look at the databases' dead letters and group them by fault",
    "publish": "write baselines, SLOs and forecasts into PostgreSQL",
    "demo": "generate weeks of metrics, run the pipeline on them and show the report",
    "report": "write a page with what the tables tell",
    "tables": "list the tables, their columns and where they are",
}
INTERRUPTED = 130


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; the exit code: 0 well, 1 trouble, 2 wrong input, 130 interrupted."""
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
        sys.stderr.close()
        return 1
    except Exception as error:  # noqa: BLE001 - a person gets a line, not a traceback
        if debug:
            traceback.print_exc()
        first = (str(error).strip().splitlines() or [""])[0][:300]
        return _fail(f"{type(error).__name__}: {first}. Run it again with --debug to see where", 1)


def _fail(line: str, code: int) -> int:
    print(f"pgque-pipeline: error: {line}", file=sys.stderr)
    return code


def _parser(words: Sequence[str]) -> tuple[argparse.ArgumentParser, ModuleType | None]:
    """The parser, and the module of the chosen command: only that one is imported."""
    parser = argparse.ArgumentParser(prog="pgque-pipeline", description="Metric history of queues, on Spark.")
    parser.add_argument("--version", action="version", version=f"pgque-pipeline {__version__}")
    commands = parser.add_subparsers(metavar="command")
    chosen = next((word for word in words if not word.startswith("-")), None)
    module = None
    for name, description in _COMMANDS.items():
        if name == chosen:
            module = importlib.import_module(f"pgque_pipeline.commands.{name.replace('-', '_')}")
            module.add_parser(commands)
        else:
            commands.add_parser(name, help=description)
    return parser, module
