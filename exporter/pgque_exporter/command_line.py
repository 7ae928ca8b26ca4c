"""A program of commands: finds the command, runs it, and turns errors into one line.

A command is a module with `add_parser(commands)` and `execute(arguments)`.
"""

from __future__ import annotations

import argparse
import importlib
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import NoReturn

from pgque_exporter import __version__, command_words
from pgque_exporter.errors import UserError

INTERRUPTED = 130


@dataclass(frozen=True)
class Program:
    """What is called by its name.

    package     holds a module for each command; "-" in a command's name is "_" in the module's
    commands    what each does, in a line
    unexpected  what is said of an error that nobody has foreseen
    """

    name: str
    description: str
    package: str
    commands: Mapping[str, str]
    unexpected: Callable[[Exception], str]


def run(program: Program, argv: Sequence[str] | None) -> int:
    """Run one command; the exit code: 0 well, 1 trouble, 2 wrong input, 130 interrupted.

    Without `argv` by the words that the program was given, whose passwords are then shown to nobody.
    """
    words = command_words.given() if argv is None else [*argv]
    try:
        parser, module = parser_of(program, words)
        arguments = parser.parse_args(words)
        if module is None:
            parser.print_help(sys.stderr)
            return UserError.exit_code
        return int(module.execute(arguments))
    except UserError as error:
        if error.__cause__ is not None:
            _trace(words)
        return _fail(program, str(error), error.exit_code)
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        sys.stderr.close()  # whoever read our output has gone; nothing is left to say
        return 1
    except Exception as error:  # noqa: BLE001 - a person gets a line, not a traceback
        _trace(words)
        return _fail(program, f"{program.unexpected(error)}. Run it again with --debug to see where", 1)


def parser_of(program: Program, words: Sequence[str]) -> tuple[argparse.ArgumentParser, ModuleType | None]:
    """The parser, and the module of the chosen command: only that one is imported."""
    parser = _Parser(prog=program.name, description=program.description)
    parser.add_argument("--version", action="version", version=f"{program.name} {__version__}")
    commands = parser.add_subparsers(metavar="command")
    chosen = next((word for word in words if not word.startswith("-")), None)
    module = None
    for name, description in program.commands.items():
        if name == chosen:
            module = importlib.import_module(f"{program.package}.{name.replace('-', '_')}")
            module.add_parser(commands)
        else:
            commands.add_parser(name, help=description)
    return parser, module


class _Parser(argparse.ArgumentParser):
    """Quotes words that it doesn't understand, but no password in them."""

    def error(self, message: str) -> NoReturn:
        from pgque_exporter.redaction import Redactor

        super().error(Redactor()(message))


def _trace(words: Sequence[str]) -> None:
    """Show where the error that is being handled came from, to whoever has asked."""
    if "--debug" in words:
        from pgque_exporter.redaction import Redactor

        print(Redactor()(traceback.format_exc()), file=sys.stderr)


def _fail(program: Program, line: str, code: int) -> int:
    print(f"{program.name}: error: {line}", file=sys.stderr)
    return code
