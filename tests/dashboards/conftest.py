"""One running demo with all that watches it, for the tests of a worker."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from dashboards.pictures.browser import require_programs
from pgque_exporter.demo.cluster import embedded_bindir
from pgque_exporter.errors import UserError
from tests.support.demo import WatchedDemo, run_watched_demo
from tests.support.tools import Unavailable

# What an engine may leave out: here are two queues of the same names as the demo's, in a database of the same
# name, of an engine that knows little; one of them has no consumer.
SPARSE_ENGINE = """\
pgque_queue_depth{engine="sparse",database="shop",queue="orders"} 7
pgque_queue_depth{engine="sparse",database="shop",queue="parcels"} 0
pgque_queue_health_status{engine="sparse",database="shop",queue="orders"} 1
pgque_queue_health_status{engine="sparse",database="shop",queue="parcels"} 0
pgque_queue_health_state{engine="sparse",database="shop",queue="orders",check="paused",state="ok"} 0
pgque_queue_health_state{engine="sparse",database="shop",queue="orders",check="paused",state="warning"} 1
pgque_consumer_lag_seconds{engine="sparse",database="shop",queue="orders",consumer="fulfilment"} 30
pgque_consumer_pending_events{engine="sparse",database="shop",queue="orders",consumer="fulfilment"} 7
pgque_up{database="shop"} 1
"""


@pytest.fixture(scope="session")
def watched_demo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WatchedDemo]:
    """The demo, scraped twice as if by replicas, beside a service that knows another engine."""
    try:
        embedded_bindir()
    except UserError as error:
        pytest.skip(str(error))
    with SparseService() as address:
        jobs = {"replica": ["demo"], "sparse": [address]}
        folder = tmp_path_factory.mktemp("watched-demo")
        with run_watched_demo(folder, scrape_interval="1s", jobs=jobs) as watched:
            yield watched


@pytest.fixture(scope="session")
def browser() -> None:
    """A browser and Grafana's libraries, for tests that draw."""
    try:
        require_programs()
    except Unavailable as error:
        pytest.skip(str(error))


class SparseService:
    """Serves SPARSE_ENGINE within its block."""

    def __enter__(self) -> str:
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _Page)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))
        self._thread.start()
        return f"127.0.0.1:{self._server.server_port}"

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


class _Page(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        body = SPARSE_ENGINE.encode()
        self.send_response(200)
        self.send_header("Content-Type", "text/plain; version=0.0.4")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass
