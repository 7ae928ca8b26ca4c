"""A TCP proxy between the service and a server, to make a network misbehave."""

from __future__ import annotations

import contextlib
import select
import socket
import struct
import threading
from enum import Enum
from typing import Self


class Network(Enum):
    """What the proxy does with what it is given."""

    UP = "up"
    BLACK_HOLE = "black hole"  # connections open and stay, nothing gets through in either direction
    RESET = "reset"  # every connection is broken off at once


class Proxy:
    """Forwards connections on a port of its own to another port of this machine."""

    def __init__(self, port: int) -> None:
        self._behind = port
        self._server = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._server.getsockname()[1]
        self._network = Network.UP
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=self._accept, daemon=True)]

    def become(self, network: Network) -> None:
        """Treat old and new connections like this from now on."""
        self._network = network

    def __enter__(self) -> Self:
        self._threads[0].start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._stop.set()
        self._server.close()
        for thread in self._threads:
            thread.join(5)

    def _accept(self) -> None:
        while not self._stop.is_set():
            if select.select([self._server], [], [], 0.05)[0]:
                with contextlib.suppress(OSError):
                    client, _ = self._server.accept()
                    thread = threading.Thread(target=self._serve, args=(client,), daemon=True)
                    self._threads.append(thread)
                    thread.start()

    def _serve(self, client: socket.socket) -> None:
        server: socket.socket | None = None
        try:
            while not self._stop.is_set():
                if self._network is Network.RESET:
                    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                    return
                if self._network is Network.BLACK_HOLE:
                    self._stop.wait(0.02)
                    continue
                if server is None:
                    server = socket.create_connection(("127.0.0.1", self._behind), timeout=5)
                for source in select.select([client, server], [], [], 0.05)[0]:
                    data = source.recv(65536)
                    if not data:
                        return
                    (server if source is client else client).sendall(data)
        except OSError:
            return
        finally:
            client.close()
            if server is not None:
                server.close()
