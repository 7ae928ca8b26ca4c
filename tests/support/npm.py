"""Grafana's libraries from npm, at their locked versions, for the pictures of the dashboards.

`python -m tests.support.npm` fetches them ahead of time.
"""

from __future__ import annotations

import hashlib
import re
import shutil
import subprocess
import sys
from pathlib import Path

from tests.support.repository import ROOT
from tests.support.tools import Unavailable, locked, tools_folder

SOURCES = ROOT / "dashboards" / "pictures"
_FILES = ("package.json", "package-lock.json")
_OLDEST_NODE = (20, 11)
_TIMEOUT = 900  # seconds: on a new machine some hundred packages are fetched


def grafana_libraries() -> Path:
    """Folder whose node_modules has them, fetched if need be; raises Unavailable."""
    version = hashlib.sha256(b"".join((SOURCES / name).read_bytes() for name in _FILES)).hexdigest()[:16]
    folder = tools_folder("npm")
    tree = folder / version
    _require_node()
    with locked(folder):
        if not tree.exists():
            _fetch(tree)
    return tree


def _require_node() -> None:
    if shutil.which("node") is None or shutil.which("npm") is None:
        raise Unavailable("Grafana's libraries need Node.js and npm, which aren't installed")
    answer = subprocess.run(["node", "--version"], capture_output=True, text=True, check=False).stdout
    found = re.match(r"v(\d+)\.(\d+)", answer)
    if found is None or (int(found[1]), int(found[2])) < _OLDEST_NODE:
        wanted = ".".join(map(str, _OLDEST_NODE))
        raise Unavailable(f"Grafana's libraries need Node.js {wanted} or newer, not {answer.strip()}")


def _fetch(tree: Path) -> None:
    """Let npm fill `tree`, which appears only when it is complete. No package's script runs."""
    partial = tree.with_name(f"{tree.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir()
    for name in _FILES:
        shutil.copy(SOURCES / name, partial)
    try:
        result = subprocess.run(
            ["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"],
            cwd=partial,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=_TIMEOUT,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise Unavailable(f"Grafana's libraries: npm took longer than {_TIMEOUT} s") from None
    if result.returncode != 0:
        raise Unavailable(f"Grafana's libraries: {result.stdout[-500:].strip()}")
    partial.rename(tree)


def main() -> int:
    """Fetch them and say where they are, or why they can't be had."""
    try:
        print(f"Grafana's libraries: {grafana_libraries()}")
    except Unavailable as error:
        print(f"Grafana's libraries: none ({error})")
    return 0


if __name__ == "__main__":
    sys.exit(main())
