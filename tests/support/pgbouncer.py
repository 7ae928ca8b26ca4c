"""PgBouncer in transaction mode, in front of a throw-away cluster."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import psycopg

from pgque_exporter.demo.cluster import free_port
from tests.support.debian import find_program
from tests.support.processes import Process

_UNPRIVILEGED_USER = "nobody"  # it refuses to run as root


class PgBouncer:
    """The pooler, not started. `upstream` are the connection parameters that every client gets to."""

    def __init__(self, folder: Path, database: str, upstream: Mapping[str, object]) -> None:
        self.port = free_port()
        self._database = database
        program = find_program("pgbouncer")
        folder.mkdir(exist_ok=True)
        settings = {
            "listen_addr": "127.0.0.1",
            "listen_port": self.port,
            "unix_socket_dir": "",
            "auth_type": "any",  # whoever comes is logged in as the upstream's user
            "pool_mode": "transaction",
            "default_pool_size": 2,
            "server_login_retry": 0.1,  # seconds; it would keep an error for 15
            **({"user": _UNPRIVILEGED_USER} if os.geteuid() == 0 else {}),
        }
        config = folder / "pgbouncer.ini"
        config.write_text(
            f"[databases]\n{database} = {' '.join(f'{name}={value}' for name, value in upstream.items())}\n"
            "[pgbouncer]\n" + "".join(f"{name} = {value}\n" for name, value in settings.items())
        )
        log = folder / "pgbouncer.log"
        self.process = Process([program.path, config], log=log, env=program.env, cwd=folder)

    def start(self) -> None:
        """Start it, also again, and wait until it hands out connections."""
        self.process.start()
        self.process.wait_for(self._answers, "it accepts clients", ignoring=(psycopg.Error,))

    def _answers(self) -> bool:
        psycopg.connect(f"host=127.0.0.1 port={self.port} dbname={self._database} user=x").close()
        return True


@contextmanager
def pgbouncer(folder: Path, database: str, upstream: Mapping[str, object]) -> Iterator[PgBouncer]:
    """A running one."""
    pooler = PgBouncer(folder, database, upstream)
    pooler.start()
    try:
        yield pooler
    finally:
        pooler.process.stop()
