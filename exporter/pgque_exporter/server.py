"""The web server: few connections, none of them for ever, with TLS where asked for.

uvicorn speaks HTTP; what it leaves open is closed here. By itself it waits without end for the rest of a
request's head and for a client that doesn't read its answer, and it takes any number of connections.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import socket
import ssl
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

from pgque_exporter.config import Listen
from pgque_exporter.errors import UserError

log = logging.getLogger(__name__)

_LONGEST_HEAD = 16 * 1024  # bytes of a request's line and headers
_ACCEPT_PAUSE = 0.1  # seconds, when the process is out of descriptors
_SHUTDOWN = 1  # seconds for answers under way at the end, and for a TLS connection to say goodbye


@dataclass(frozen=True)
class Bounds:
    """What clients may take. Times in seconds.

    connections  open at once; one more takes the place of whoever has been without a request for longest
    head         for a whole request to arrive, a TLS handshake before it included
    answer       from then until the client has read the answer
    idle         between two requests; longer than between two scrapes, so that a scraper can keep its own
    """

    connections: int = 256
    head: float = 10.0
    answer: float = 60.0
    idle: int = 75


class HttpServer:
    """One application on one listening socket, inside of our event loop: signals are ours."""

    def __init__(
        self,
        app: ASGIApp,
        sock: socket.socket,
        *,
        tls: Callable[[], ssl.SSLContext | None] = lambda: None,
        bounds: Bounds = Bounds(),
    ) -> None:
        config = uvicorn.Config(
            app,
            http="h11",
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,
            h11_max_incomplete_event_size=_LONGEST_HEAD,
            timeout_keep_alive=bounds.idle,
            timeout_graceful_shutdown=_SHUTDOWN,
        )
        self._socket = sock
        self._server = _Server(config, sock, tls, bounds)

    @property
    def connections(self) -> int:
        """Open now, those in a TLS handshake included."""
        return len(self._server.door.inside)

    async def serve(self) -> None:
        """Serve until `stop`."""
        await self._server.serve([self._socket])

    async def up(self) -> None:
        """Wait until requests are accepted."""
        await self._server.up.wait()

    def stop(self) -> None:
        """Accept nothing more; answers under way get a second."""
        self._server.should_exit = True

    def stop_now(self) -> None:
        """Don't wait for answers under way any longer."""
        self._server.force_exit = True


async def serve(servers: Sequence[HttpServer]) -> None:
    """Serve on all of them until they are stopped; if one fails, so does this."""
    await asyncio.gather(*(server.serve() for server in servers))


class _Server(uvicorn.Server):
    """uvicorn's life cycle, with our own way to accept."""

    def __init__(
        self,
        config: uvicorn.Config,
        sock: socket.socket,
        tls: Callable[[], ssl.SSLContext | None],
        bounds: Bounds,
    ) -> None:
        super().__init__(config)
        self.up = asyncio.Event()
        self.door = _Door(self, sock, tls, bounds)

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave them alone: uvicorn would raise them again at the end, and the last flush be lost."""
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:  # noqa: ARG002
        """Start to listen."""
        await self.lifespan.startup()
        self.door.open()
        self.servers = []  # those of uvicorn's own
        self.started = True
        self.up.set()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Close all, with a moment for answers under way."""
        await self.door.close()
        await super().shutdown(sockets)
        self.door.abort()


class _Door:
    """Lets connections in, and out when there are too many."""

    def __init__(
        self,
        server: uvicorn.Server,
        sock: socket.socket,
        tls: Callable[[], ssl.SSLContext | None],
        bounds: Bounds,
    ) -> None:
        self._server = server
        self._socket = sock
        self._tls = tls
        self._bounds = bounds
        self.inside: dict[_Connection, asyncio.Task[None]] = {}
        self._accepting: asyncio.Task[None] | None = None

    def open(self) -> None:
        """Begin to accept."""
        self._accepting = asyncio.create_task(self._accept())

    async def close(self) -> None:
        """Accept nothing more."""
        if self._accepting is not None:
            self._accepting.cancel()
            await asyncio.wait({self._accepting})

    def abort(self) -> None:
        """Break off whatever is left."""
        for connection, handshake in list(self.inside.items()):
            handshake.cancel()
            connection.abort()

    async def _accept(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                sock, _ = await loop.sock_accept(self._socket)
            except OSError:  # out of descriptors, or a client that has gone already
                await asyncio.sleep(_ACCEPT_PAUSE)
                continue
            if len(self.inside) >= self._bounds.connections and not self._make_room():
                sock.close()
                continue
            connection = _Connection(self._server, self._bounds, self._leave)
            self.inside[connection] = loop.create_task(self._let_in(connection, sock))

    async def _let_in(self, connection: _Connection, sock: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        options: dict[str, Any] = {}
        try:
            tls = self._tls()
            if tls is not None:
                options = {"ssl": tls, "ssl_handshake_timeout": self._bounds.head}
                options["ssl_shutdown_timeout"] = _SHUTDOWN
            await loop.connect_accepted_socket(lambda: connection, sock, **options)
        except (OSError, asyncio.CancelledError):  # a handshake that failed, took too long, or was broken off
            sock.close()
            self._leave(connection)

    def _make_room(self) -> bool:
        """Send the one away that has been without a request for longest; False if all are being served."""
        waiting = [connection for connection in self.inside if not connection.busy]
        if not waiting:
            return False
        oldest = min(waiting, key=lambda connection: connection.since)
        self.inside[oldest].cancel()
        oldest.abort()
        self._leave(oldest)
        return True

    def _leave(self, connection: _Connection) -> None:
        self.inside.pop(connection, None)


class _Connection(H11Protocol):
    """A connection whose every state ends at some time."""

    def __init__(self, server: uvicorn.Server, bounds: Bounds, leave: Callable[[_Connection], None]) -> None:
        super().__init__(server.config, server.server_state, {})
        self.since = time.monotonic()  # when it began to wait for a request
        self._bounds = bounds
        self._leave = leave
        self._made: asyncio.Transport | None = None  # once the handshake is done
        self._timer: asyncio.TimerHandle | None = None
        self._arriving = False  # part of a request is here, or none has ever been
        self._answering = False  # a request is here, and the application hasn't answered all of it

    @property
    def busy(self) -> bool:
        """Whether a request is here whose answer the client hasn't read."""
        return self._answering or self._unread

    @property
    def _unread(self) -> bool:
        """Whether the client has still to read an answer; all of that is in memory.

        Not known under TLS, where such a connection passes for idle and ends like one: its goodbye has a
        deadline.
        """
        return self._made is not None and self._made.get_write_buffer_size() > 0

    def abort(self) -> None:
        """End the connection at once, whatever the client does."""
        if self._made is not None:
            self._made.abort()

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """See asyncio.Protocol."""
        super().connection_made(transport)
        self._made = transport
        self._arriving = True
        self._end_in(self._bounds.head)

    def connection_lost(self, exc: Exception | None) -> None:
        """See asyncio.Protocol."""
        self._stop_timer()
        self._unset_keepalive_if_required()
        self._leave(self)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """See asyncio.Protocol."""
        if not (self._arriving or self._answering):
            self._arriving = True
            self._end_in(self._bounds.head)
        super().data_received(data)

    def handle_events(self) -> None:
        """Begin with whatever has arrived whole."""
        before = self.cycle
        super().handle_events()
        if self.cycle is not before and not self.cycle.response_complete:
            self._arriving, self._answering = False, True
            self._end_in(self._bounds.answer)

    def on_response_complete(self) -> None:
        """The application is done; the client may not be."""
        self._answering = False
        self.since = time.monotonic()
        if not self._unread:
            self._stop_timer()
        super().on_response_complete()

    def _end_in(self, seconds: float) -> None:
        self._stop_timer()
        self._timer = self.loop.call_later(seconds, self._out_of_time)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _out_of_time(self) -> None:
        self._timer = None
        if self._arriving or self.busy:
            self.abort()


def bind(listen: Listen, setting: str = "listen") -> socket.socket:
    """A socket that listens there; UserError if that can't be. `setting` is where the address stands."""
    hint = f"choose another address with `{setting}` or PGQUE_{setting.upper()}"
    place = f"{listen.host}:{listen.port}"
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            listen.host, listen.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
    except (socket.gaierror, UnicodeError):
        raise UserError(f"{listen.host} is no address of this machine", where=setting, hint=hint) from None
    sock = socket.socket(family, kind, protocol)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind(address)
        sock.listen(128)
        sock.setblocking(False)
    except OSError as error:
        sock.close()
        if error.errno == errno.EADDRINUSE:
            what = f"{place} is in use by another program"
            raise UserError(what, where=setting, hint=f"stop it, or {hint}") from None
        raise UserError(f"can't listen on {place}: {error.strerror}", where=setting, hint=hint) from None
    return sock


def base_url(sock: socket.socket, *, tls: bool = False) -> str:
    """The URL under which this machine reaches what listens there."""
    host, port = sock.getsockname()[:2]
    if host in ("0.0.0.0", "::"):  # noqa: S104 - compared, not listened on
        host = "localhost"
    elif ":" in host:
        host = f"[{host}]"
    return f"{'https' if tls else 'http'}://{host}:{port}"
