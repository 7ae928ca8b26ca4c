"""Chromium, driven by a program for Node.js: an order goes in, a report for each picture comes out."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.support.debian import find_program
from tests.support.npm import grafana_libraries
from tests.support.tools import Program

HERE = Path(__file__).resolve().parent
PICTURES = HERE.parents[1] / "docs" / "pictures"


def chromium() -> Program:
    """The browser; raises Unavailable. Where it is only unpacked, its starter would look for it in vain."""
    program = find_program("chromium")
    binary = program.path.parents[1] / "lib" / "chromium" / "chromium"
    return Program(binary, program.env) if binary.exists() else program


def require_programs() -> None:
    """Fetch whatever drawing needs; raises Unavailable."""
    grafana_libraries()
    chromium()


def carry_out(script: str, order: Mapping[str, Any]) -> list[Any]:
    """Let a script of this folder carry out an order; its reports, in the order of what was ordered.

    The order is told where browser and libraries are. Raises Unavailable where there are none.
    """
    browser = chromium()
    whole = {"chromium": str(browser.path), "libraries": str(grafana_libraries()), **order}
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        json.dump(whole, file)
        file.flush()
        result = subprocess.run(
            ["node", str(HERE / script), file.name],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, **browser.env},
            check=True,
        )
    return [json.loads(line) for line in result.stdout.splitlines()]


def told(picture: Path) -> str:
    """A line about a picture that was taken: where it is, and its size."""
    return f"{picture.relative_to(PICTURES.parents[1])}: {picture.stat().st_size // 1024} kB"
