"""Connection strings of every form, right and wrong, and whatever is said about them: no piece of a password.

A password here is made of words that stand nowhere else, with signs between them that make libpq, the
resolver or YAML cut it to pieces. If any word is in any output, a secret has leaked.
"""

from __future__ import annotations

import asyncio
import io
import json
import logging
import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pgque_exporter import cli
from pgque_exporter.config import load_environment, load_file
from pgque_exporter.connection import PollError
from pgque_exporter.errors import UserError
from pgque_exporter.redaction import RedactingFormatter, Redactor
from pgque_exporter.target import poll_once
from tests.exporter.harness import CATALOGUE, config, running, target
from tests.support.processes import wait_for

WORDS = ("qzxwv", "kjqvz", "xqjzk")
SIGNS = st.sampled_from(list("@:/?#&=%+ '\"\\[]{}!*,;|~é🐘") + ["%zz", "%40", "''", "://", "host=", "\t"])
CLOSED = "127.0.0.1"  # where nobody listens on port 1


@st.composite
def passwords(draw: st.DrawFn) -> str:
    signs = draw(st.lists(SIGNS, min_size=2, max_size=2))
    edges = draw(st.tuples(*[st.one_of(st.just(""), SIGNS)] * 2))
    return f"{edges[0]}{WORDS[0]}{signs[0]}{WORDS[1]}{signs[1]}{WORDS[2]}{edges[1]}"


def _uri(password: str) -> list[str]:
    encoded = quote(password, safe="")
    return [
        # The user looks like a host, so that a password cut in two leads to no lookup of names.
        *(
            f"{scheme}://{CLOSED}:{given}@{rest}"
            for given in (password, encoded)
            for scheme, rest in (
                ("postgresql", f"{CLOSED}:1/shop"),
                ("postgres", f"{CLOSED}:1,{CLOSED}:2/shop?target_session_attrs=read-write"),
                ("postgresql", f"{CLOSED}:99999/shop"),
                ("postgresql", "[::1:1/shop"),
                ("postgresql", f"{CLOSED}:1/shop?nonsense=1"),
                ("postgresql", f"{CLOSED}:1/shop?sslmode=verify-full&sslrootcert=/no/such"),
            )
        ),
        f"postgresql://{CLOSED}:1/shop?user=u&password={encoded}",
        f"postgresql://{CLOSED}:1/shop?user=u&password={password}",
        f"postgresql://{CLOSED}:1/shop?password={encoded}&options=%zz",
        f"POSTGRESQL://u:{password}@{CLOSED}:1/shop",
    ]


def _key_value(password: str) -> list[str]:
    escaped = password.replace("\\", "\\\\").replace("'", "\\'")
    place = f"host={CLOSED} port=1 dbname=shop"
    return [
        f"{place} password='{escaped}'",
        f"{place} password = '{escaped}' connect_timeout=x",
        f"{place} password={password}",
        f"password='{escaped}' {place} nonsense",
        f"{place} password='{escaped}",
        f"{place} sslpassword='{escaped}' sslkey=/no/such",
        f"host={CLOSED} port=no password='{escaped}'",
        f"host=/no/such/folder password='{escaped}' dbname=shop",
        f"{place} password='{escaped}' sslmode=nonsense",
    ]


dsns = passwords().flatmap(lambda password: st.sampled_from([*_uri(password), *_key_value(password)]))


def leaks(text: object) -> list[str]:
    return [word for word in WORDS if word in str(text).lower()]


def poll_in_words(dsn: str, **options: Any) -> str:
    """All that is said about a poll, as the log would have it, with its traceback."""
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    redact = Redactor()
    handler.setFormatter(RedactingFormatter(redact))
    log = logging.Logger("test")
    log.addHandler(handler)
    try:
        asyncio.run(poll_once(target(dsn, **options), CATALOGUE, redact))
    except PollError as error:
        log.exception("%s: %s: %s; %s", "shop", error.kind, error.message, error.hint)
        return f"{error!r} {error.message} {error.hint} {stream.getvalue()}"
    raise AssertionError("nobody listens there")


@settings(max_examples=300, deadline=None, suppress_health_check=list(HealthCheck))
@given(dsn=dsns)
def test_a_configuration_never_quotes_a_dsn(tmp_path_factory: pytest.TempPathFactory, dsn: str) -> None:
    path = tmp_path_factory.getbasetemp() / "fuzz.yaml"
    for written in (json.dumps(dsn), "'" + dsn.replace("'", "''") + "'", dsn):
        path.write_text(f"targets:\n  - dsn: {written}\n", encoding="utf-8")
        try:
            said = repr(load_file(path))
        except UserError as error:
            said = str(error)
        assert not leaks(said), said
        assert said.startswith((f"{path}:", "Config("))
    try:
        said = repr(load_environment({"PGQUE_DSN": dsn}))
    except UserError as error:
        said = str(error)
    assert not leaks(said), said


@settings(max_examples=200, deadline=None, suppress_health_check=list(HealthCheck))
@given(dsn=dsns)
def test_a_poll_that_can_not_connect_never_quotes_a_dsn(dsn: str) -> None:
    assert not leaks(said := poll_in_words(dsn)), said


@pytest.mark.parametrize("command", [["check"], ["check", "--json"], ["status"]])
def test_a_command_never_quotes_a_dsn(
    command: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    password = f"{WORDS[0]}@{WORDS[1]}/{WORDS[2]}"
    for dsn in (*_uri(password), *_key_value(password)):
        code = cli.main([*command, "--dsn", dsn, "--debug"])
        captured = capsys.readouterr()
        assert code in (1, 2)
        assert not leaks(captured.out + captured.err), captured


def test_no_endpoint_and_no_log_line_quotes_a_dsn(caplog: pytest.LogCaptureFixture) -> None:
    signs = (("@", "%"), ("/", " "), ("?", "&"), ("#", "'"), (":", "\\"))
    dsns = [dsn for one, two in signs for dsn in _key_value(f"{WORDS[0]}{one}{WORDS[1]}{two}{WORDS[2]}")]
    targets = [target(dsn, f"t{number}", interval=3600.0) for number, dsn in enumerate(dsns)]
    with caplog.at_level(logging.DEBUG), running(config(*targets)) as service:
        wait_for(lambda: service.get("/readyz").status == 200, "every one was tried")
        for path in ("/", "/metrics", "/healthz", "/readyz", "/api/v1/status"):
            answer = service.get(path)
            assert not leaks(answer.text + str(answer.headers)), path
        assert {one["error"]["kind"] for one in service.get("/api/v1/status").json["targets"]} <= {
            "connection",
            "timeout",
            "contract",
        }
    assert not leaks(caplog.text), caplog.text


# --- a server that tells what it was told --------------------------------------------------------


@dataclass
class Telltale:
    """Asks for the password in plain, and puts it into the error that it answers with."""

    port: int
    heard: list[str]


@contextmanager
def telltale() -> Iterator[Telltale]:
    server = socket.create_server(("127.0.0.1", 0))
    told = Telltale(server.getsockname()[1], [])
    threading.Thread(target=_tell, args=(server, told.heard), daemon=True).start()
    try:
        yield told
    finally:
        server.shutdown(socket.SHUT_RDWR)
        server.close()


def _tell(server: socket.socket, heard: list[str]) -> None:
    while True:
        try:
            client, _ = server.accept()
        except OSError:
            return
        with client, client.makefile("rb") as reader:
            _message(reader)  # the start-up message, without a type
            client.sendall(b"R" + struct.pack("!ii", 8, 3))
            reader.read(1)
            password = _message(reader).rstrip(b"\0")
            heard.append(password.decode())
            text = b'your password is "' + password + b'", isn\'t it?'
            fields = b"SFATAL\0C28P01\0M" + text + b"\0D" + text + b"\0\0"
            client.sendall(b"E" + struct.pack("!i", len(fields) + 4) + fields)


def _message(reader: Any) -> bytes:
    (length,) = struct.unpack("!i", reader.read(4))
    content: bytes = reader.read(length - 4)
    return content


@settings(max_examples=50, deadline=None, suppress_health_check=list(HealthCheck))
@given(password=passwords())
def test_a_server_that_repeats_the_password_is_not_quoted(
    tmp_path_factory: pytest.TempPathFactory, password: str
) -> None:
    escaped = password.replace("\\", "\\\\").replace("'", "\\'")
    file = tmp_path_factory.getbasetemp() / "password"
    file.write_text(password + "\n", encoding="utf-8")
    with telltale() as server:
        place = f"host=127.0.0.1 port={server.port} dbname=shop sslmode=disable gssencmode=disable"
        for dsn, options in ((f"{place} password='{escaped}'", {}), (place, {"password_file": Path(file)})):
            said = poll_in_words(dsn, **options)
            assert "your password is" in said
            assert not leaks(said), said
        assert set(server.heard) == {password}
