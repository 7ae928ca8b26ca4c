"""What is said about a connection that can't be had: each trouble in few words, with what to do."""

from __future__ import annotations

from pathlib import Path

import pytest

from pgque_exporter.connection import FailureKind
from tests.exporter.harness import poll_error
from tests.support.database import Database

# A dsn that leads nowhere, the whole message, and the beginning of the hint.
NOWHERE = {
    "refused": (
        "host=127.0.0.1 port=1 user=x",
        'server at "127.0.0.1", port 1: Connection refused',
        "check host and port",
    ),
    "no socket": (
        "host=/nowhere user=x",
        'server on socket "/nowhere/.s.PGSQL.5432": No such file or directory',
        "name the server's host",
    ),
    "several hosts": (
        "host=127.0.0.1,127.0.0.2,127.0.0.1 port=1 user=x",
        'server at "127.0.0.1", port 1: Connection refused; '
        'server at "127.0.0.2", port 1: Connection refused',
        "check host and port",
    ),
    "bad option": ("host=127.0.0.1 sslmode=bogus", 'invalid sslmode value: "bogus"', "correct this option"),
    "bad port": ("host=127.0.0.1 port=99999", 'invalid port number: "99999"', "correct this option"),
    "no service": ("service=nope", 'definition of service "nope" not found', "check service in the dsn"),
}


@pytest.mark.parametrize("case", NOWHERE)
def test_each_trouble_in_few_words(case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    services = tmp_path / "services"
    services.touch()
    monkeypatch.setenv("PGSERVICEFILE", str(services))
    dsn, message, hint = NOWHERE[case]
    error = poll_error(dsn)
    assert (error.kind, error.message) == (FailureKind.CONNECTION, message)
    assert str(error.hint).startswith(hint)


def test_a_server_that_refuses_is_quoted(database: Database) -> None:
    error = poll_error(database.dsn(sslmode="require"))
    assert error.message.endswith(": server does not support SSL, but SSL was required")
    assert error.hint == "check sslmode and sslrootcert in the dsn"
    error = poll_error(database.cluster.dsn(dbname="no_such_database"))
    assert error.message.endswith(
        f', port {database.cluster.port}: FATAL: database "no_such_database" does not exist'
    )
