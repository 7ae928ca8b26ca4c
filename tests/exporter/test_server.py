"""A web server whose clients are slow, many, silent or hostile."""

from __future__ import annotations

import asyncio
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from starlette.types import ASGIApp, Receive, Scope, Send

from pgque_exporter.config import Listen
from pgque_exporter.server import Bounds, HttpServer, bind
from tests.support.certificates import Authority
from tests.support.processes import wait_for

GET = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"
PATIENT = Bounds(head=600, answer=600)
HURRIED = Bounds(head=0.2, answer=0.2)
HUGE = 64 * 1024 * 1024  # more than both sides' buffers hold


def answering(body: bytes) -> ASGIApp:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        headers = [(b"content-length", str(len(body)).encode())]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    return app


@dataclass(frozen=True)
class Serving:
    server: HttpServer
    loop: asyncio.AbstractEventLoop
    port: int

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), timeout=20)


@contextmanager
def serving(
    app: ASGIApp, bounds: Bounds, tls: ssl.SSLContext | None = None
) -> Iterator[Serving]:
    loop = asyncio.new_event_loop()
    sock = bind(Listen("127.0.0.1", 0))
    server = HttpServer(app, sock, tls=lambda: tls, bounds=bounds)
    thread = threading.Thread(target=lambda: loop.run_until_complete(server.serve()))
    thread.start()
    asyncio.run_coroutine_threadsafe(server.up(), loop).result(20)
    try:
        yield Serving(server, loop, sock.getsockname()[1])
    finally:
        loop.call_soon_threadsafe(server.stop)
        thread.join(20)
        assert server.connections == 0
        loop.run_until_complete(asyncio.sleep(0))
        loop.close()


def answer(sock: socket.socket) -> bytes:
    """The body of one answer with a length."""
    reader = sock.makefile("rb")
    assert reader.readline() == b"HTTP/1.1 200 OK\r\n"
    length = 0
    while (line := reader.readline().strip()) != b"":
        name, _, value = line.partition(b":")
        length = int(value) if name == b"content-length" else length
    return reader.read(length)


def is_closed(sock: socket.socket) -> bool:
    """Whether the server ends the connection without a word; waits for it."""
    try:
        return sock.recv(1) == b""
    except ConnectionError:
        return True


@pytest.mark.parametrize("sent", [b"", b"GET / HTTP/1.1\r\nHost:"])
def test_who_never_finishes_a_request_is_sent_away(sent: bytes) -> None:
    with serving(answering(b""), HURRIED) as service, service.connect() as sock:
        sock.sendall(sent)
        assert is_closed(sock)


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


def tls_of(authority: Authority) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*authority.issue("server"))
    return context


@pytest.mark.parametrize("sent", [b"", b"\x16\x03\x01", GET])
def test_a_handshake_that_never_ends_is_ended(sent: bytes, authority: Authority) -> None:
    with serving(answering(b""), HURRIED, tls_of(authority)) as service, service.connect() as sock:
        sock.sendall(sent)
        while sock.recv(100):  # an alert says why, to those who speak something else
            pass
        wait_for(lambda: service.server.connections == 0, "the place is free again")


def test_handshakes_make_room_like_everyone(authority: Authority) -> None:
    bounds = replace(PATIENT, connections=2)
    with serving(answering(b"hello"), bounds, tls_of(authority)) as service, ExitStack() as stack:
        silent = [stack.enter_context(service.connect()) for _ in range(2)]
        wait_for(lambda: service.server.connections == 2, "both are accepted")
        client = authority.client()
        sock = stack.enter_context(client.wrap_socket(service.connect(), server_hostname="localhost"))
        sock.sendall(GET)
        assert answer(sock) == b"hello"
        assert is_closed(silent[0])


def test_an_answer_over_tls_that_nobody_reads_does_not_stay(authority: Authority) -> None:
    bounds = replace(HURRIED, idle=1)
    with serving(answering(b"x" * HUGE), bounds, tls_of(authority)) as service, ExitStack() as stack:
        client = authority.client()
        sock = stack.enter_context(client.wrap_socket(service.connect(), server_hostname="localhost"))
        sock.sendall(GET)
        wait_for(lambda: service.server.connections == 0, "the connection is broken off")


def test_a_head_that_trickles_is_no_head() -> None:
    with serving(answering(b""), HURRIED) as service, service.connect() as sock:
        sock.sendall(b"GET / HTTP/1.1\r\nX: ")
        sock.settimeout(0.01)
        ended = False
        for _ in range(2000):  # a head of any length; the deadline comes first
            try:
                sock.sendall(b"x")
                ended = sock.recv(1) == b""
            except TimeoutError:
                continue
            except ConnectionError:
                ended = True
            if ended:
                break
        assert ended


def test_a_second_request_has_a_deadline_of_its_own() -> None:
    with serving(answering(b"hello"), HURRIED) as service, service.connect() as sock:
        sock.sendall(GET)
        assert answer(sock) == b"hello"
        sock.sendall(GET[:-2])
        assert is_closed(sock)


def test_who_is_idle_between_requests_stays() -> None:
    with serving(answering(b"hello"), HURRIED) as service, service.connect() as kept:
        kept.sendall(GET)
        assert answer(kept) == b"hello"
        with service.connect() as silent:
            assert is_closed(silent)  # came later: what was to end the first would have done so by now
        kept.sendall(GET)
        assert answer(kept) == b"hello"


def test_requests_may_come_at_once() -> None:
    with serving(answering(b"hello"), PATIENT) as service, service.connect() as sock:
        sock.sendall(GET * 3)
        reader = sock.makefile("rb")
        received = b""
        while received.count(b"hello") < 3:
            received += reader.readline() if received.count(b"\r\n\r\n") < 3 else reader.read(5)
        assert received.count(b"HTTP/1.1 200 OK") == 3


def test_an_answer_that_nobody_reads_does_not_stay() -> None:
    with serving(answering(b"x" * HUGE), HURRIED) as service, service.connect() as sock:
        sock.sendall(GET)
        wait_for(lambda: service.server.connections == 1, "the connection is accepted")
        wait_for(lambda: service.server.connections == 0, "the connection is broken off")
        received = 0
        try:
            while chunk := sock.recv(1024 * 1024):
                received += len(chunk)
        except ConnectionError:
            pass
        assert received < HUGE


def test_a_long_answer_arrives_whole() -> None:
    with serving(answering(b"x" * HUGE), PATIENT) as service, service.connect() as sock:
        sock.sendall(GET)
        assert len(answer(sock)) == HUGE


def test_one_too_many_takes_the_place_of_who_has_waited_longest() -> None:
    with serving(answering(b"hello"), replace(PATIENT, connections=3)) as service, ExitStack() as stack:
        silent = [stack.enter_context(service.connect()) for _ in range(3)]
        wait_for(lambda: service.server.connections == 3, "all are accepted")
        for expected in silent[:2]:
            sock = stack.enter_context(service.connect())
            sock.sendall(GET)
            assert answer(sock) == b"hello"
            assert is_closed(expected)
        silent[2].sendall(GET)
        assert answer(silent[2]) == b"hello"


def test_who_is_being_served_keeps_his_place() -> None:
    go = asyncio.Event()
    begun: list[int] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        begun.append(1)
        await go.wait()
        await answering(b"hello")(scope, receive, send)

    with serving(app, replace(PATIENT, connections=2)) as service, ExitStack() as stack:
        served = [stack.enter_context(service.connect()) for _ in range(2)]
        for sock in served:
            sock.sendall(GET)
        wait_for(lambda: len(begun) == 2, "both are being served")
        with service.connect() as late:
            assert is_closed(late)
        service.loop.call_soon_threadsafe(go.set)
        assert [answer(sock) for sock in served] == [b"hello", b"hello"]


@pytest.mark.parametrize("request_", [b"\x16\x03\x01 no HTTP\r\n\r\n", GET[:-2] + b"X: " + b"x" * 20000])
def test_what_is_no_request_is_refused(request_: bytes) -> None:
    with serving(answering(b"hello"), PATIENT) as service, service.connect() as sock:
        sock.sendall(request_)
        assert sock.makefile("rb").read().startswith(b"HTTP/1.1 400 ")


def test_whatever_is_open_is_closed_at_the_end() -> None:
    with ExitStack() as stack, serving(answering(b"x" * HUGE), PATIENT) as service:
        for sent in (b"", GET[:5], GET):
            sock = stack.enter_context(service.connect())
            sock.sendall(sent)
        wait_for(lambda: service.server.connections == 3, "all are accepted")
    # `serving` has seen that none is left
