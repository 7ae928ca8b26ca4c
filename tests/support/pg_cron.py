"""PostgreSQL 17 with pg_cron 1.6, as no package source has it for this system.

pg_cron comes from a newer Debian than ours and wants that Debian's C library; so the server of another
package runs on that library, by the loader that belongs to it. Nothing is installed: both packages are
downloaded by the system's own apt from the archive that it is set up for, and unpacked.

`python -m tests.support.pg_cron` fetches it ahead of time.
"""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path

from tests.support.debian import DPKG_STATUS, KEYRING, apt_get, archive_of_this_system
from tests.support.tools import Postgres, Unavailable, locked, tools_folder
from tests.support.wheels import wheel_postgres

SUITE = "trixie"
VERSION = 17
PACKAGES = (f"postgresql-{VERSION}-cron", "libc6")
_LOADER = "ld-linux-x86-64.so.2"
_START = f"""\
#!/bin/sh
here=$(dirname "$0")
libc=$here/../../debian/usr/lib/x86_64-linux-gnu
exec "$libc/{_LOADER}" --argv0 "$0" --library-path "$libc:$here/../lib" "$here/postgres.real" "$@"
"""


def postgres_with_pg_cron() -> Postgres:
    """The server, fetched if need be; raises Unavailable."""
    if platform.machine() != "x86_64":
        raise Unavailable(f"pg_cron 1.6 is put together for x86_64 only, not {platform.machine()}")
    server = wheel_postgres(VERSION)
    folder = tools_folder("pg_cron")
    tree = folder / SUITE
    with locked(folder):
        if not tree.is_dir():
            _put_together(server, folder, tree)
    return Postgres(tree / "pginstall/bin")


def _put_together(server: Postgres, folder: Path, tree: Path) -> None:
    """Make `tree`, which appears only when it is complete."""
    partial = tree.with_name(f"{tree.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    install, debian = partial / "pginstall", partial / "debian"
    debian.mkdir(parents=True)
    for archive in _download(folder):
        subprocess.run(["dpkg-deb", "-x", str(archive), str(debian)], check=True)
        archive.unlink()
    shutil.copytree(server.bindir.parent, install, symlinks=True)
    shutil.copy(debian / f"usr/lib/postgresql/{VERSION}/lib/pg_cron.so", install / "lib")
    extension = debian / f"usr/share/postgresql/{VERSION}/extension"
    shutil.copytree(extension, install / "share/extension", dirs_exist_ok=True)

    (install / "bin/postgres").rename(install / "bin/postgres.real")
    start = install / "bin/postgres"
    start.write_text(_START)
    start.chmod(0o755)
    for path in (partial, debian):
        path.chmod(0o755)  # for PostgreSQL's user
    answer = subprocess.run([start, "--version"], capture_output=True, text=True, check=False)
    if f" {VERSION}." not in answer.stdout:
        raise Unavailable(f"PostgreSQL on another C library doesn't run here: {answer.stderr.strip()}")
    partial.rename(tree)


def _download(folder: Path) -> list[Path]:
    """Download the packages alone: nothing else of that Debian is of use."""
    state = folder / "apt"
    for part in ("state/lists/partial", "cache/archives/partial"):
        (state / part).mkdir(parents=True, exist_ok=True)
    sources = state / "sources.list"
    sources.write_text(f"deb [signed-by={KEYRING}] {archive_of_this_system()} {SUITE} main\n")
    options: dict[str, str | Path] = {
        "Dir::Etc::sourcelist": sources,
        "Dir::Etc::sourceparts": os.devnull,
        "Dir::State": state / "state",
        "Dir::State::status": DPKG_STATUS,
        "Dir::Cache": state / "cache",
    }
    for arguments in (("update",), ("download", *PACKAGES)):
        result = apt_get(options, *arguments, cwd=state)
        if result.returncode != 0:
            raise Unavailable(f"{' '.join(PACKAGES)} of {SUITE}: {result.stdout.strip().splitlines()[-1:]}")
    return sorted(state.glob("*.deb"))


def main() -> int:
    """Fetch it and say where it is, or why it can't be had."""
    try:
        print(f"PostgreSQL {VERSION} with pg_cron: {postgres_with_pg_cron().bindir}")
    except Unavailable as error:
        print(f"PostgreSQL {VERSION} with pg_cron: none ({error})")
    return 0


if __name__ == "__main__":
    sys.exit(main())
