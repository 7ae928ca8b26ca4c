"""`pgque-pipeline prepare`: make Spark's later starts take half the time."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from pgque_exporter.errors import UserError
from pgque_pipeline import class_archive
from pgque_pipeline.java import needed_java

_PATIENCE = 300  # seconds


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Describe the command."""
    parser = commands.add_parser(
        "prepare",
        help="make all later commands start in half the time",
        description="Has Java write down once which classes Spark needs, into the user's cache folder. "
        "To be repeated after a new version of Java or of Spark.",
    )
    parser.add_argument("--debug", action="store_true", help="show tracebacks")


def execute(arguments: argparse.Namespace) -> int:  # noqa: ARG001 - every command is called alike
    """Do it; the exit code."""
    java = needed_java()
    try:
        archive = class_archive.place(java)
    except RuntimeError:
        raise UserError("there is no home folder for the cache", hint="set XDG_CACHE_HOME") from None
    try:
        archive.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=archive.parent) as folder:
            made = Path(folder) / archive.name
            _train(made)
            os.replace(made, archive)
    except OSError as error:
        raise UserError(f"can't write here: {error.strerror}", where=str(archive.parent)) from None
    print(archive)
    return 0


def _train(made: Path) -> None:
    """Have a process run the pipeline on a day of generated input, and leave the archive."""
    command = [sys.executable, "-m", "pgque_pipeline.training", str(made)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_PATIENCE, check=False)
    except subprocess.TimeoutExpired:
        raise UserError(f"Spark could not be tried out within {_PATIENCE} s") from None
    if done.returncode or not made.is_file():
        last = (done.stderr.strip().splitlines() or ["no archive was written"])[-1]
        raise UserError(f"Spark could not be tried out: {last}")
